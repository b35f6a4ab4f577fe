"""The audit of users in wish, errand, travel, intention and turtle, and in gyms whose tasks hold no truth."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from analysis.users.audit import audit
from analysis.users.findings import Audited
from userrl_core.episode import Episode, EpisodeRules
from userrl_core.gyms import make, tasks
from userrl_core.gyms.errand.rule_user import RuleErrandUser
from userrl_core.gyms.turtle.rule_user import RuleTurtleUser
from userrl_core.gyms.wish.rule_user import RuleWishUser
from userrl_core.interact import InteractCall, render_call
from userrl_core.records import PolicyReply, Task, Trajectory


async def played(gym: str, task: Task, calls: Sequence[InteractCall], user: Any = None) -> Trajectory:
    episode = Episode(make(gym, task, **({} if user is None else {"user": user})), EpisodeRules(20))
    episode.start()
    for call in calls:
        if not await episode.submit(PolicyReply(text=render_call(call, ""))):
            break
    return episode.trajectory


async def gold_of(gym: str, task: Task, user: Any = None) -> Audited:
    """Audit the conversation of the gold calls."""
    made = make(gym, task)
    return audit([await played(gym, task, made.gold(task, made.config), user)]).rows[0]


@pytest.mark.parametrize("gym", ["wish", "errand", "travel", "intention", "turtle", "tau"])
async def test_a_rule_user_makes_no_error_and_a_solved_conversation_has_no_verdict(gym: str):
    for task in tasks(gym, "test")[:5]:
        row = await gold_of(gym, task)
        assert (row.solved, row.verdict, any(row.user.values())) == (True, None, False), row
        assert row.goal is not None
        assert row.goal.settled == row.goal.parts > 0


class WrongColour(RuleWishUser):
    async def colour(self, garment: str, colour: str | None, told: bool) -> tuple[str, bool]:
        return ("red" if colour != "red" else "blue", False)


class TellsTheOption(RuleWishUser):
    async def colour(self, garment: str, colour: str | None, told: bool) -> tuple[str, bool]:
        return ("oak", False)


@pytest.mark.parametrize(("user", "kind"), [(WrongColour, "ungrounded"), (TellsTheOption, "leaked")])
async def test_a_wish_user_that_says_another_colour_or_the_answer_is_seen(user: type[RuleWishUser], kind: str):
    task = next(
        task for task in tasks("wish", "test") if "oak" in (task.payload["best"], *task.payload["wrong"].values())
    )
    garment = next(iter(task.payload["wished"]))
    row = audit([await played("wish", task, [InteractCall("action", garment)], user(task, random.Random(0)))]).rows[0]
    assert [finding.kind for finding in row.user[kind]] == [kind]


async def test_a_hesitation_is_the_users_error_only_if_asking_again_brought_nothing():
    task = next(task for task in tasks("wish", "test") if len(task.payload["wished"]) == 1)
    [garment] = task.payload["wished"]
    asks = [InteractCall("action", garment)] * 2
    guess = InteractCall("answer", next(iter(task.payload["wrong"].values())))
    once = RuleWishUser(task, random.Random(0), manner="second")
    row = audit([await played("wish", task, [*asks, guess], once)]).rows[0]
    assert (row.verdict, len(row.user["unanswered"])) == ("agent", 1)

    class Mute(RuleWishUser):
        def hesitates(self, garment: str) -> bool:
            return True

    row = audit([await played("wish", task, [*asks, guess], Mute(task, random.Random(0)))]).rows[0]
    assert row.verdict == "both"


async def test_an_errand_user_that_names_another_thing_is_seen():
    class Wrong(RuleErrandUser):
        async def needs(self, thing: str, part: str | None) -> str:
            return "tent"

    task = next(task for task in tasks("errand", "test") if "tent" not in task.payload["chain"])
    row = audit(
        [
            await played(
                "errand", task, [InteractCall("action", task.payload["chain"][0])], Wrong(task, random.Random(0))
            )
        ]
    ).rows[0]
    assert [(finding.kind, finding.detail) for finding in row.user["ungrounded"]] == [("ungrounded", "tent")]


async def test_a_turtle_user_that_denies_a_point_of_the_story_is_seen():
    class Denies(RuleTurtleUser):
        async def reply(self, question: str) -> Any:
            return "No"

    task = tasks("turtle", "test")[0]
    asked = [InteractCall("action", criterion["ask"]) for criterion in task.payload["criteria"]]
    row = audit([await played("turtle", task, asked, Denies(task, random.Random(0)))]).rows[0]
    assert len(row.user["ungrounded"]) == len(asked)
    assert row.goal is not None
    assert row.goal.told == len(asked)


async def test_kinds_that_a_gym_cannot_show_are_absent_and_an_unknown_gym_has_no_verdict():
    intention = await gold_of("intention", tasks("intention", "test")[0])
    assert list(intention.user) == ["unanswered"]
    task = tasks("function", "test")[0]
    row = audit([await played("function", task, [InteractCall("action", "1 2 3 4")])]).rows[0]
    assert (row.user, row.agent, row.goal, row.verdict) == ({}, None, None, None)
