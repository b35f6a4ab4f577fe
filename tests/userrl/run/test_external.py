"""What a run reads from outside is known by its content: an edit under the same path begins a new generation, and is named."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from curricula import load
from flows.cli.quickstart import check
from tests.makers import raises
from tests.offered import in_this_process, offer
from tests.places import ROOT
from userrl.evaluation.planned import plan_evaluation
from userrl.machine.hashes import folder_files, path_hash
from userrl.run.external import external_hashes
from userrl.run.job import StageJob
from userrl.run.plan import RunPlan, kind_of, plan_run
from userrl.run.request import EvaluateRequest, TrainRequest
from userrl.run.results import DistillResult, Result
from userrl.run.run import find
from userrl.stages.execution import Share
from userrl.stages.sequence import StageSequence
from userrl.stages.workers import Workers
from userrl.worker.main import run as work
from userrl_core.gyms import generate
from userrl_core.gyms.taskfile import write_tasks
from userrl_core.interact import InteractCall, render_call
from userrl_core.json_files import read_json, write_json
from userrl_core.records import Task

SMALL: dict[str, Any] = {
    "stages": [{"steps": 2, "horizon": 8, "mix": {"errand": 1}}],
    "evaluate.gyms": ["errand"],
    "demonstrations.horizon": 8,
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    return tmp_path


def planned(overrides: dict[str, Any] | None = None, **values: Any) -> RunPlan:
    return plan_run(TrainRequest(profile="laptop-quick", overrides=SMALL | (overrides or {}), wandb="off", **values))


def chats(path: Path, *words: str) -> str:
    call = render_call(InteractCall("action", "a"))
    lines = [
        {"messages": [{"role": "user", "content": word}, {"role": "assistant", "content": call}]} for word in words
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def began(plan: RunPlan, *stages: str) -> tuple[str, list[str]]:
    """Begin a run and its stages, without playing them. Return its id and what was said."""
    said: list[str] = []
    with plan.begin(say=lambda text, *words: said.append(text % words)) as run:
        for stage in stages:
            plan.job(run, stage).write()
    return run.id, said


def checkpoint(folder: Path, weights: bytes = b"weights") -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def a_data_file(root: Path) -> tuple[dict[str, Any], dict[str, Any], Path, str]:
    return {"cold_start.data": chats(root / "chats.jsonl", "one", "two")}, {}, root / "chats.jsonl", "cold_start.data"


def a_task_file(root: Path) -> tuple[dict[str, Any], dict[str, Any], Path, str]:
    write_tasks(root / "own.jsonl", generate("errand", 60, 1))
    return {"gyms.errand.published": str(root / "own.jsonl")}, {}, root / "own.jsonl", "gyms.errand.published"


def imported(root: Path) -> tuple[dict[str, Any], dict[str, Any], Path, str]:
    file = root / "home" / "tasks" / "errand" / "published.jsonl"
    file.parent.mkdir(parents=True)
    write_tasks(file, generate("errand", 60, 1))
    return {"gyms.errand.published": "imported"}, {}, file, "gyms.errand.published"


def a_start(root: Path) -> tuple[dict[str, Any], dict[str, Any], Path, str]:
    folder = checkpoint(root / "start")
    return {}, {"init_from": str(folder)}, folder / "model.safetensors", "init_from"


def its_tokenizer(root: Path) -> tuple[dict[str, Any], dict[str, Any], Path, str]:
    folder = checkpoint(root / "start")
    (folder / "tokenizer.json").write_text("{}")
    return {}, {"init_from": str(folder)}, folder / "tokenizer.json", "init_from"


def edited(content: bytes) -> bytes:
    """The content with one word changed, at the same length."""
    words = {b"two": b"six", b"key": b"kex", b"weights": b"Weights", b"{}": b"[]"}
    old = next(word for word in words if word in content)
    return content.replace(old, words[old], 1)


STAGE = {"cold_start.data": "distill", "init_from": "sft"}


@pytest.mark.parametrize("source", [a_data_file, a_task_file, imported, a_start, its_tokenizer])
def test_an_edit_in_place_is_named_with_both_hashes_and_begins_a_new_generation(
    source: Callable[[Path], Any], home: Path
) -> None:
    overrides, values, file, name = source(home)
    plan, stage = planned(overrides, **values), STAGE.get(name, "rl-1")
    first, said = began(plan, stage)
    assert said == []
    assert began(plan, stage) == (first, []), "nothing was edited"
    before = plan.external()[stage][name]
    content = file.read_bytes()
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    file.write_bytes(edited(content))
    os.utime(file, ns=times)  # the same size and time
    assert planned(overrides, **values).run_id == plan.run_id == first, "ids stay"
    assert plan.goes_on_as == f"{first}.2"
    after = plan.external()[stage][name]
    second, said = began(plan, stage)
    assert second == f"{first}.2"
    (sentence,) = said
    assert f"{name} was {before[:12]} and is {after[:12]}" in sentence
    assert sentence.startswith(f"Run {first} ")
    assert sentence.endswith(f"Run {second} begins.")
    assert find(second).info.because == sentence.removesuffix(f" Run {second} begins.")
    assert began(plan, stage) == (second, [])
    file.write_bytes(content)
    assert began(plan, stage)[0] == f"{first}.3"


def test_only_the_stages_that_read_it_matter(home: Path) -> None:
    overrides, _, file, _ = a_task_file(home)
    plan = planned(overrides)
    run, _ = began(plan, "sft")
    file.write_bytes(edited(file.read_bytes()))
    assert began(plan, "sft") == (run, [])
    assert plan.external()["sft"] == {}


def test_a_run_of_an_earlier_version_records_at_its_first_continuation_and_says_so(home: Path) -> None:
    overrides, _, file, name = a_data_file(home)
    plan = planned(overrides)
    run, _ = began(plan, "distill")
    job = find(run).stage("distill") / "job.json"
    write_json(job, {key: value for key, value in (read_json(job) or {}).items() if key != "external"})
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    again, said = began(plan)
    assert again == run
    assert len(said) == 1
    assert said[0].startswith(f"Run {run} began before the content of what it reads was recorded.")
    assert f"{name} {digest[:12]}" in said[0]
    assert (read_json(job) or {})["external"] == {name: digest}
    assert began(plan) == (run, []), "once"
    chats(file, "three")
    assert began(plan)[0] == f"{run}.2"


def test_a_model_that_is_fetched_again_on_another_day_is_the_same_content(home: Path) -> None:
    folder = checkpoint(home / "start")
    write_json(folder / "model.json", {"title": "Small", "fetched": "2026-01-01"})
    plan = planned(init_from=str(folder))
    run, _ = began(plan, "sft")
    write_json(folder / "model.json", {"title": "Small", "fetched": "2026-02-02"})
    assert began(plan, "sft") == (run, [])
    job = find(run).stage("sft") / "job.json"
    digest = plan.external()["sft"]["init_from"]
    write_json(job, {**(read_json(job) or {}), "external": {"init_from": path_hash(folder)}})
    assert began(plan) == (run, []), "an earlier version hashed the record too"
    assert (read_json(job) or {})["external"] == {"init_from": digest}
    write_json(folder / "model.json", {"title": "Small", "fetched": "2026-03-03"})
    assert began(plan) == (run, [])
    (folder / "model.safetensors").write_bytes(b"Weights")
    assert began(plan)[0] == f"{run}.2"


def test_a_file_that_was_away_for_a_while_is_still_compared_with_what_was_read(home: Path) -> None:
    overrides, _, file, _ = a_task_file(home)
    plan = planned(overrides)
    run, _ = began(plan, "rl-1")
    file.rename(home / "away")
    assert began(plan, "rl-1") == (run, []), "nothing to compare with"
    (home / "away").rename(file)
    assert began(plan, "rl-1") == (run, [])
    file.write_bytes(edited(file.read_bytes()))
    assert began(plan, "rl-1")[0] == f"{run}.2"


def test_a_retry_of_a_flow_run_continues_what_it_began_but_not_after_an_edit(home: Path) -> None:
    overrides, _, file, _ = a_data_file(home)
    plan = planned(overrides, fresh=True)

    def retried() -> str:
        with plan.begin("flow", say=lambda *words: None) as run:
            plan.job(run, "distill").write()
            return run.id

    assert retried() == retried() == plan.run_id
    chats(file, "three")
    assert retried() == f"{plan.run_id}.2"
    assert retried() == f"{plan.run_id}.2"


def test_the_new_content_is_what_the_new_generation_reads_and_the_old_one_stays(home: Path) -> None:
    file = home / "chats.jsonl"
    plan = planned({"cold_start.data": chats(file, "one", "two")})

    def distilled() -> tuple[str, bool]:
        with plan.begin(say=lambda *words: None) as run:
            job = plan.job(run, "distill")
            reused = job.finished() is not None
            if not reused:
                work(job)
            job.write()
            return (job.folder / "chats.jsonl").read_text(), reused

    old, _ = distilled()
    assert "two" in old
    assert distilled() == (old, True)
    chats(file, "one", "six")
    new, reused = distilled()
    assert ("six" in new, reused) == (True, False)
    assert distilled() == (new, True)
    assert (find(plan.run_id).stage("distill") / "chats.jsonl").read_text() == old


def test_an_edit_while_the_run_is_at_work_is_named_before_the_next_stage(home: Path) -> None:
    overrides, _, file, _ = a_data_file(home)
    plan, said, share = planned(overrides), list[str](), Share((), 1, lambda: False)

    def perform(job: StageJob, share: Share | None, workers: Workers) -> Result:
        work(job)
        job.write()
        result = job.result()
        assert result is not None
        return result

    with plan.begin() as run, Workers() as workers:
        stages = StageSequence(
            plan, run, lambda kind: None, workers, perform, lambda text, *words: said.append(text % words), lambda: None
        )
        stages.do("distill", DistillResult, share=share)
        assert said == []
        chats(file, "three")
        stages.do("distill", DistillResult, share=share)
    assert len(said) == 1
    assert "cold_start.data was " in said[0]
    assert said[0].endswith("It changed while the run was at work: the next start begins a new generation.")
    assert plan.goes_on_as == f"{plan.run_id}.2"


def test_make_run_names_it_before_it_starts_a_server(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overrides, _, file, _ = a_data_file(home)
    run, _ = began(planned(overrides), "distill")
    request = {"profile": "laptop-quick", "overrides": SMALL | overrides}
    assert check("train/equalized-r2g", request) is None
    assert "read other content" not in capsys.readouterr().out
    chats(file, "three")
    assert check("train/equalized-r2g", request) is None
    assert f"Run {run} read other content than there is now: cold_start.data was " in capsys.readouterr().out


def test_a_checkpoint_from_elsewhere_is_evaluated_anew_after_an_edit_of_any_of_its_files(home: Path) -> None:
    folder = checkpoint(home / "theirs")
    (folder / "tokenizer.json").write_text("{}")
    request = EvaluateRequest(checkpoint=str(folder), gyms=["errand"])

    def evaluated() -> tuple[str, list[str]]:
        return began(plan_evaluation(request).plan, "evaluate")

    run, _ = evaluated()
    assert evaluated() == (run, [])
    (folder / "tokenizer.json").write_text("[]")
    again, said = evaluated()
    assert again == f"{run}.2"
    assert "checkpoint was" in said[0]


COIN = ROOT / "examples" / "coin_gym"
RULES = COIN.with_name("rules")
CURRICULUM = """from typing import Literal

from curricula.task_curriculum import TaskCurriculum


class Any(TaskCurriculum):
    kind: Literal["any"] = "any"

    def priorities(self, alpha_T, beta_T, uniform_T):
        return uniform_T
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Copies of the example packages, installed, in one folder."""
    site = tmp_path / "site"
    for project in (COIN, RULES):
        offer(site, project)
        for package in project.glob("userrl_*"):
            shutil.copytree(package, site / package.name)
    (site / "userrl_rules" / "curriculum.py").write_text(CURRICULUM)
    with (site / "userrl_rules-1.0.dist-info" / "entry_points.txt").open("a") as points:
        points.write("[userrl.curricula]\nany = userrl_rules.curriculum:Any\n")
    with in_this_process(monkeypatch, site):
        yield site


TOSSED = {
    "stages": [{"steps": 4, "horizon": 4, "mix": {"coin": 1}}],
    "stages.0.horizon": None,
    "schedule": {"kind": "at_once", "short": 2, "after": 2, "long": 4},
    "credit.shaping": "last_turn",
    "curriculum": {"kind": "any"},
    "evaluate.gyms": ["coin"],
    "demonstrations.horizon": 2,
}


@pytest.mark.parametrize(
    ("file", "stages", "name"),
    [
        ("userrl_coin/gym.py", {"distill", "rl-1", "rl-2", "evaluate"}, "gym coin"),
        ("userrl_coin/extra.json", {"distill", "rl-1", "rl-2", "evaluate"}, "gym coin"),
        ("userrl_rules/credit.py", {"rl-1", "rl-2"}, "credit rule last_turn"),
        ("userrl_rules/schedule.py", {"rl-1", "rl-2"}, "schedule at_once"),
        ("userrl_rules/curriculum.py", {"rl-1", "rl-2"}, "curriculum any"),
    ],
)
def test_edited_code_of_a_package_is_named_by_each_stage_that_runs_it(
    packages: Path, file: str, stages: set[str], name: str
) -> None:
    plan = planned({**TOSSED})
    assert {stage for stage, hashes in plan.external().items() if name in hashes} == stages
    stage = "distill" if "distill" in stages else "rl-1"
    run, _ = began(plan, "sft", stage)
    (packages / "userrl_coin" / "__pycache__").mkdir(exist_ok=True)
    (packages / "userrl_coin" / "__pycache__" / "gym.cpython-311.pyc").write_bytes(b"compiled")
    assert began(plan, stage) == (run, []), "what Python compiles is no edit"
    with (packages / file).open("a") as opened:
        opened.write("# edited\n")
    again, said = began(plan, stage)
    assert again == f"{run}.2"
    assert f"{name} was " in said[0]


def external(gym: str, **setup: Any) -> dict[str, str]:
    """The hashes of an RL stage on one gym with this setup."""
    folder = {"data_folder": setup.pop("data_folder")} if "data_folder" in setup else {}
    mix = {"stages": [{"steps": 2, "horizon": 8, "mix": {gym: 1}}], f"gyms.{gym}": setup, **folder}
    return external_hashes("rl", "rl-1", [load("equalized-r2g", "laptop", mix, check=False)], {})


def test_of_a_data_folder_only_the_parts_that_the_gym_reads_count(home: Path) -> None:
    for part in ("userrl", "tau-bench", "agentgym"):
        (home / "data" / part / "deep").mkdir(parents=True)
        (home / "data" / part / "deep" / "tasks.json").write_text("[]")
    setup = {"published": "published", "data_folder": str(home / "data")}
    of_tau, of_function = external("tau", **setup), external("function", **setup)
    assert (set(of_tau), set(of_function)) == ({"data_folder/userrl", "data_folder/tau-bench"}, {"data_folder/userrl"})
    (home / "data" / "tau-bench" / "deep" / "tasks.json").write_text("{}")
    (home / "data" / "another").mkdir()
    assert external("function", **setup) == of_function
    changed = external("tau", **setup)
    assert {name for name, digest in changed.items() if digest != of_tau[name]} == {"data_folder/tau-bench"}


def test_a_task_file_counts_with_the_databases_that_it_names(home: Path) -> None:
    database = home / "retail"
    database.mkdir()
    (database / "users.json").write_text("{}")
    tasks, own = home / "tasks.jsonl", home / "other"
    write_tasks(tasks, [Task("tau", "t", "train", {"domain": "retail", "database": str(database)})])
    own.mkdir()
    (own / "users.json").write_text("{}")
    setup = {"published": str(tasks), "config": {"database": str(own)}}
    before = external("tau", **setup)
    assert set(before) == {"gyms.tau.published", "gyms.tau.config.database"}
    (database / "users.json").write_text("[]")
    between = external("tau", **setup)
    assert {name for name in before if between[name] != before[name]} == {"gyms.tau.published"}
    (own / "users.json").write_text("[]")
    assert {name for name in before if external("tau", **setup)[name] != between[name]} == {"gyms.tau.config.database"}


def test_a_file_that_a_gym_s_options_name_counts_and_other_texts_do_not(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "words.txt").write_text("a")
    (home / "tiny").write_text("a tier, not a file")
    monkeypatch.chdir(home)
    options = {
        "files": [{"words": "words.txt"}],
        "tier": "tiny",
        "prompt": "Say a. Then b/c." * 400,
        "odd": "a\0.b",
        "folder": "./",
        "above": str(home.parent),
        "model": "./model",
    }
    before = external("errand", tasks=options)
    assert set(before) == {"gyms.errand.tasks.files.0.words"}
    (home / "words.txt").write_text("b")
    between = external("errand", tasks=options)
    assert between != before
    checkpoint(home / "model")
    after = external("errand", tasks=options)
    assert after == between | {"gyms.errand.tasks.model": path_hash(home / "model")}


RELEASED = {"kind": "openai", "options": {"model": "m", "prompts": "released"}}


TRAVEL = {"data_folder/userrl", "data_folder/userbench"}
LOCAL = {"kind": "openai", "options": {"model": "./words"}}
JUDGE = {"model": "./words", "prompts": "released"}


@pytest.mark.parametrize(
    ("stage", "changes", "names"),
    [
        ("rl-1", {"gyms.travel.user": RELEASED}, TRAVEL),
        ("rl-1", {"gyms.tau.user": RELEASED}, {"data_folder/tau-bench"}),
        ("rl-1", {"gyms.function.user": RELEASED}, set()),
        ("evaluate", {"gyms.travel.user": RELEASED, "evaluate.user": "rule"}, set()),
        ("evaluate", {"evaluate.user": RELEASED}, {*TRAVEL, "data_folder/tau-bench"}),
        ("distill", {"gyms.travel.user": RELEASED, "demonstrations.user": "rule"}, set()),
        ("explore-1", {"gyms.travel.user": RELEASED, "demonstrations.user": "rule"}, TRAVEL),
        ("distill", {"demonstrations.user": LOCAL}, {"demonstrations.user.options.model"}),
        ("rl-1", {"judge": JUDGE}, {"judge.prompts", "judge.model"}),
        ("evaluate", {"judge": JUDGE}, set()),
        ("rl-1", {"hardware.user_model": "./words"}, set()),
        ("rl-1", {"hardware.user_model": "./words", "hardware.user_command": "serve"}, {"hardware.user_model"}),
    ],
)
def test_texts_and_models_of_users_and_judges_count_for_the_stages_that_ask_them(
    home: Path, monkeypatch: pytest.MonkeyPatch, stage: str, changes: dict[str, Any], names: set[str]
) -> None:
    for file in ("userrl/a", "userbench/a", "tau-bench/a", "tarl/judge.md", "words"):
        (home / file).parent.mkdir(exist_ok=True)
        (home / file).write_text("one")
    monkeypatch.chdir(home)
    gyms = {"travel": 1, "tau": 1, "function": 1}
    common = {"stages": [{"steps": 2, "horizon": 8, "mix": gyms}], "evaluate.gyms": [*gyms], "data_folder": str(home)}
    recipe = load("equalized-r2g", "laptop", common | changes, check=False)
    assert set(external_hashes(kind_of(stage), stage, [recipe], {})) == names


def test_a_hub_model_is_known_by_its_commit_in_the_cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = home / "hub" / "models--them--small"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(home / "hub"))
    assert external_hashes("sft", "sft", [], {"model.path": "them/small"}) == {}, "not downloaded yet"
    assert external_hashes("sft", "sft", [], {"model.path": "./away"}) == {}
    (cache / "refs").mkdir(parents=True)
    for commit in ("a" * 40, "b" * 40):
        checkpoint(cache / "snapshots" / commit)
        (cache / "refs" / "main").write_text(commit)
        assert external_hashes("sft", "sft", [], {"model.path": "them/small"}) == {"model.path": commit}


def test_our_own_code_is_not_hashed() -> None:
    hashed = planned().external()
    assert hashed == {stage: {} for stage in hashed}, "an update continues earlier runs"
    assert external_hashes("rl", "rl-1", [load("scaling-inter-sciworld", "laptop", check=False)], {}) == {}


def test_an_unreadable_file_is_one_sentence(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = checkpoint(home / "start")
    plan = planned(init_from=str(folder))

    def refuse(path: Path) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("userrl.machine.hashes.file_hash", refuse)
    with raises("file.unreadable", "Permission denied", str(folder)):
        plan.external()


def test_a_folder_s_hash_is_of_names_and_contents_and_not_of_its_place(home: Path) -> None:
    first, second = checkpoint(home / "a"), checkpoint(home / "b" / "c")
    assert path_hash(first) == path_hash(second)
    for hidden in (".git/HEAD", "__pycache__/x.pyc", ".x.swp"):
        (second / hidden).parent.mkdir(exist_ok=True)
        (second / hidden).write_text("x")
    os.mkfifo(second / "pipe")
    (second / "around").symlink_to(second, target_is_directory=True)
    assert {file.name for file in folder_files(second)} == {"config.json", "model.safetensors"}
    assert path_hash(first) == path_hash(second)
    (second / "config.json").rename(second / "config2.json")
    assert path_hash(first) != path_hash(second)
    assert path_hash(first / "config.json") == hashlib.sha256(b"{}").hexdigest()
