"""RLOO and REINFORCE++ on verl: attempts without a score are in no baseline, and every step leaves its numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from tests.userrl_core.training.verl.no_ray import running_actor
from tests.userrl_core.training.verl.rig import make_job, warehouse_sink
from tests.userrl_core.training.verl.test_verl_estimator import config, lay_out, per_turn
from userrl_core.records import RolloutContext, Task, Trajectory, Turn
from userrl_core.rewards import CreditConfig
from userrl_core.training.local.algorithms.rloo import rloo
from userrl_core.training.local.batch import Advantages, Batch
from userrl_core.training.local.samples import Sample
from userrl_core.training.verl.credit_actor import CreditActor, TrajectorySummary
from userrl_core.training.verl.estimator import estimate, signature
from userrl_core.training.verl.job import HorizonFrom, StageFile
from userrl_core.training.verl.metrics import step_metrics
from userrl_core.training.verl.per_trajectory import estimate_reinforce_pp, estimate_rloo
from userrl_core.training.verl.plugin import registered
from warehouse import open_warehouse

TASK = Task("travel", "t", "train", {})
Rows = list[tuple[list[tuple[float, int]] | None, str]]

rows = st.lists(
    st.tuples(
        st.none() | st.lists(st.tuples(st.floats(0, 1, width=32), st.integers(1, 4)), min_size=1, max_size=4),
        st.sampled_from("ab"),
    ),
    min_size=1,
    max_size=8,
)


def tensors(batch: Rows) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    rewards = [None if turns is None else [r for r, _ in turns] for turns, _ in batch]
    tokens = [[] if turns is None else [n for _, n in turns] for turns, _ in batch]
    return *lay_out(rewards, tokens, 32), np.array([uid for _, uid in batch], dtype=object)


def test_an_attempt_without_a_score_does_not_move_the_others_baseline() -> None:
    rewards, mask, uid = tensors([([(1.0, 2)], "a"), ([(0.0, 1)], "a"), ([(0.0, 3)], "a"), (None, "a")])
    found, returns = estimate_rloo(rewards, mask, config(score="sum"), uid)
    assert per_turn(found, mask) == [[1.0], [-0.5], [-0.5], []]
    assert not found[mask == 0].any()
    assert torch.equal(found, returns)


def test_an_attempt_that_is_alone_with_its_score_is_compared_with_nothing() -> None:
    rewards, mask, uid = tensors([([(1.0, 2)], "a"), (None, "a"), ([(1.0, 1)], "b"), ([(1.0, 1)], "b")])
    found, _ = estimate_rloo(rewards, mask, config(score="sum"), uid)
    assert not found.any()


@settings(max_examples=40, deadline=None)
@given(rows, st.sampled_from(["sum", "r2g"]))
def test_leave_one_out_is_the_local_trainers(batch: Rows, score: Any) -> None:
    rewards, mask, uid = tensors(batch)
    found, _ = estimate_rloo(rewards, mask, config(score=score), uid)
    local = local_rloo(batch, CreditConfig(score=score))
    for (turns, _), mine, theirs, trains in zip(batch, per_turn(found, mask), local.turns, local.trains, strict=True):
        if turns is not None:
            assert mine == pytest.approx(theirs.tolist() if trains else [0.0] * len(mine), rel=1e-5, abs=1e-6)


def local_rloo(batch: Rows, settings_: CreditConfig) -> Advantages:
    trajectories, samples = [], []
    for turns, _ in batch:
        trajectory, sample = Trajectory(TASK, 0, 6, 0), Sample()
        for number, (reward, count) in enumerate(turns or [(None, 1)]):
            trajectory.turns.append(Turn(number + 1, "action", "x", "", "", "", reward))
            sample.append_reply(number, [1] * count, [0.0] * count, [0.0] * count)
        trajectory.admitted = turns is not None
        trajectories.append(trajectory)
        samples.append(sample)
    made = Batch(trajectories, samples, ["ab".index(uid) for _, uid in batch])
    return rloo(made, made.credits(settings_), settings_)


def test_rewards_to_go_are_verls_over_the_attempts_that_have_a_score() -> None:
    verl = pytest.importorskip("verl.trainer.ppo.core_algos")
    whole: Rows = [([(0.0, 2), (1.0, 1)], "a"), (None, "a"), ([(0.5, 3)], "b"), (None, "pad1")]
    rewards, mask, uid = tensors(whole)
    settings_ = OmegaConf.create({"gamma": 1.0})
    advantages, returns = estimate_reinforce_pp(rewards, mask, settings_, uid)
    scored = [0, 2]
    expected, to_go = verl.compute_reinforce_plus_plus_outcome_advantage(rewards[scored], mask[scored], settings_)
    assert torch.equal(advantages[scored], expected)
    assert torch.equal(returns[scored], to_go)
    assert not advantages[[1, 3]].any()
    assert per_turn(returns, mask) == [[1.0, 1.0], [], [0.5], []]
    deviation = (3 * (1 - 0.75) ** 2 * 2 / 5) ** 0.5  # six tokens, three of them at 1 and three at 0.5
    assert per_turn(advantages, mask)[2] == pytest.approx([-0.25 / deviation], rel=1e-5)


def test_a_batch_without_any_score_trains_nothing_and_ends_nothing() -> None:
    rewards, mask, uid = tensors([(None, "a"), (None, "b")])
    for function in (estimate_rloo, estimate_reinforce_pp):
        advantages, returns = function(rewards, mask, OmegaConf.create({"gamma": 1.0}), uid)
        assert not advantages.any()
        assert not returns.any()


@pytest.mark.parametrize("function", [estimate, estimate_rloo, estimate_reinforce_pp])
def test_every_estimator_of_ours_empties_the_actor_and_logs_what_verl_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: Any
) -> None:
    actor = running_actor(monkeypatch)
    stage = StageFile(
        job=make_job(tmp_path, tmp_path, validation_horizon=4),
        horizons=(HorizonFrom(step=1, turns=4),),
        folder=tmp_path,
        sink=warehouse_sink(tmp_path / "warehouse", "run"),
    )
    stage.write(tmp_path / "stage.json")
    played: Rows = [([(0.0, 2), (1.0, 1)], "a"), ([(0.5, 3)], "a"), (None, "a")]
    sink = stage.sink.open() if stage.sink is not None else None
    assert sink is not None
    for turns, uid in played:
        trajectory = Trajectory(TASK, 0, 4, 0, RolloutContext("rl-1", 3, "train"), admitted=turns is not None)
        trajectory.traj_id = sink.begin(trajectory)
        for number, (reward, _) in enumerate(turns or [], 1):
            trajectory.turns.append(Turn(number, "action", "x", "", "", "", reward))
            sink.turn(trajectory, trajectory.turns[-1])
        trajectory.stop_reason = "horizon"
        sink.end(trajectory)
        actor.put(uid, attempt_of(trajectory, [n for _, n in turns or []]))
    block = {"gamma": 1.0, "userrl": {"score": "sum", "stage_file": str(tmp_path / "stage.json")}}
    rewards, mask, index = tensors(played)
    advantages, _ = function(rewards, mask, OmegaConf.create(block), index)

    assert actor.take(["a"]) == {"a": []}
    (line,) = [json.loads(text) for text in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert (line["step"], line["admitted"], line["attempts"]) == (3, 2, 3)
    assert line["return_sum"] == 0.75
    assert line["numbers"]["groups/mixed/share"] == 1.0
    assert line["numbers"]["credit/push_group/share"] == pytest.approx(0.0, abs=1e-6)
    sink.flush()
    with open_warehouse(tmp_path / "warehouse") as warehouse:
        logged = warehouse.sql("SELECT traj_id, advantage FROM turns ORDER BY traj_id, turn").fetchall()
    assert [value for _, value in logged] == pytest.approx([a for row in per_turn(advantages, mask) for a in row])
    assert any(value for _, value in logged)


def test_the_mean_return_is_the_raw_one_over_attempts_with_a_score() -> None:
    stats = {"admitted": 1, "attempts": 4, "return_sum": 0.8, "numbers": {}}
    found = step_metrics({"critic/score/mean": 0.1}, stats)
    assert found["rollout/return_sum/mean"] == 0.8
    assert found["verl/critic/score/mean"] == 0.1
    assert "rollout/return_sum/mean" not in step_metrics({"critic/score/mean": 0.1}, {**stats, "return_sum": None})


def test_where_no_estimator_sees_the_step_its_last_attempt_takes_it() -> None:
    actor = CreditActor()
    attempts = [
        attempt_of(Trajectory(TASK, i, 4, 0, RolloutContext("rl-1", step, "train")), [])
        for step in (1, 2)
        for i in (0, 1)
    ]
    assert actor.put("b", attempts[2], 2) is None
    assert actor.put("a", attempts[0], 2) is None
    assert actor.put("c", attempts[1], 2) == {"a": [attempts[0]], "c": [attempts[1]]}
    assert actor.put("b", attempts[3], 2) == {"b": attempts[2:]}
    assert actor.take(["a", "b", "c"]) == {"a": [], "b": [], "c": []}


def test_the_driver_knows_all_estimators() -> None:
    assert registered()["estimator"] is True


def attempt_of(trajectory: Trajectory, tokens: list[int]) -> TrajectorySummary:
    return TrajectorySummary(
        signature=signature([r for r in trajectory.rewards if r is not None], tokens) if trajectory.admitted else (),
        traj_id=trajectory.traj_id,
        step=trajectory.context.step,
        task=trajectory.task.key,
        admitted=trajectory.admitted,
        success=False,
        score=trajectory.score,
        return_sum=trajectory.return_sum,
        turns=len(trajectory.turns),
    )
