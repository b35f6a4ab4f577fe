"""``userrl play`` and ``userrl tasks`` as a person and a script see them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from flows.cli.main import app
from tests.makers import raises
from tests.mock_server import MockServer, modest_user
from tests.published import published
from tests.userrl_core.gyms.test_intention import write_sample as intention_sample
from tests.userrl_core.gyms.test_persuade import row
from tests.userrl_core.gyms.test_persuade import write_sample as persuade_sample
from userrl.machine.home import imported_tasks
from userrl_core.gyms import RewardBounds, tasks
from userrl_core.gyms.errand.gym import ErrandGym
from userrl_core.gyms.taskfile import read_tasks, write_tasks
from userrl_core.gyms.validate import validate
from userrl_core.records import Task
from warehouse import open_warehouse


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))


def call(*arguments: str, typed: str = "") -> Result:
    return CliRunner().invoke(app, arguments, input=typed)


def test_playing_shows_each_turn_reward_as_it_falls_and_the_score() -> None:
    task = tasks("intention", "train")[0]
    inquiries = [detail["inquiry"] for detail in task.payload["details"]]
    done = call("play", "intention", "--task", task.id, typed="\n".join(["nonsense", *inquiries]))
    assert done.exit_code == 0
    assert "-- turn 1: reward 0.000, total 0.000" in done.output
    assert f"Solved after {len(inquiries) + 1} turns" in done.output
    assert done.output.index("turn 1") < done.output.index("turn 2")


def test_playing_as_the_user_lets_the_scripted_agent_ask() -> None:
    done = call("play", "persuade", "--as", "user", "--skill", "1", typed="Hm.\n4\nOh.\n7\n")
    assert "-- turn 1: reward +0.500, total 0.500" in done.output
    assert "Solved after 2 turns; score 1.000." in done.output


def test_what_was_played_is_kept_and_shown(tmp_path: Path) -> None:
    done = call("play", "travel", "--name", "ada", typed="[search] hotel\nquit\n")
    traj_id = int(done.output.partition("Stored: userrl show ")[2].split(",")[0])
    with open_warehouse(tmp_path / "home" / "warehouse") as warehouse:
        (row,) = warehouse.rows("FROM people")
        (turn,) = warehouse.rows("FROM turns WHERE traj_id = $id", id=traj_id)
    assert (row["traj_id"], row["part"], row["person"], row["admitted"]) == (traj_id, "agent", "ada", False)
    assert (turn["choice"], turn["content"]) == ("search", "hotel")


def test_playing_against_a_served_user() -> None:
    with MockServer(modest_user) as server:
        done = call(
            "play", "persuade", "--base-url", server.base_url, "--model", "m", "--horizon", "1", typed="But why?\n"
        )
        assert len(server.requests) == 1
    assert "I see." in done.output
    assert "Out of turns after 1 turn; score 0.000." in done.output


def test_leaving_ends_without_a_score() -> None:
    assert "Ended without a score (policy: The person at the terminal left.)." in call("play", "intention").output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nosuch"], "There is no gym 'nosuch'"),
        (["function", "--as", "user"], "A person cannot play the user of 'function'"),
        (["intention", "--task", "zzz"], "has no task with an id that begins with 'zzz'"),
        (["intention", "--horizon", "0"], "Horizon 0 allows no turn"),
        (["persuade", "--as", "user", "--skill", "2"], "skill of a demonstrator is between 0 and 1"),
    ],
)
def test_a_wrong_call_is_one_sentence_and_exit_1(arguments: list[str], sentence: str) -> None:
    done = call("play", *arguments)
    assert done.exit_code == 1
    assert sentence in done.output
    assert "Traceback" not in done.output


def test_the_same_seed_plays_the_same_task() -> None:
    outputs = [call("play", "intention", "--seed", seed).output for seed in ("1", "1", "2")]
    first, again, other = (output.partition("Stored:")[0] for output in outputs)  # each is kept under an id of its own
    assert first == again != other


def test_list_counts_every_gym_and_names_the_tasks_of_one() -> None:
    rows = json.loads(call("tasks", "list", "--json").output)
    mine = next(r for r in rows if r["gym"] == "intention")
    assert (mine["train"], mine["imported"]) == (len(tasks("intention", "train")), 0)
    for command in ("list", "show"):
        refused = call("tasks", command, "intention", "--split", "tests")
        assert (
            refused.exit_code,
            "There is no split 'tests'. Use one of train, validation, test." in refused.output,
        ) == (1, True)
    named = json.loads(call("tasks", "list", "intention", "--split", "test", "--json").output)
    assert [r["id"] for r in named] == [t.id for t in tasks("intention", "test")]
    assert f"{len(named)} tasks." in call("tasks", "list", "intention", "--split", "test").output


def test_show_prints_a_task_with_its_hidden_part() -> None:
    task = tasks("persuade", "test")[0]
    assert json.loads(call("tasks", "show", "persuade", task.id).output)["payload"] == task.payload
    assert call("tasks", "show", "persuade", "zzz").exit_code == 1


def test_generate_writes_tasks_that_read_back_and_validate(tmp_path: Path) -> None:
    out = tmp_path / "made.jsonl"
    assert call("tasks", "generate", "intention", "-n", "7", "--seed", "3", "--out", str(out)).exit_code == 0
    assert len({task.id for task in read_tasks(out)}) == 7
    lines = call("tasks", "generate", "intention", "-n", "7", "--seed", "3").output.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [task.id for task in read_tasks(out)]


def test_a_tier_of_a_gym_without_tiers_is_refused() -> None:
    done = call("tasks", "generate", "errand", "--tier", "tiny")
    assert done.exit_code == 1
    assert "The tasks of gym 'errand' have no tiers. Omit --tier." in done.output


def test_import_prints_counts_and_the_tasks_are_listed_and_validated(tmp_path: Path) -> None:
    root = intention_sample(tmp_path / "released", {})
    done = call("tasks", "import", "--from", str(root), "--gym", "intention")
    assert done.exit_code == 0
    assert "2 intention tasks (1 train, 0 validation, 1 test)" in done.output
    assert [t.id for t in read_tasks(imported_tasks("intention"))] == ["a", "c"]
    checked = call("tasks", "validate", "intention", "--limit", "3", "--json")
    assert checked.exit_code == 0
    assert json.loads(checked.output) == [{"solved": 5}]


def test_import_says_how_many_problems_it_skipped_and_why(tmp_path: Path) -> None:
    rows = [{"problem": "What is 1 + 1?", "answer": "2"}, {"problem": "Half?", "answer": "1/2"}]
    (tmp_path / "deepscaler.json").write_text(json.dumps(rows))
    sentence = f"{tmp_path / 'deepscaler.json'}: 1 of 2 problems were skipped: 1 without a whole number as answer."
    assert sentence in call("tasks", "import", "--from", str(tmp_path), "--gym", "math").output.splitlines()
    done = call("tasks", "import", "--from", str(tmp_path), "--gym", "math", "--json")
    assert (json.loads(done.output)["train"], json.loads(done.output)["notes"]) == (1, [sentence])


def test_tasks_without_a_gold_are_counted_as_not_provable_and_never_as_solved(tmp_path: Path) -> None:
    root = persuade_sample(tmp_path / "released", row("a"), row("b"), row("c"))
    call("tasks", "import", "--from", str(root), "--gym", "persuade")
    done = call("tasks", "validate", "persuade")
    assert done.exit_code == 0
    assert "63 solved, 3 not provable" in done.output
    assert "The task has no gold solution" in done.output


def test_a_bad_row_is_named_and_nothing_half_imported_stays(tmp_path: Path) -> None:
    good = persuade_sample(tmp_path / "good", row("a"), row("b"))
    assert call("tasks", "import", "--from", str(good), "--gym", "persuade").exit_code == 0
    before = imported_tasks("persuade").read_bytes()
    bad = persuade_sample(tmp_path / "bad", row("x"), row("y", ""), row("z"))
    done = call("tasks", "import", "--from", str(bad), "--gym", "persuade")
    assert done.exit_code == 1
    assert "train.parquet, entry 1: field 'claim'" in done.output
    assert imported_tasks("persuade").read_bytes() == before
    assert [path.name for path in imported_tasks("persuade").parent.iterdir()] == ["published.jsonl"]


def test_importing_from_nowhere_is_one_sentence(tmp_path: Path) -> None:
    done = call("tasks", "import", "--from", str(tmp_path / "none"), "--gym", "intention")
    assert done.exit_code == 1
    assert "none is no folder (No such file or directory)" in done.output


def test_a_gym_that_pays_outside_of_its_reward_range_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ErrandGym, "reward_bounds", classmethod(lambda cls, config: RewardBounds(0.0, 0.25)))
    reason = "Turn 4 of the gold solution earned 0.625, outside of 0 to 0.25. Correct the gym's reward_range."
    assert validate(tasks("errand", "train")[0], {"shared": 0.5}).reason == reason


def test_a_published_gold_that_misses_the_full_score_fails_the_check() -> None:
    good = tasks("persuade", "train")[0]
    weak = [{**rebuttal, "text": "Hm."} for rebuttal in good.payload["rebuttals"]]
    bad = Task("persuade", "bad", "train", {**good.payload, "rebuttals": weak}, source="published:test")
    write_tasks(imported_tasks("persuade"), [good, bad])
    done = call("tasks", "validate", "persuade", "--limit", "1")
    assert done.exit_code == 1
    assert "failed: 1 x The gold solution reaches" in done.output
    assert "such as bad" in done.output


def test_validate_needs_to_know_what() -> None:
    assert call("tasks", "validate").exit_code == 2


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    good = list(tasks("persuade", "test"))
    write_tasks(path, good)

    def broken() -> list[Task]:
        return [good[0], Task("persuade", "x", "train", {"claim": object()})]

    with pytest.raises(TypeError):
        write_tasks(path, broken())
    assert read_tasks(path) == good
    assert [p.name for p in tmp_path.iterdir()] == ["t.jsonl"]


TASK = '{"gym": "g", "id": "i", "split": "train", "payload": {}}'


def test_a_file_of_tasks_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(TASK + "\r\n", encoding="utf-8-sig")
    assert read_tasks(tmp_path / "t.jsonl") == [Task("g", "i", "train", {})]


@pytest.mark.parametrize(
    ("line", "code", "fact"),
    [
        ("{", "task.file_unreadable", "line 1"),
        ("[]", "task.file_unreadable", "line 1: the line is not a JSON object"),
        (TASK[:-1] + ', "id": "j"}', "task.file_unreadable", "line 1: an object has the key 'id' twice"),
        (TASK[:-1] + ', "tier": 3}', "task.invalid_field", "field 'tier' is not a text"),
        (TASK[:-1] + ', "source": 7}', "task.invalid_field", "field 'source'"),
        (TASK[:-1] + ', "weight": 2}', "task.invalid_field", "there is no field 'weight'"),
        (TASK.replace("{}", '{"n": 18446744073709551617}'), "task.invalid_field", "beyond 64 bits"),
        (TASK.replace("{}", '{"n": NaN}'), "task.invalid_field", "not finite"),
        ('{"gym": "g", "id": "i", "payload": {}}', "task.invalid_field", "field 'split'"),
        ('{"gym": "g", "id": "i", "split": "dev", "payload": {}}', "task.invalid_field", "field 'split' is 'dev'"),
        ('{"gym": "g", "id": "i", "split": "train", "payload": []}', "task.invalid_field", "field 'payload'"),
        ('{"gym": "", "id": "i", "split": "train", "payload": {}}', "task.invalid_field", "field 'gym'"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, code: str, fact: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(line + "\n")
    with raises(code, fact):
        read_tasks(path)


TEXT = st.text(max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
PAYLOADS = st.dictionaries(TEXT, JSON, max_size=3)


@settings(max_examples=25)
@given(
    st.lists(
        st.builds(Task, gym=st.just("g"), id=st.text(min_size=1), split=st.just("test"), payload=PAYLOADS), max_size=4
    )
)
def test_tasks_come_back_from_a_file_as_they_went(tmp_path_factory: pytest.TempPathFactory, found: list[Task]) -> None:
    path = tmp_path_factory.mktemp("round") / "t.jsonl"
    assert write_tasks(path, found) == len(found)
    assert read_tasks(path) == found


@pytest.mark.parametrize(
    ("gym", "count"), [("intention", 420), ("persuade", 420), ("function", 538), ("telepathy", 401)]
)
def test_the_published_files_import_as_they_are(gym: str, count: int) -> None:
    done = call("tasks", "import", "--from", str(published("userrl")), "--gym", gym, "--json")
    counts = json.loads(done.output)
    assert counts["train"] + counts["validation"] + counts["test"] == count
