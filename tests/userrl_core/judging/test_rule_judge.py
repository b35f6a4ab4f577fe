"""The rule judge: the first departure from the gold writes, its by-products, and what was put right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from curricula import load
from tests.userrl_core.judging.desk import BY_RULE, call, gold, played, task_with
from userrl_core.gyms import tasks
from userrl_core.interact import InteractCall
from userrl_core.judging.judge import TurnJudge
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import Task, Trajectory
from userrl_core.rewards.judge import JudgeConfig
from userrl_core.rollout import run_episodes

GOODBYE = InteractCall("action", "Everything is settled.")


async def marks(
    task: Task, calls: Sequence[InteractCall | str], horizon: int = 30
) -> tuple[list[int], str, Trajectory]:
    trajectory = await played(task, calls, horizon)
    judged = await BY_RULE.judge(trajectory)
    assert judged is not None
    assert judged.scores is not None
    return judged.scores, judged.category, trajectory


def moved(task: Task, **changed: str) -> InteractCall:
    """The task's move with other arguments."""
    action = next(a for a in task.payload["actions"] if a["name"] == "move_booking")
    return call("move_booking", **{**action["kwargs"], **changed})


async def test_every_gold_conversation_is_perfect() -> None:
    played_all = await run_episodes(tasks("tau", "test"), ScriptedPolicy(), horizon=30, judge=BY_RULE)
    judged = [t.judgement for t in played_all if t.judgement is not None]
    assert Counter(j.category for j in judged) == {"perfect": len(played_all)}
    assert {round(sum(r or 0.0 for r in j.rewards), 9) for j in judged} == {15.0}


async def test_a_write_with_wrong_arguments_is_the_deviation_and_what_follows_from_it_is_not() -> None:
    task = task_with("move_booking")
    lines = gold(task)
    at = next(i for i, line in enumerate(lines) if "move_booking" in line.content)
    lines[at] = moved(task, date="2026-12-24")
    scores, category, trajectory = await marks(task, lines)
    assert trajectory.stop_reason == "gave_up"
    assert scores == [1] * at + [-1] + [1] * (len(lines) - at - 2) + [0]  # the goodbye lets the right date pass
    assert category == "failed"


async def test_a_needless_write_before_the_right_one_is_the_deviation() -> None:
    task = task_with("move_booking")
    key = next(a["kwargs"]["booking_id"] for a in task.payload["actions"] if a["name"] == "move_booking")
    lines = [call("cancel_booking", booking_id=key, reason="weather"), *gold(task)]
    scores, category, _ = await marks(task, lines)
    assert scores[0] == -1
    assert scores.count(-1) == 1
    assert category == "failed"


async def test_a_missing_write_is_laid_on_the_turn_that_let_it_pass() -> None:
    task = task_with("move_booking")
    lines = [line for line in gold(task) if "move_booking" not in line.content]
    scores, category, _ = await marks(task, lines)
    assert scores == [1] * (len(lines) - 1) + [-1]
    assert category == "failed"


async def test_at_the_horizon_the_last_turn_let_the_write_pass() -> None:
    task = task_with("move_booking")
    lines = gold(task)
    scores, _, trajectory = await marks(task, lines[:2], horizon=2)
    assert (trajectory.stop_reason, scores) == ("horizon", [1, -1])


async def test_a_write_that_was_put_right_is_a_flaw() -> None:
    task = task_with("move_booking")
    lines = gold(task)
    at = next(i for i, line in enumerate(lines) if "move_booking" in line.content)
    lines.insert(at, moved(task, date="2026-12-24"))
    scores, category, trajectory = await marks(task, lines)
    if trajectory.stop_reason == "success":  # a desk that compares databases
        assert (scores[at], category) == (0, "good")
    else:  # a desk that compares writes
        assert (scores[at], category) == (-1, "failed")
    assert scores.count(1) == len(scores) - 1


async def test_malformed_turns_and_refused_calls_are_flaws_in_a_good_conversation() -> None:
    task = task_with("move_booking")
    lines = ["no call at all", call("get_booking", booking_id="B000"), InteractCall("answer", "{"), *gold(task)]
    scores, category, _ = await marks(task, lines)
    assert scores == [0, 0, 0] + [1] * (len(lines) - 3)
    assert category == "good"


async def test_a_gym_without_gold_calls_keeps_its_rewards_on_the_scale_of_the_outcome() -> None:
    solved = await run_episodes(tasks("math", "test")[:2], ScriptedPolicy(), horizon=6, judge=BY_RULE)
    for trajectory in solved:
        assert trajectory.judgement is not None
        assert trajectory.judgement.scores is None
        assert trajectory.judgement.rewards == [10.0 * (reward or 0.0) for reward in trajectory.rewards]


SECOND = TurnJudge(JudgeConfig(model="rule", version=2))


async def second_marks(task: Task, calls: Sequence[InteractCall | str]) -> list[int]:
    judged = await SECOND.judge(await played(task, calls, 30))
    assert judged is not None
    assert judged.scores is not None
    return judged.scores


async def test_the_second_judge_marks_the_message_that_proposed_a_wrong_write() -> None:
    task = task_with("move_booking")
    lines = gold(task)
    at = next(i for i, line in enumerate(lines) if "move_booking" in line.content)
    lines[at] = moved(task, date="2026-12-24")
    lines.insert(at, InteractCall("action", "There is room on 2026-12-24. Shall I move it?"))
    assert (await second_marks(task, lines))[at] == -1


async def test_the_second_judge_marks_a_refusal_but_no_message_that_needs_a_fact() -> None:
    task = task_with("move_booking")
    asked, refused = (
        InteractCall("action", "Unfortunately, I need your e-mail address."),
        InteractCall("action", "I am sorry, your booking cannot be moved."),
    )
    assert -1 not in await second_marks(task, [asked, InteractCall("action", "Take your time.")])
    assert (await second_marks(task, [asked, refused, InteractCall("action", "Goodbye.")]))[1] == -1


async def test_the_second_judge_takes_no_refusal_of_another_matter_for_the_deviation() -> None:
    task = task_with("move_booking")
    other = InteractCall("action", "A booking of today cannot be cancelled.")
    refused = InteractCall("action", "And it cannot be moved.")
    assert (await second_marks(task, [other, refused]))[1] == -1


def test_the_version_enters_a_recipe_s_identity_only_where_it_is_not_the_first() -> None:
    plain, first, second = (
        load("tarl", profile="laptop", overrides=overrides).identity
        for overrides in ({}, {"judge.version": 1}, {"judge.version": 2})
    )
    assert plain == first != second
