"""ReMax on verl: the agent loops play the greedy conversations, and the advantages are the local trainer's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.makers import raises
from tests.userrl_core.training.verl.no_ray import running_actor
from tests.userrl_core.training.verl.rig import warehouse_sink
from tests.userrl_core.training.verl.test_verl_agent_loop import GOOD, Engine, call, play, tokenizer
from tests.userrl_core.training.verl.test_verl_estimator import config, per_turn
from tests.userrl_core.training.verl.test_verl_per_trajectory import TASK, Rows, rows, tensors
from userrl_core.records import Trajectory, Turn
from userrl_core.rewards import CreditConfig
from userrl_core.training.local.algorithms.remax import remax
from userrl_core.training.local.batch import Advantages, Batch
from userrl_core.training.local.samples import Sample
from userrl_core.training.verl.per_trajectory import estimate_remax
from warehouse import open_warehouse

__all__ = ["tokenizer"]


class GreedyEngine(Engine):
    """Says other replies where nothing is left to chance."""

    def __init__(self, tokenizer: Any, sampled: list[str], greedy: list[str]) -> None:
        super().__init__(tokenizer, sampled)
        self.greedy = Engine(tokenizer, greedy)

    async def generate(self, *, sampling_params: dict[str, Any], **asked: Any) -> Any:
        if sampling_params["temperature"] == 0.0:
            assert (sampling_params["top_p"], sampling_params["top_k"]) == (1.0, -1)
            return await self.greedy.generate(sampling_params=sampling_params, **asked)
        return await super().generate(sampling_params=sampling_params, **asked)


def local_remax(batch: Rows, baselines: dict[str, float | None], credit: CreditConfig) -> Advantages:
    trajectories, samples = [], []
    for turns, _ in batch:
        trajectory, sample = Trajectory(TASK, 0, 6, 0), Sample()
        for number, (reward, count) in enumerate(turns or [(None, 1)]):
            trajectory.turns.append(Turn(number + 1, "action", "x", "", "", "", reward))
            sample.append_reply(number, [1] * count, [0.0] * count, [0.0] * count)
        trajectory.admitted = turns is not None
        trajectories.append(trajectory)
        samples.append(sample)
    known = [baselines[uid] for _, uid in batch]
    made = Batch(
        trajectories,
        samples,
        ["ab".index(uid) for _, uid in batch],
        [float("nan") if score is None else score for score in known],
    )
    return remax(made, made.credits(credit), credit)


@settings(max_examples=60, deadline=None)
@given(rows, st.sampled_from(["sum", "mean", "r2g"]), st.lists(st.none() | st.floats(0, 2), min_size=2, max_size=2))
def test_verl_and_the_local_trainer_agree_on_any_batch(batch: Rows, score: Any, greedy: list[float | None]) -> None:
    baselines = dict(zip("ab", greedy, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        actor = running_actor(patch)
        for uid, baseline in baselines.items():
            actor.baseline(uid, baseline)
        rewards, mask, uid_N = tensors(batch)
        found, returns = estimate_remax(rewards, mask, config(score=score), uid_N)
    local = local_remax(batch, baselines, CreditConfig(score=score, filter="keep"))
    for (turns, _), mine, theirs in zip(batch, per_turn(found, mask), local.turns, strict=True):
        if turns is not None:
            assert mine == pytest.approx(theirs.tolist(), rel=1e-5, abs=2e-6)
    assert not found[mask == 0].any()
    assert torch.equal(found, returns)


def test_the_advantage_is_verls_own_where_the_reward_lies_on_the_last_token(monkeypatch: pytest.MonkeyPatch) -> None:
    verl = pytest.importorskip("verl.trainer.ppo.core_algos")
    actor = running_actor(monkeypatch)
    actor.baseline("a", 0.25)
    rewards, mask, uid = tensors([([(1.0, 3)], "a"), ([(0.0, 2)], "a"), ([(0.0, 2), (0.5, 1)], "a")])
    found, _ = estimate_remax(rewards, mask, config(score="sum"), uid)
    theirs, _ = verl.compute_remax_outcome_advantage(rewards, torch.full((3,), 0.25), mask)
    assert torch.equal(found[mask == 1], theirs[mask == 1])
    assert per_turn(found, mask) == [[0.75], [-0.25], [0.25, 0.25]]


def test_outside_of_a_stage_the_estimator_says_what_is_missing() -> None:
    rewards, mask, uid = tensors([([(1.0, 3)], "a")])
    with raises("training.bad_call"):
        estimate_remax(rewards, mask, config(), uid)


async def test_the_first_of_a_group_plays_the_greedy_conversation_and_leaves_its_score(
    tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor = running_actor(monkeypatch)
    engine = GreedyEngine(tokenizer, GOOD, [call("action", "price?"), call("answer", "H6")])
    spec = warehouse_sink(tmp_path / "warehouse", "remax")
    more: dict[str, Any] = {"algorithm": {"name": "remax"}, "credit": CreditConfig(score="sum"), "sink": spec}
    played = await play(tmp_path, tokenizer, [], engine=engine, session=0, **more)
    _, alone = await play(tmp_path, tokenizer, GOOD, session=1, **more), actor.baselines(["u"])
    assert alone == {"u": pytest.approx(0.9)}
    assert played.num_turns == 8
    spec.open().flush()
    with open_warehouse(tmp_path / "warehouse") as warehouse:
        by_phase = "SELECT phase, count(*), avg(return_sum) FROM trajectories GROUP BY phase ORDER BY phase"
        assert warehouse.sql(by_phase).fetchall() == [("baseline", 1, 0.9), ("train", 2, 1.0)]
        (curve,) = warehouse.query("learning_curve", run="remax").pl().to_dicts()
        assert (curve["phase"], curve["trajectories"], curve["return_sum"]) == ("train", 2, 1.0)
    np.testing.assert_allclose(sum(played.turn_rewards), 1.0)


async def test_validation_plays_no_greedy_conversation_beside(
    tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor = running_actor(monkeypatch)
    await play(tmp_path, tokenizer, GOOD, phase="validate", session=0, algorithm={"name": "remax"})
    assert actor.baselines(["u"]) == {}
