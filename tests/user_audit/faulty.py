"""Customers of the bike desk that make one known kind of error, and an agent that gives them the occasion."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from userrl_core.episode import Episode, EpisodeRules
from userrl_core.gyms import tasks
from userrl_core.gyms.tau.gym import TauConfig, TauGym
from userrl_core.gyms.tau.rule_user import RuleTauUser
from userrl_core.gyms.tau.stopping import STOP
from userrl_core.interact import InteractCall, render_call
from userrl_core.records import PolicyReply, Task, Trajectory

WRONG_DATE = "2026-12-31"
ASKED = "Please provide your e-mail address and tell me what I can do for you."
CONFIRM = "I would now make the change. Do you confirm?"


class FaultyCustomer:
    """The rule customer with one kind of error, or none ("")."""

    def __init__(self, task: Task, fault: str) -> None:
        self.rule, self.fault, self.replies = RuleTauUser(task, random.Random(0)), fault, 0

    async def reply(self, message: str) -> str:
        self.replies += 1
        text = await self.rule.reply(message)
        if self.fault == "stopped early" and message == CONFIRM:
            return f"I have to go. {STOP}"
        if self.fault == "never stopped":
            return text.replace(STOP, "Goodbye!")
        if self.fault == "unanswered":
            return (
                "I would rather not say."
                if self.replies == 1
                else text.replace("@", " at ").replace(".", " ") + (f" {STOP}" if STOP in text else "")
            )
        if self.fault == "untold":
            return "I am a customer of yours." if STOP not in text and self.replies == 1 else f"That is all. {STOP}"
        if message.startswith("Shall I") and self.fault != "gave in":
            return "No, not on that day."
        if self.replies == 1:
            text += {
                "ungrounded": " My account number is QX4471Z.",
                "leaked": " The name for it is move_booking.",
                "coached": " You should check the list of bookings.",
            }.get(self.fault, "")
        return text


def moving_tasks(n: int) -> list[Task]:
    """Return tasks whose only gold write moves a booking to another day."""
    found = [
        task
        for split in ("train", "validation", "test")
        for task in tasks("tau", split)
        if [a["name"] for a in task.payload["actions"] if a["name"] != "find_customer_by_email"][1:] == ["move_booking"]
    ]
    return found[:n]


def agent_calls(task: Task, fault: str) -> list[InteractCall]:
    """Return an agent's calls that solve the task, except where the error needs a failure."""
    gold = task.payload["actions"]
    write = dict(gold[-1]["kwargs"])
    if fault == "untold":
        return [_say(ASKED), _say("I see nothing to change.")]
    talk = [_say(ASKED)]
    if fault in ("gave in", "refused"):
        talk.append(_say(f"Shall I move {write['booking_id']} to {WRONG_DATE}?"))
        write["date"] = WRONG_DATE
    elif fault == "stopped early":
        talk.append(_say(CONFIRM))
    call = InteractCall("answer", json.dumps({"name": gold[-1]["name"], "arguments": write}))
    return [*talk, call, *[_say("Everything is settled.")] * 8]


async def converse(task: Task, fault: str, horizon: int = 8) -> Trajectory:
    """Play one conversation with a customer that has this fault."""
    gym = TauGym(task, FaultyCustomer(task, fault), TauConfig(check_outputs=False))
    episode = Episode(gym, EpisodeRules(horizon, on_format_error="continue"))
    episode.start()
    await _submit(episode, agent_calls(task, fault))
    return episode.trajectory


async def _submit(episode: Episode, calls: Sequence[InteractCall]) -> None:
    for call in calls:
        if not await episode.submit(PolicyReply(text=render_call(call, ""))):
            break


def _say(text: str) -> InteractCall:
    return InteractCall("action", text)
