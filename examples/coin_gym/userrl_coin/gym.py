"""The user has tossed a coin: ask, then say how it fell."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from userrl_core.gyms.base import Gym, GymConfig, Reply
from userrl_core.interact import InteractCall
from userrl_core.records import Task


class CoinGym(Gym[GymConfig]):
    """Say which side the coin shows."""

    name = "coin"
    metric = "Success"
    min_turns = 2
    goal = "The user has tossed a coin. Find out how it fell."
    choice_help: ClassVar[Mapping[str, str]] = {"action": "ask the user", "answer": "heads or tails"}

    def opening(self) -> str:
        """Return the user's first message."""
        return "I tossed a coin. Which side is up?"

    async def action(self, content: str) -> Reply:
        """Give a hint."""
        return Reply(f"It starts with {self.task.payload['side'][0]}.")

    async def answer(self, content: str) -> Reply:
        """Judge the answer and end the conversation."""
        right = content.strip().lower() == self.task.payload["side"]
        return Reply("Right." if right else "Wrong.", reward=float(right), done=True)

    @classmethod
    def gold(cls, task: Task, config: GymConfig) -> Sequence[InteractCall]:
        """Return a solution, for `userrl tasks validate`."""
        return [InteractCall("action", "Which side?"), InteractCall("answer", task.payload["side"])]
