"""A stage on several nodes: a node that died is named, a missing node and a shared cluster are refused. No Ray runs here."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.makers import raises
from tests.userrl_core.training.verl.rig import TwoStages, cluster, make_job
from tests.userrl_core.training.verl.test_nothing_hangs import Log, trainer
from userrl_core import processes
from userrl_core.errors import TrainingError
from userrl_core.training.verl.machine.death_watch import DeathWatch
from userrl_core.training.verl.machine.node_watch import NodeWatch, node_died
from userrl_core.training.verl.main import await_queue, check_workers
from userrl_core.training.verl.rl import run_rl

FATAL = "ActorDiedError: The actor died unexpectedly (process 7)"


def node(name: str, *, alive: bool = True) -> dict[str, Any]:
    """A node as Ray lists it."""
    return {"NodeID": name, "Alive": alive, "NodeManagerHostname": name, "NodeManagerAddress": "10.0.0.6"}


def test_a_node_that_died_is_named_and_one_that_came_later_is_not_missed() -> None:
    answers: Iterator[list[dict[str, Any]]] = iter(
        [
            [node("first"), node("second"), node("old", alive=False)],
            [node("first"), node("second"), node("old", alive=False), node("later", alive=False)],
            [node("first"), node("second", alive=False), node("old", alive=False)],
        ]
    )
    watch = NodeWatch(lambda: next(answers))
    assert watch.dead() is None
    assert watch.dead() == "second (10.0.0.6)"


def test_the_driver_of_a_stage_ends_with_the_sentence_when_a_node_dies() -> None:
    code = (
        "import time\n"
        "from userrl_core.training.verl.machine.node_watch import NodeWatch\n"
        "node = {'NodeID': 'b', 'Alive': True, 'NodeManagerHostname': 'b', 'NodeManagerAddress': '10.0.0.6'}\n"
        "watch = NodeWatch(lambda: [node])\n"
        "node['Alive'] = False\n"
        "watch.start()\n"
        "time.sleep(600)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (1, node_died("b (10.0.0.6)").line + "\n")


def several(tmp_path: Path, *, after: str) -> TrainingError:
    """Run a stage on two nodes whose trainer does this after an agent loop has failed. Return its error."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    folder = tmp_path / "rl-1" / "verl"
    python = trainer(tmp_path, after=f"echo '{FATAL}' > {folder}/fatal; {after}")
    on = cluster(python=python, nodes=2, ray_address="127.0.0.1:1")
    with pytest.raises(TrainingError) as raised:
        run_rl(make_job(tmp_path / "rl-1", model, cluster=on), TwoStages(), Log())  # type: ignore[arg-type]
    assert not processes.living(folder)
    return raised.value


def test_a_node_that_died_is_the_stages_error_and_not_a_conversation_that_it_took_along(tmp_path: Path) -> None:
    line = node_died("second (10.0.0.6)").line
    error = several(tmp_path, after=f"sleep 1; printf '%s\\n' \"{line}\"; exit 1")
    assert error.code == "process.died"
    assert str(error) == str(node_died("second (10.0.0.6)"))


def test_a_failed_conversation_is_the_error_if_the_trainer_ends_well_before_the_patience(tmp_path: Path) -> None:
    error = several(tmp_path, after="exit 0")
    assert error.code == "process.failed"
    assert str(error).startswith(f"A rollout worker failed: {FATAL}.")


def test_on_one_node_a_failed_conversation_is_told_at_once(tmp_path: Path) -> None:
    deaths, patient = (DeathWatch(tmp_path, tmp_path / "alive", patience=seconds) for seconds in (0.0, 3600.0))
    (tmp_path / "output.txt").write_text("")
    deaths.check(over=False)
    (tmp_path / "fatal").write_text(FATAL)
    patient.check(over=True)
    for watch, final in ((deaths, False), (patient, True)):
        with raises("process.failed"):
            watch.check(over=True, final=final)


def test_a_cluster_with_too_few_nodes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.setattr(ray, "nodes", lambda: [node("first"), node("second", alive=False)])
    with raises("hardware.no_cluster"):
        check_workers(tmp_path, 2)


@pytest.mark.parametrize(("lives", "refused"), [(0, False), (2, False), (1000, True)])
def test_a_cluster_on_which_another_training_runs_is_refused(
    lives: int, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """lives: seconds that the queue of another training still has."""
    import ray

    clock = [0.0]

    def get_actor(name: str, namespace: str) -> object:
        if clock[0] >= lives:
            raise ValueError(f"no actor {namespace}/{name}")
        return object()

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(ray, "get_actor", get_actor)
    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with raises("hardware.cluster_in_use") if refused else nullcontext():
        await_queue()
