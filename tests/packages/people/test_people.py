"""People as users and as agents: what is kept of a conversation, how tasks are handed out, and how people compare."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from scipy import stats

from curricula import load
from flows.cli.looking.report import report
from tests.makers import raises
from userrl.run.run import Run, RunInfo
from userrl_core.errors import ConfigError
from userrl_core.gyms import registry, tasks
from userrl_core.gyms.human_user import Console
from userrl_core.json_files import write_json
from userrl_core.records import Flag, Task, Trajectory
from userrl_people.others import Checkpoint, Other, gyms_with_people
from userrl_people.study import ConversationSetup, Study
from warehouse import TurnLog, open_warehouse
from warehouse.files.runs import find_run
from warehouse.upkeep.exchange.conversations import conversations
from warehouse.upkeep.export import export


def person(*answers: str, forever: str | None = None, mark: str = "1") -> Console:
    """Types these answers, then the last one for ever, or leaves. mark: what an answer is worth."""
    left = list(answers)

    def ask(prompt: str) -> str:
        if left:
            return left.pop(0)
        if forever is None:
            raise EOFError
        return forever if "/" not in prompt else mark if "0.5" in prompt else "y"

    return Console(ask, lambda text: None)


def rows(root: Path, text: str) -> list[dict[str, Any]]:
    with open_warehouse(root) as warehouse:
        return warehouse.rows(text)


def hold(study: Study, gym: str = "turtle", *, name: str = "ada", seed: int = 0, mark: str = "1") -> Trajectory:
    other = Other(1.0)
    task = study.hand_out(gym, "user", other, person=name)
    trajectory = study.hold(
        ConversationSetup(task, "user", other, seed=seed), person(forever="hm", mark=mark), person=name
    )
    study.tell(trajectory, person=name, side="user", rating=5)
    return trajectory


def test_a_persons_answers_are_rows_like_any_other_users(tmp_path: Path) -> None:
    study = Study(tmp_path)
    played = hold(study)
    study.close()
    kept = rows(tmp_path, f"FROM trajectories WHERE traj_id = {played.traj_id}")[0]
    assert (kept["run_id"], kept["phase"], kept["policy"], kept["user_name"]) == (
        "people",
        "play",
        "scripted(skill=1)",
        "human",
    )
    assert (kept["admitted"], kept["score"], kept["turns"]) == (True, played.score, len(played.turns))
    assert len(rows(tmp_path, f"FROM turns WHERE traj_id = {played.traj_id}")) == kept["turns"]
    calls = rows(tmp_path, f"FROM model_calls WHERE traj_id = {played.traj_id}")
    assert {(call["role"], call["model"], call["price"]) for call in calls} == {("user", "human", 0.0)}
    assert all(call["seconds"] > 0 for call in calls)
    told = rows(tmp_path, "FROM people")
    assert [(row["traj_id"], row["person"], row["part"], row["rating"]) for row in told] == [
        (played.traj_id, "ada", "user", 5)
    ]


def test_people_are_paired_with_the_simulated_user_on_the_same_tasks(tmp_path: Path) -> None:
    study = Study(tmp_path)
    scores = [hold(study, seed=n).score or 0.0 for n in range(3)]
    study.close()
    (pair,) = rows(tmp_path, "FROM people_beside_simulated")
    assert (pair["gym"], pair["part"], pair["other_side"], pair["simulated"]) == (
        "turtle",
        "user",
        "scripted(skill=1)",
        "rule",
    )
    assert pair["tasks"] == 3
    assert pair["people"] == pytest.approx(sum(scores) / 3)
    assert pair["difference"] == pytest.approx(pair["people"] - pair["simulated_score"])


def test_the_report_pairs_people_with_the_simulated_user_with_limits_over_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    study = Study(tmp_path / "warehouse")
    played = [hold(study, seed=n, mark=mark) for n, mark in enumerate(("0", "0.5", "1"))]
    study.close()
    own = {played.task.id: played.score for played in played}
    simulated = {
        row["task_id"]: row["score"]
        for row in rows(tmp_path / "warehouse", "FROM trajectories WHERE user_name = 'rule'")
    }
    assert own.keys() == simulated.keys()
    apart = np.array([(own[task] or 0.0) - simulated[task] for task in own])
    half = stats.t.ppf(0.975, 2) * apart.std(ddof=1) / 3**0.5
    report("people", as_json=True)
    (pair,) = json.loads(capsys.readouterr().out)
    assert (pair["gym"], pair["part"], pair["simulated"], pair["tasks"], pair["conversations"]) == (
        "turtle", "user", "rule", 3, 3,
    )  # fmt: skip
    assert pair["difference"]["estimate"] == pytest.approx(apart.mean())
    assert (pair["difference"]["low"], pair["difference"]["high"]) == pytest.approx(
        (max(apart.mean() - half, -1.0), min(apart.mean() + half, 1.0))
    )
    report("people")
    shown = capsys.readouterr().out
    assert "3 conversations of 1 named person; 3 could be scored." in shown
    assert "Few tasks (minimum 3)" in shown


def test_simulated_conversations_with_another_horizon_are_not_held_against_people(tmp_path: Path) -> None:
    study, other = Study(tmp_path), Other(1.0)
    study.hold(ConversationSetup(tasks("turtle", "test")[0], "user", other, horizon=3), person(forever="hm"))
    (pair,) = rows(tmp_path, "FROM people_by_task")
    assert (pair["horizon"], len(pair["people_scores"]), len(pair["simulated_scores"])) == (3, 1, 1)
    other.free = False  # so that nobody simulated plays at this horizon
    study.hold(ConversationSetup(tasks("turtle", "test")[0], "user", other, horizon=4), person(forever="hm"))
    study.close()
    assert [row["horizon"] for row in rows(tmp_path, "FROM people_by_task")] == [3]


def test_tasks_are_handed_out_evenly_and_to_nobody_twice_before_all_were_had(tmp_path: Path) -> None:
    study, again = Study(tmp_path), Study(tmp_path)
    first = hold(study, name="ada").task.id
    second = hold(study, name="ada").task.id
    assert first != second
    assert again.hand_out("turtle", "user", Other(1.0), person="ben").id not in (first, second)
    handed = {again.hand_out("turtle", "user", Other(1.0), person=f"p{n}").id for n in range(5)}
    assert len(handed) == 5
    assert (
        again.hand_out("turtle", "user", Other(0.5), person="ada").id == first
    )  # another other side counts for itself
    study.close()


def test_several_people_play_at_once(tmp_path: Path) -> None:
    study = Study(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        played = list(pool.map(lambda n: hold(study, name=f"p{n}"), range(4)))
    study.close()
    assert len({trajectory.traj_id for trajectory in played}) == 4
    assert len({trajectory.task.id for trajectory in played}) == 4
    assert len(rows(tmp_path, "FROM people WHERE admitted")) == 4


def test_a_task_is_not_handed_out_again_when_its_conversation_ends_while_another_person_starts(tmp_path: Path) -> None:
    counted, ended = threading.Event(), threading.Event()

    class SlowStudy(Study):
        """Has counted the stored conversations when the first person's ends."""

        def _counts(self, *arguments: Any) -> dict[str, tuple[int, int]]:
            counts = super()._counts(*arguments)
            counted.set()
            ended.wait(1.0)
            return counts

    def answer(prompt: str) -> str:
        counted.wait()
        return "hm" if "/" not in prompt else "1" if "0.5" in prompt else "y"

    def play(task: Task) -> None:
        study.hold(ConversationSetup(task, "user", other), Console(answer, lambda text: None))
        ended.set()

    other, study = Other(1.0), SlowStudy(tmp_path)
    first = study.hand_out("turtle", "user", other)
    counted.clear()
    with ThreadPoolExecutor(1) as pool:
        played = pool.submit(play, first)
        second = study.hand_out("turtle", "user", other)
        played.result()
    study.close()
    assert second.id != first.id


def test_a_task_whose_conversation_could_not_begin_is_handed_out_again(tmp_path: Path) -> None:
    study = Study(tmp_path)

    class Broken(Other):
        def options(self, gym: str) -> dict[str, Any]:
            raise ConfigError("gym.bad_option", "no such options")

    task = study.hand_out("turtle", "user", Broken(1.0))
    with raises("gym.bad_option"):
        study.hold(ConversationSetup(task, "user", Broken(1.0)), person(forever="hm"))
    study.close()
    assert study.hand_out("turtle", "user", Other(1.0)).id == task.id


def test_who_leaves_is_kept_without_a_score_and_counts_for_nothing(tmp_path: Path) -> None:
    study, other = Study(tmp_path), Other(1.0)
    task = study.hand_out("turtle", "user", other)
    left = study.hold(ConversationSetup(task, "user", other), person("y"))
    assert (left.admitted, left.score) == (False, None)
    assert study.hand_out("turtle", "user", other).id == task.id
    study.close()
    assert rows(tmp_path, "FROM people_beside_simulated") == []


def test_a_person_as_the_agent_is_compared_with_the_scripted_one(tmp_path: Path) -> None:
    study, other = Study(tmp_path), Other()
    task = tasks("turtle", "test")[0]
    typed = ["[action] Was it night?", *(f"answer: {c['statement']}" for c in task.payload["criteria"])]
    study.hold(ConversationSetup(task, "agent", other, horizon=len(typed)), person(*typed))
    study.close()
    (pair,) = rows(tmp_path, "FROM people_beside_simulated")
    assert (pair["part"], pair["other_side"], pair["simulated"]) == ("agent", "rule", "scripted(skill=0.7)")


def test_a_traveller_hints_in_their_own_words(tmp_path: Path) -> None:
    task = tasks("travel", "test")[0]
    study = Study(tmp_path)
    shown: list[str] = []
    answers = iter(["1", "Something quiet, please."])
    console = Console(lambda prompt: next(answers), shown.append)
    talk = ConversationSetup(task, "user", Other(1.0), horizon=1)
    played = study.hold(talk, console)
    study.close()
    assert played.turns[0].observation == "Something quiet, please."
    assert played.turns[0].info["utterance"] == "held"
    assert task.payload["opening"] in "\n".join(shown)


def test_latest_is_never_the_run_of_people(tmp_path: Path) -> None:
    TurnLog.open(tmp_path, "experiment").close()
    study = Study(tmp_path)
    hold(study)
    study.close()
    assert find_run(tmp_path, "latest")["run_id"] == "experiment"
    assert find_run(tmp_path, "people")["run_id"] == "people"


@pytest.mark.parametrize(
    ("recipe", "user", "agent"), [("naive-sum", ["travel"], ["travel"]), ("horizon-fork", ["wish"], ["errand", "wish"])]
)
def test_a_checkpoint_is_met_at_the_gyms_that_its_recipe_plays(
    tmp_path: Path, recipe: str, user: list[str], agent: list[str]
) -> None:
    profile = "laptop" if recipe == "horizon-fork" else "laptop-quick"
    info = RunInfo(id="r", created=1.0, resolved=load(recipe, profile).resolved())
    write_json(tmp_path / "report.json", {"checkpoint": str(tmp_path / "step-000001")})
    met = Checkpoint(Run("r", tmp_path, info))
    assert met.gyms("user") == user
    assert sorted(met.gyms("agent")) == agent


def test_an_agent_that_learnt_with_its_turns_left_is_shown_them(tmp_path: Path) -> None:
    recipe = load("horizon-fork", "laptop", overrides={"model.turns_left": True})
    info = RunInfo(id="r", created=1.0, resolved=recipe.resolved())
    write_json(tmp_path / "report.json", {"checkpoint": str(tmp_path / "step-000001")})
    assert Checkpoint(Run("r", tmp_path, info)).turns_left
    other, study = Other(1.0), Study(tmp_path / "warehouse")
    other.turns_left = True
    task = study.hand_out("wish", "user", other)
    played = study.hold(ConversationSetup(task, "user", other), person(forever="hm"))
    study.close()
    assert played.messages[-1]["content"].endswith("turns left)")
    flags = rows(tmp_path / "warehouse", f"SELECT flags & {Flag.TURNS_LEFT} AS shown FROM turns")
    assert {row["shown"] for row in flags} == {Flag.TURNS_LEFT}, "the simulated user's conversation too"


def test_which_parts_can_be_played() -> None:
    assert set(gyms_with_people()) == {"intention", "persuade", "telepathy", "travel", "turtle", "wish"}
    with raises("people.not_playable", "'function'"):
        Study(Path("nowhere")).hand_out("function", "user", Other())


def test_a_gym_whose_packages_are_missing_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_without_travel(name: str) -> Any:
        if name == "userrl_core.gyms.travel.gym":
            raise ModuleNotFoundError("No module named 'minigrid'", name="minigrid")
        return import_module(name)

    monkeypatch.setattr(registry, "import_module", import_without_travel)
    assert set(gyms_with_people()) == {"intention", "persuade", "telepathy", "turtle", "wish"}


def test_a_conversation_without_consent_is_in_no_export(tmp_path: Path) -> None:
    study = Study(tmp_path / "warehouse")
    given, missing, withdrawn = (hold(study, name=name, seed=n) for n, name in enumerate(("ada", "ben", "cyd")))
    for played, name in ((given, "ada"), (withdrawn, "cyd")):
        study.tell(played, person=name, side="user", consent=True)
    study.note("withdrawal", person="cyd")
    study.close()
    ids = {given.traj_id: True, missing.traj_id: False, withdrawn.traj_id: False}
    assert {row["traj_id"]: row["consent"] for row in rows(tmp_path / "warehouse", "FROM people")} == ids
    with open_warehouse(tmp_path / "warehouse") as warehouse:
        exported = [each.trajectory for each in conversations(warehouse, "people", phase="play")]
    assert {each["traj_id"] for each in exported if each["user_name"] == "human"} == {given.traj_id}
    assert export(tmp_path / "warehouse", str(tmp_path / "out")).without_consent == 2
    for table in ("trajectories", "turns", "model_calls", "events"):
        found = duckdb.sql(f"FROM read_parquet('{tmp_path}/out/*/{table}/run=people/*.parquet')")
        texts = str(found.fetchall())
        assert str(given.traj_id) in texts
        assert str(missing.traj_id) not in texts
        assert str(withdrawn.traj_id) not in texts


def test_the_report_says_what_the_size_of_the_study_cannot_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    study = Study(tmp_path / "warehouse")
    for n in range(3):
        played = hold(study, seed=n)
        study.tell(played, person="ada", side="user", study="pilot")
    study.note("study", study="pilot", persons=24, conversations=2)
    study.close()
    report("people")
    shown = capsys.readouterr().out
    assert "Study pilot: 3 conversations of 1 person; planned are 48 of 24 persons." in shown
    assert "With 48 conversations a difference in success below 0.24 is not seen." in shown
    assert "with 3 conversations a difference below 0.97 is not seen" in shown


def test_an_export_follows_consent_that_comes_late_or_is_withdrawn(tmp_path: Path) -> None:
    root, target = tmp_path / "warehouse", tmp_path / "out"

    def exported() -> set[int]:
        export(root, str(target))
        files = f"{target}/*/turns/run=people/*.parquet"
        return {row[0] for row in duckdb.sql(f"SELECT DISTINCT traj_id FROM read_parquet('{files}')").fetchall()}

    study = Study(root)
    early, late = (hold(study, name=name, seed=n) for n, name in enumerate(("ada", "ben")))
    study.tell(late, person="ben", side="user", consent=True)
    study.close()
    assert exported() == {late.traj_id}
    study = Study(root)
    study.tell(early, person="ada", side="user", consent=True)
    study.note("withdrawal", person="ben")
    study.close()
    assert exported() == {early.traj_id}


def test_an_export_to_a_target_without_homes_leaves_the_people_of_other_homes(tmp_path: Path) -> None:
    (tmp_path / "out" / "turns").mkdir(parents=True)
    with closing(Study(tmp_path / "first")) as study:
        played = hold(study, name="ada", seed=0)
        study.tell(played, person="ada", side="user", consent=True)
    with closing(Study(tmp_path / "second")) as study:
        hold(study, name="ben", seed=1)
    for home in ("first", "second"):
        export(tmp_path / home, str(tmp_path / "out"))
        files = f"{tmp_path}/out/turns/run=people/*.parquet"
        assert duckdb.sql(f"SELECT DISTINCT traj_id FROM read_parquet('{files}')").fetchall() == [(played.traj_id,)]
