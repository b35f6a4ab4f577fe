"""Ways on from a turn of a stored conversation; and what one that cannot be replayed says."""

import random
from dataclasses import replace

import pytest

from analysis.credit.audit import audit
from analysis.credit.continuations import Prefix, continuations
from analysis.credit.replay import Setting, replay
from tests.analysis.credit.games import Demonstrators
from tests.makers import raises
from userrl_core.gyms.registry import tasks
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import PolicyReply, Task, Trajectory
from userrl_core.rollout import run_episodes


async def played(gym, number, seed=3):
    chosen = random.Random(seed).sample(list(tasks(gym, "train")), number)
    return await run_episodes(chosen, ScriptedPolicy(0.6), horizon=16, seed=seed)


async def test_continuations_keep_the_prefix_and_draw_anew():
    (stored,) = await played("persuade", 1)
    (ways,) = await continuations([Prefix(stored, 2)], Demonstrators(), 6, Setting())
    said = [[(turn.content, turn.observation) for turn in way.turns] for way in ways]
    assert all(one[:2] == [(turn.content, turn.observation) for turn in stored.turns[:2]] for one in said)
    assert len({str(one[2:]) for one in said}) > 1
    (again,) = await continuations([Prefix(stored, 2)], Demonstrators(), 6, Setting())
    assert [[(turn.content, turn.observation) for turn in way.turns] for way in again] == said


async def test_an_edited_reply_takes_the_place_of_what_was_said():
    (stored,) = await played("travel", 1)
    (ways,) = await continuations([Prefix(stored, 1, PolicyReply(text="no call"))], Demonstrators(), 2, Setting())
    assert [(len(way.turns), way.stop_reason, way.turns[1].message) for way in ways] == [(2, "format", "no call")] * 2


async def test_a_conversation_that_a_model_answered_says_why_it_cannot_be_replayed():
    (stored,) = await played("travel", 1)
    with raises("gym.not_replayable"):
        await replay(replace(stored, user="gpt-4o"), 1, Setting())


@pytest.mark.parametrize(("gym", "why"), [("agentgym", "a server elsewhere"), ("sciworld", "its simulator lists")])
async def test_a_gym_that_cannot_be_replayed_says_why(gym, why):
    with raises("gym.not_replayable", f"Gym '{gym}' cannot be replayed: {why}"):
        await replay(Trajectory(Task(gym, "1", "train", {}), 0, 4, 0), 0, Setting())


async def test_a_turn_that_comes_out_otherwise_is_named():
    (stored,) = await played("travel", 1)
    stored.turns[1] = replace(stored.turns[1], reward=0.123)
    with raises("gym.not_replayable", "turn 2 of task travel/"):
        await replay(stored, 2, Setting())


async def test_an_audit_of_a_small_policy_holds_its_identity_and_measures_every_rule():
    chosen = list(tasks("travel", "train", tier="tiny")[:4])
    found = await audit(chosen, Demonstrators(0.5), Setting(), horizon=4, n=4, k=2)
    assert found.tasks == 4
    assert found.trajectories == 16
    assert found.identity < 1e-9
    assert set(found.reliability) == {"sum", "r2g", "score"}
    names_of = {row.rule.name for row in found.measures["sum"]}
    assert len(names_of) == len(found.measures["sum"]) == 2 * (3 + 3 * 9 + 2)
    for row in found.measures["r2g"]:
        assert -1.0 <= row.cosine.estimate <= 1.0 or row.cosine.estimate != row.cosine.estimate
        assert row.rms >= abs(row.mean)
    equalized = next(row for row in found.measures["sum"] if row.rule.name == "equalized/sum/released token_mean")
    assert equalized.mean == pytest.approx(0.0, abs=1.0)
    centred = [row for row in found.measures["sum"] if row.rule.form == "centred" or row.rule.shaping == "equalized"]
    assert [row.push.group for row in centred] == pytest.approx([0.0] * len(centred), abs=1e-9)
    naive = next(row for row in found.measures["sum"] if row.rule.name == "naive/sum/paper token_mean")
    assert 0.1 < naive.push.group <= naive.push.turn <= 1.0
