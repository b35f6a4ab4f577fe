"""On verl a horizon may depend on the steps of the same stage, through a kill as well: stock main_ppo on a CPU."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from curricula.gate import Gate
from curricula.schedule import Adaptive
from tests.userrl_core.training.verl.rig import TwoStages, cluster, make_job, make_model, on_cpu, warehouse_sink
from tests.userrl_core.training.verl.test_verl_stages import RUN, in_log, kill_one
from userrl_core.distill import to_chat
from userrl_core.errors import TrainingError
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.rollout import run_episodes
from userrl_core.training.verl.rl import run_rl
from warehouse import open_warehouse

pytestmark = [pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(1800)]


class Watching(TwoStages):
    """Horizon 2 until two steps are recorded that it may have seen to their ends, then 4."""

    schedule = Adaptive(horizons=(2, 4), gate=Gate(length=0.01, window=2, at_most=3))

    def __init__(self) -> None:
        super().__init__()
        self.history: list[dict[str, float]] = []

    def horizon(self, step: int, history: Any, group: int | None = None) -> int:
        return self.schedule.horizon(step, self.history)

    def record(self, step: int, stats: Mapping[str, float], outcomes: Any = ()) -> None:
        length = stats["rollout/turns/mean"] / stats["curriculum/horizon/value"]
        self.history.append({"step": step, "length": length, "signal": stats["groups/mixed/share"]})

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at, "seen": self.history}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.at, self.history = int(state["at"]), [dict(entry) for entry in state["seen"]]


def test_a_gate_opens_within_a_stage_on_verl_and_a_killed_stage_goes_on_at_the_same_horizons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked: str
) -> None:
    on_cpu(monkeypatch)
    shown = asyncio.run(run_episodes(TwoStages().pool[:40], ScriptedPolicy(1.0), horizon=6, prompt_style="brief"))
    model = make_model(tmp_path / "model", [to_chat(t) for t in shown])
    told: list[tuple[int, float]] = []

    def stage(kill_at: int | None) -> Any:
        job = make_job(
            tmp_path / "rl-1",
            model,
            last_step=4,
            validation=[],
            sink=warehouse_sink(tmp_path / "warehouse", RUN),
            cluster=cluster(python=forked),
        )

        def progress(step: int, total: int, numbers: Mapping[str, float]) -> None:
            told.append((step, numbers["curriculum/horizon/value"]))
            if step == kill_at:
                kill_one(tmp_path / "rl-1" / "verl", "userrl_core.training.verl.main")

        return in_log(tmp_path, lambda log, _: run_rl(job, Watching(), log, progress))

    with pytest.raises(TrainingError):
        stage(kill_at=3)
    assert stage(kill_at=None).step == 4
    with open_warehouse(tmp_path / "warehouse") as warehouse:
        played = warehouse.sql(
            "SELECT step, horizon, count(*) FROM trajectories WHERE phase = 'train' GROUP BY ALL ORDER BY step"
        ).fetchall()
    assert played == [(1, 2, 8), (2, 2, 8), (3, 4, 8), (4, 4, 8)]
    assert set(told) == {(1, 2.0), (2, 2.0), (3, 4.0), (4, 4.0)}
