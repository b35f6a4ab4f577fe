"""Customers of the bike desk that make one known kind of error, and an agent that gives them the occasion."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence

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


WORDINGS: Mapping[str, Sequence[str]] = {
    "ungrounded": (
        " My account number is QX4471Z.",
        " My membership card says 88213-B.",
        " You can call me at 5550147.",
        " I paid with the card that ends in 9921.",
        " I am a gold member of your club.",
    ),
    "leaked": (
        " The name for it is move_booking.",
        " Please run move_booking.",
        " I think move_booking does that!",
        " It is `move_booking` that you want.",
        " Move booking is the function.",
    ),
    "coached": (
        " You should check the list of bookings.",
        " Look up my profile first, then change it.",
        " Make sure that you follow your policy.",
        " Use the tool for moving bookings.",
        " Before that, verify who I am.",
    ),
    "stopped early": ("I have to go. ", "", "Let me think about it. ", "Thank you, that is all. ", "Bye for now. "),
    "never stopped": ("Goodbye!", "Bye.", "Thank you, have a nice day.", "That is all, thanks.", "I appreciate it."),
    "unanswered": (
        "I would rather not say.",
        "Why do you need that?",
        "Can you not just help me?",
        "I am in a hurry.",
        "That is none of your business.",
    ),
    "untold": (
        "I am a customer of yours.",
        "Hello, can you help me?",
        "Good morning.",
        "I need something.",
        "It is about a bike.",
    ),
    "gave in": ("Yes.", "Fine, go ahead.", "Sure, that works for me.", "OK, do it.", "If you say so."),
}
"""Ways to make each error. The tests use the first one. The others were written without a look at the rules that find errors."""

ASIDES = (
    "",
    " Thank you for your help.",
    " Sorry, I am not good with computers.",
    " What does that cost?",
    " Can you check that for me?",
    " I have been your customer for 3 years.",
)
"""What an honest customer may add to its first reply. The first one adds nothing."""


class FaultyCustomer:
    """The rule customer with one kind of error, or none (""). wording: the number of its wording. aside: of what it adds."""

    def __init__(self, task: Task, fault: str, *, wording: int = 0, aside: int = 0) -> None:
        self.rule, self.fault, self.replies = RuleTauUser(task, random.Random(0)), fault, 0
        self.words = WORDINGS[fault][wording] if fault in WORDINGS else ""
        self.aside = ASIDES[aside]

    async def reply(self, message: str) -> str:
        self.replies += 1
        text = await self.rule.reply(message)
        if self.fault == "stopped early" and message == CONFIRM:
            return f"{self.words}{STOP}"
        if self.fault == "never stopped":
            text = text.replace(STOP, self.words)
        if self.fault == "unanswered":
            return (
                self.words
                if self.replies == 1
                else text.replace("@", " at ").replace(".", " ") + (f" {STOP}" if STOP in text else "")
            )
        if self.fault == "untold":
            return self.words if STOP not in text and self.replies == 1 else f"That is all. {STOP}"
        if message.startswith("Shall I"):
            return self.words if self.fault == "gave in" else "No, not on that day."
        if self.replies == 1:
            text += self.aside + (self.words if self.fault in ("ungrounded", "leaked", "coached") else "")
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


async def converse(task: Task, fault: str, horizon: int = 8, *, wording: int = 0, aside: int = 0) -> Trajectory:
    """Play one conversation with a customer that has this fault, or that refuses a wrong write ("refused")."""
    customer = FaultyCustomer(task, fault, wording=wording, aside=aside)
    gym = TauGym(task, customer, TauConfig(check_outputs=False))
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
