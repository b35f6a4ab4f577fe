"""ErrandGym's user as a language model, which says in its own words what a thing is made of."""

from __future__ import annotations

import random
from typing import Any

from userrl_core.errors import UserError
from userrl_core.records import ModelCall, Task
from userrl_core.served.client import ChatServer, client_for

_PROMPT = """You are a friendly person who has asked somebody for an errand. You are asked what one thing is made of.

The thing: {thing}
{truth}

Answer in one short sentence. Say exactly this much and nothing about any other thing."""


class LLMErrandUser:
    """A served user with the options of `ChatServer`. The model sees one link of the chain at a time and cannot reveal more."""

    def __init__(self, task: Task, rng: random.Random, **options: Any) -> None:
        self.ledger: list[ModelCall] = []
        self._server = ChatServer(**options)

    async def needs(self, item: str, part: str | None) -> str:
        """Return one sentence that names the part or says ``raw``. Raises UserError if the model does not say it."""
        expected = "raw" if part is None else part
        truth = "It is raw: it only has to be fetched. Use the word raw." if part is None else f"It is made of: {part}."
        messages = [{"role": "user", "content": _PROMPT.format(thing=item, truth=truth)}]
        answer = await client_for(self._server).complete(messages, role="user", ledger=self.ledger)
        if expected not in answer.text.lower():
            raise UserError("user.no_reply", f"The user model did not say that {item} needs {expected}.")
        return answer.text
