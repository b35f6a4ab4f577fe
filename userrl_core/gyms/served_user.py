"""Base class of the gyms' served users: one server, and one system message and prompt for each question.

The prompts and schemas are in the module ``llm_user`` or ``released_user`` of each gym.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from userrl_core.records import Message, ModelCall
from userrl_core.served.client import ChatServer, client_for
from userrl_core.served.plain import ask

S = TypeVar("S", bound=BaseModel)
T = TypeVar("T")
UserRole = Literal["user", "judge"]


class ServedUser:
    """A user or judge with the options of `ChatServer`."""

    def __init__(self, **options: Any) -> None:
        self._server = ChatServer(**options)
        self.ledger: list[ModelCall] = []

    async def _ask(
        self, system: str, prompt: str, role: UserRole, schema: type[S], temperature: float | None = None
    ) -> S:
        """Return the reply as an instance of the schema. Raises UserError or JudgeError by role."""
        answer = await client_for(self._server).complete(
            _messages(system, prompt), role=role, ledger=self.ledger, schema=schema, temperature=temperature
        )
        parsed: S = answer.parsed
        return parsed

    async def _ask_in_words(self, system: str, prompt: str, role: UserRole, read: Callable[[str], T]) -> T:
        """Return what ``read`` makes of the reply, as the released code asks. Raises UserError or JudgeError by role."""
        return await ask(self._server, _messages(system, prompt), read, role=role, ledger=self.ledger)


def _messages(system: str, prompt: str) -> list[Message]:
    return [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
