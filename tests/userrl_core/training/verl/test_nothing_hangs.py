"""A trainer that waits for ever is ended with a sentence: here the child is a real process that speaks vLLM's last words."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.makers import raises
from tests.userrl_core.training.verl.rig import TwoStages, cluster, make_job
from userrl_core import processes
from userrl_core.errors import TrainingError
from userrl_core.training.verl.job import OUTAGES
from userrl_core.training.verl.machine.engine_watch import EngineWatch
from userrl_core.training.verl.rl import RAY_LATE, RAY_STARTS, run_rl

FATAL = "ERROR 04-25 03:33:09 [core.py:1108] EngineCore encountered a fatal error."
LAST_WORDS = [
    "(vLLMHttpServer pid=4711) \x1b[0;36m(EngineCore pid=1639)\x1b[0;0m " + FATAL,
    "(EngineCore_DP0 pid=2827) ERROR 02-22 06:35:27 [core.py:946] EngineCore failed to start.",
    "WARNING 11-23 03:33:09 [core_client.py:702] [shutdown] MPClient: engine core exited unexpectedly; starting cleanup",
    "ERROR 01-16 17:16:49 [core_client.py:605] Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.",
    "ERROR 05-12 01:48:42 [multiproc_executor.py:231] Worker proc VllmWorker-0 died unexpectedly, shutting down executor.",
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.",
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task. class_name: vLLMHttpServer",
]
HARMLESS = [
    "(EngineCore pid=1639) INFO 04-25 03:33:08 [default_loader.py:384] Loading weights took 74.58 seconds",
    "(raylet) It looks like you're creating a detached actor in an anonymous namespace.",
]


class Log:
    """A sink that keeps events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def tasks(self, tasks: Any) -> None: ...

    def metrics(self, *arguments: Any, **keywords: Any) -> None: ...

    def flush(self) -> None: ...

    def event(self, kind: str, **fields: Any) -> None:
        self.events.append((kind, fields))


def trainer(folder: Path, *says: str, after: str = "exec sleep 600") -> str:
    """An interpreter in whose place a process says these lines and falls silent."""
    path = folder / "python"
    path.write_text("\n".join(["#!/bin/sh", *(f"printf '%s\\n' {shlex.quote(line)}" for line in says), after]) + "\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder that may be a model's: no process of these tests loads it."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


@pytest.mark.parametrize("last", LAST_WORDS)
def test_an_engine_that_says_its_last_words_and_falls_silent_is_seen(tmp_path: Path, last: str) -> None:
    (tmp_path / "output.txt").write_text(f"{FATAL}\n")  # an earlier start's
    watch = EngineWatch(tmp_path / "output.txt", grace=0.1)
    seen: list[str] = []

    def tick() -> None:
        if (line := watch.dead()) is not None:
            seen.append(line)
            raise TrainingError("process.died", line)

    with raises("process.died"):
        processes.run([trainer(tmp_path, *HARMLESS, last)], tmp_path, name="verl", on_tick=tick, poll=0.05)
    assert "\x1b" not in seen[0]
    assert not processes.living(tmp_path)


def test_an_engine_that_works_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "output.txt").write_text("")
    watch = EngineWatch(tmp_path / "output.txt", grace=0.0)
    (tmp_path / "output.txt").write_text("\n".join(HARMLESS) + "\nEngineCore encountered a fatal err")  # torn
    assert watch.dead() is None


def test_the_first_step_has_a_limit_of_its_own_and_a_missing_user_is_in_the_log(tmp_path: Path, model: Path) -> None:
    folder = tmp_path / "rl-1" / "verl"
    line = '{"model": "m", "address": "http://host:8000/v1"}'
    python = trainer(
        tmp_path, "loading", after=f"echo '{line}' | tee -a {folder}/{OUTAGES} >> {folder}/{OUTAGES}; sleep 600"
    )
    job = make_job(tmp_path / "rl-1", model, cluster=cluster(python=python), first_stall=1.0)
    log: Any = Log()
    with raises("process.stalled"):
        run_rl(job, TwoStages(), log)
    assert log.events == [("user_down", {"stage": "rl-1", "model": "m", "address": "http://host:8000/v1"})]
    assert not processes.living(folder)


def test_a_ray_that_is_too_slow_to_start_is_started_again(tmp_path: Path, model: Path) -> None:
    late = f"Exception: {RAY_LATE}. This could happen because some of the raylet failed to startup"
    starts = tmp_path / "starts"
    python = trainer(tmp_path, late, after=f"echo started >> {starts}; exit 1")
    with raises("process.died"):
        run_rl(make_job(tmp_path / "rl-1", model, cluster=cluster(python=python)), TwoStages(), Log())  # type: ignore[arg-type]
    assert len(starts.read_text().splitlines()) == RAY_STARTS
    assert not processes.living(tmp_path / "rl-1" / "verl")


def test_a_trainer_that_dies_of_something_else_is_started_once(tmp_path: Path, model: Path) -> None:
    starts = tmp_path / "starts"
    python = trainer(tmp_path, "Exception: no such thing", after=f"echo started >> {starts}; exit 1")
    with raises("process.died"):
        run_rl(make_job(tmp_path / "rl-1", model, cluster=cluster(python=python)), TwoStages(), Log())  # type: ignore[arg-type]
    assert starts.read_text() == "started\n"


@pytest.mark.slow
def test_a_stage_whose_engine_dies_in_silence_ends_with_its_last_words(tmp_path: Path, model: Path) -> None:
    python = trainer(tmp_path, *HARMLESS, LAST_WORDS[0])
    job = make_job(tmp_path / "rl-1", model, cluster=cluster(python=python))
    with pytest.raises(
        TrainingError, match=r"The rollout engine died while verl waited for it: \(vLLMHttpServer .* fatal"
    ):
        run_rl(job, TwoStages(), Log())  # type: ignore[arg-type]
    assert not processes.living(tmp_path / "rl-1" / "verl")
