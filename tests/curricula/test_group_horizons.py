"""Groups of one step may have different horizons: what is played, what is recorded, and what a resumed run plays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import curricula
from tests.places import ROOT
from tests.userrl_core.training.toys import TINY, RecordingSink, sft_job
from userrl.worker.curriculum import RecipeCurriculum
from userrl_core.training.config import AlgorithmConfig, SftConfig
from userrl_core.training.jobs import RlJob
from userrl_core.training.local.loop import train_rl
from userrl_core.training.local.sft import train_sft

DRAWN = {"kind": "drawn", "horizons": [4, 5, 6]}
PROBES = {"kind": "probes", "horizons": [4, 6], "every": 2, "window": 4}
COUNTED = {
    "kind": "adaptive",
    "horizons": [4, 5, 6],
    "gate": {"length": 0.99, "plateau": 1.0, "unit": "conversations", "window": 6},
}


def recipe_with(schedule: dict[str, Any]) -> curricula.Recipe:
    """Return a recipe on tiny travel."""
    return curricula.load(
        "equalized-r2g",
        profile="laptop",
        overrides={"stages": [{"steps": 6, "mix": {"travel": 1}}], "schedule": schedule, "evaluate.gyms": ["travel"]},
    )


def curriculum(schedule: dict[str, Any], seed: int = 3) -> RecipeCurriculum:
    """Return the curriculum of a run of that recipe."""
    return RecipeCurriculum(recipe_with(schedule), (), seed)


def run(
    folder: Path, start: Path, schedule: dict[str, Any], last: int, kind: type[RecordingSink] = RecordingSink
) -> RecordingSink:
    """Train to step `last`, or continue an earlier call in the same folder."""
    sink = kind()
    algorithm = AlgorithmConfig(group=2, batch=6, minibatches=2, lr=1e-3, max_tokens=24, max_response_tokens=160)
    job = RlJob(
        model=TINY, out_dir=folder, threads=1, init=start, last_step=last, checkpoint_every=1, algorithm=algorithm,
        validation_horizon=4,
    )  # fmt: skip
    train_rl(job, curriculum(schedule), sink)
    return sink


class DeadlySink(RecordingSink):
    """Kills its process in step 3, after the conversations and before the update."""

    def credits(self, traj_id: int, shaped: Any, advantage: Any) -> None:
        if self.ended[-1].context.step == 3:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_sft(sft_job(tmp_path_factory.mktemp("start"), sft=SftConfig(steps=10, lr=5e-3, batch=8))).checkpoint


@pytest.mark.parametrize("schedule", [DRAWN, PROBES, COUNTED], ids=["drawn", "probes", "conversations"])
def test_a_resumed_run_plays_the_horizons_of_an_uninterrupted_one(
    tmp_path: Path, start: Path, schedule: dict[str, Any]
) -> None:
    whole = run(tmp_path / "whole", start, schedule, 4)
    parts = [run(tmp_path / "parts", start, schedule, last) for last in (1, 2, 4)]

    def played(*sinks: RecordingSink) -> list[tuple[int, str, int, int, list[Any]]]:
        return [
            (t.context.step, t.task.key, t.attempt, t.horizon, [turn.token_ids for turn in t.turns])
            for sink in sinks
            for t in sink.ended
        ]

    assert played(*parts) == played(whole)
    files = [
        json.loads((tmp_path / name / "checkpoints" / "step-000004" / "state.json").read_text())["files"]
        for name in ("whole", "parts")
    ]
    assert files[0] == files[1], "weights, optimiser, generators and curriculum"
    assert len({t.horizon for t in whole.ended}) > 1


@pytest.mark.slow
def test_a_run_with_probes_killed_within_a_step_ends_as_the_uninterrupted_one(tmp_path: Path, start: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.curricula.test_group_horizons import PROBES, DeadlySink, run; "
        "run(Path(sys.argv[1]), Path(sys.argv[2]), PROBES, 4, DeadlySink)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "killed"), str(start)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    resumed, whole = run(tmp_path / "killed", start, PROBES, 4), run(tmp_path / "whole", start, PROBES, 4)
    assert {t.context.step for t in resumed.ended} == {3, 4}
    assert [t.horizon for t in resumed.ended] == [t.horizon for t in whole.ended if t.context.step > 2]
    states = [
        json.loads((tmp_path / name / "checkpoints" / "step-000004" / "state.json").read_text())["files"]
        for name in ("whole", "killed")
    ]
    assert states[0] == states[1]


def test_all_conversations_of_a_group_have_its_horizon(tmp_path: Path, start: Path) -> None:
    sink = run(tmp_path, start, PROBES, 1)
    groups = [
        [t.horizon for t in sink.ended if t.task.key == key] for key in dict.fromkeys(t.task.key for t in sink.ended)
    ]
    assert groups == [[6, 6], [4, 4]] * 3
    assert sink.measured[0][2]["curriculum/horizon/value"] == 4.0


def test_only_conversations_at_the_largest_horizon_are_recorded() -> None:
    probes = curriculum(PROBES)
    probes.record(1, {"rollout/success/mean": 0.5}, [[(6, 4), (6, 0)], [(4, 4), (4, 3)], [(6, 4), (6, 3)]])
    assert probes.state_dict()["history"] == [{"step": 1.0, "success": 0.5, "groups": 3, "probes": [4, 0, 4, 3]}]
    assert [probes.horizon(2, (), group) for group in range(4)] == [4, 6, 4, 6]


def test_other_schedules_record_what_they_recorded_before() -> None:
    fixed = curriculum({"kind": "fixed", "turns": 5})
    stats = {"rollout/success/mean": 0.5, "rollout/attempts/count": 8.0, "policy/updates/count": 2.0}
    fixed.record(1, stats, [[(5, 4)], [], []])
    assert fixed.state_dict()["history"] == [{"step": 1.0, "success": 0.5}]
    assert [fixed.horizon(2, (), group) for group in range(3)] == [5, 5, 5]


def test_recipe_and_curriculum_give_the_same_horizon_to_every_group() -> None:
    for schedule in (DRAWN, PROBES, {"kind": "fixed", "turns": 5}):
        steps, recipe = curriculum(schedule), recipe_with(schedule)
        for group in (None, 0, 1, 2):
            assert steps.horizon(4, (), group) == recipe.horizon(4, (), group, seed=3)
        assert recipe.horizon(4) == recipe.schedule.horizon(4)
