"""The rule user of ErrandGym: one-word answers, so that a turn costs a laptop's model few tokens."""

from __future__ import annotations

import random

from userrl_core.records import ModelCall, Task

RAW = "raw"


class RuleErrandUser:
    """A user who names the part, or says that the thing is raw. The generator is not used."""

    def __init__(self, task: Task, rng: random.Random) -> None:
        self.ledger: list[ModelCall] = []

    async def needs(self, item: str, part: str | None) -> str:
        """Return the part's name, or ``raw``."""
        return RAW if part is None else part
