"""Stored conversations under other rules and another judge: what was said stays, the score is computed anew."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from analysis.reverify import judges, reverify
from userrl_core.gyms import tasks
from userrl_core.gyms.registry import gym_class
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import Trajectory
from userrl_core.rollout import run_episodes

GYMS = ("travel", "turtle", "function", "tau", "persuade", "intention", "telepathy", "search", "errand", "wish", "math")


async def played(gym: str, skill: float = 0.6, n: int = 6, **config: Any) -> list[Trajectory]:
    chosen = list(tasks(gym, "train")[:n])
    return await run_episodes(chosen, ScriptedPolicy(skill), horizon=20, seed=3, gym_config={gym: config})


@pytest.mark.parametrize("gym", GYMS)
async def test_the_same_rules_and_the_same_judge_give_the_same_rewards(gym: str) -> None:
    for stored in await played(gym):
        again = await reverify(stored, "rule", {}, "rule")
        assert again.refused == ""
        assert again.trajectory.rewards == stored.rewards
        assert again.trajectory.score == stored.score
        assert again.trajectory.stop_reason == stored.stop_reason
        assert [turn.message for turn in again.trajectory.turns] == [turn.message for turn in stored.turns]


async def test_a_changed_rule_changes_the_score_and_nothing_that_was_said() -> None:
    stored = await played("intention", skill=1.0)
    for each in stored:
        again = await reverify(each, "rule", {"high": 2.0}, "rule")
        important = sum(detail["importance"] == 3 for detail in each.task.payload["details"])
        assert again.trajectory.score == pytest.approx((each.score or 0.0) + important)
        assert not again.cut


async def test_an_output_that_was_not_told_counts_once_outputs_are_checked() -> None:
    for each in await played("tau", skill=1.0, check_outputs=False):
        silent = dataclasses.replace(each.task, payload={**each.task.payload, "outputs": ["never said"]})
        stored = dataclasses.replace(each, task=silent)
        unchecked = await reverify(stored, "rule", {"check_outputs": False}, "rule")
        checked = await reverify(stored, "rule", {"check_outputs": True}, "rule")
        assert (unchecked.trajectory.score, checked.trajectory.score) == (1.0, 0.0)
        assert (unchecked.trajectory.stop_reason, checked.trajectory.stop_reason) == ("success", "gave_up")


class Strict:
    """A judge that finds nothing right."""

    async def reply(self, question: str) -> str:
        raise AssertionError("what the user said is stored, and nobody is asked for it")

    async def matches(self, guess: str) -> bool:
        return False


async def test_another_judges_verdict_counts_and_its_words_are_not_asked_for() -> None:
    stored = await played("telepathy", skill=1.0)
    assert {each.score for each in stored} == {1.0}
    for each in stored:
        again = await reverify(each, Strict(), {}, "strict")
        assert again.trajectory.score == 0.0
        assert again.cut
        assert again.trajectory.user == "strict"
        said = [turn.observation for turn in again.trajectory.turns]
        assert said == [turn.observation for turn in each.turns]


async def test_a_turn_that_comes_out_otherwise_is_refused_since_its_state_was_not_stored() -> None:
    [stored] = await played("function", skill=1.0, n=1)
    stored.turns[0].observation = "test 9 9 9 9"
    again = await reverify(stored, "rule", {}, "rule")
    assert again.refused == "turn 1 comes out otherwise: it depended on state that was not stored"
    assert again.trajectory.score is None
    assert not again.trajectory.admitted


def test_which_gyms_have_a_judge() -> None:
    judged = {gym: judges(gym, tasks(gym, "train")[0]) for gym in GYMS if gym_class(gym).users}
    assert judged["tau"] == ()
    assert judged["turtle"] == ("grade",)
    assert judged["intention"] == ("covered",)
    assert judged["travel"] == ("judge", "match")
