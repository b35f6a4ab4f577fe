"""One step of stock verl with each of the other algorithms: it trains, and what it did is in the warehouse.

`make test-slow` runs ppo, the one with a critic; `test_verl_flow.py` trains two stages with rloo and an entropy mask.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.userrl_core.training.verl.rig import (
    CPU,
    REPLIES,
    TwoStages,
    cluster,
    make_job,
    make_model,
    on_cpu,
    warehouse_sink,
)
from userrl_core.rewards import CreditConfig
from userrl_core.training.config import AlgorithmConfig
from userrl_core.training.verl.rl import run_rl
from warehouse import open_warehouse
from warehouse.write.turn_log import TurnLog

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

CRITIC = (
    "critic.model.use_remove_padding=False",
    "critic.model.enable_gradient_checkpointing=False",
    "critic.use_dynamic_bsz=False",
    "critic.ppo_micro_batch_size_per_gpu=8",
)


@pytest.mark.parametrize(
    "name", ["ppo", *(pytest.param(name, marks=pytest.mark.full) for name in ("rloo", "reinforce_pp", "remax"))]
)
def test_a_step_of_another_algorithm_moves_the_model_and_is_in_the_warehouse(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cpu(monkeypatch)
    chats = [
        {"messages": [{"role": "user", "content": "A trip?"}, {"role": "assistant", "content": text}]}
        for text in REPLIES
    ]
    model = make_model(tmp_path / "model", chats)
    algorithm = AlgorithmConfig(
        name=name,  # type: ignore[arg-type]
        assignment="group",  # of PPO alone: agent loops wait for the rest of their group
        batch=2,
        group=4,
        minibatches=1,
        lr=1e-3,
        critic_lr=1e-3,
        max_prompt_tokens=128,
        max_tokens=48,
        max_response_tokens=384,
        entropy_mask=0.2 if name == "rloo" else None,  # verl's one trainer of ours, beside one of its stock runs
    )
    overrides = (*CPU, *(CRITIC if name == "ppo" else ()))
    with TurnLog.open(tmp_path / "warehouse", name) as log:
        job = make_job(
            tmp_path / "rl-1",
            model,
            algorithm=algorithm,
            credit=CreditConfig(shaping="equalized", score="sum"),
            last_step=1,
            total_steps=1,
            validate_every=1,
            cluster=cluster().model_copy(update={"overrides": overrides}),
            sink=warehouse_sink(tmp_path / "warehouse", name),
        )
        curriculum = TwoStages()
        result = run_rl(job, curriculum, log)
    assert result.step == 1
    assert {"groups/zero_variance/share", "rollout/waits/mean", "rollout/reply_tokens/mean"} <= result.metrics.keys()
    assert len(curriculum.seen) == 1
    if name == "rloo":
        share, silent = (result.metrics[key] for key in ("policy/entropy_mask/share", "groups/zero_variance/share"))
        # No group is compared when both groups have equal returns. verl's entropies are bfloat16, so many are equal.
        assert share == 0.0 if silent == 1.0 else 0.2 <= share < 1.0
    assert ("policy/entropy_mask/share" in result.metrics) == (name == "rloo")
    with open_warehouse(tmp_path / "warehouse") as warehouse:
        played = warehouse.sql("SELECT count(*), count(DISTINCT attempt) FROM trajectories WHERE phase = 'train'")
        assert played.fetchall() == [(8, 4)]
        greedy = warehouse.sql("SELECT count(*), count(DISTINCT task_id) FROM trajectories WHERE phase = 'baseline'")
        assert greedy.fetchall() == [(2, 2) if name == "remax" else (0, 0)]
        returned = warehouse.sql(
            "SELECT avg(return_sum) FROM trajectories WHERE phase = 'train' AND admitted"
        ).fetchall()
        logged = warehouse.sql("SELECT count(advantage) FROM turns WHERE phase = 'train'").fetchall()[0][0]
    assert result.metrics["rollout/return_sum/mean"] == pytest.approx(returned[0][0])
    assert (logged > 0) == (name != "ppo"), "verl keeps a critic's advantages to itself"
