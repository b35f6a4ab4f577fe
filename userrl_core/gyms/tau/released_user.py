"""TauGym's user with the texts and the message order of tau-bench's released code (``prompts: released``).

plain is its LLM user, react its ReAct user, which TARL names (2.1). UserRL plays its rows with the LLM user, which opens the
conversation itself, unseen by the agent: so it does here in UserRL's rows. Elsewhere the task's opening takes that place.

Two differences: the reply of the ReAct user is what follows "User Response:" (the released parser hands the thought to the
agent), and a reply without it is requested again. As released, temperature and token limit are the server's, and a stop counts
wherever it comes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from userrl_core.errors import ConfigError
from userrl_core.gyms.released_texts import Source, Template, published_root
from userrl_core.gyms.tau.stopping import STOP, STOP_TOKEN
from userrl_core.records import Message, ModelCall, Task
from userrl_core.served.client import ChatServer
from userrl_core.served.plain import ask, spoken

CLASSES = {"plain": "LLMUserSimulationEnv", "react": "ReactUserSimulationEnv"}
RESPONSE, THOUGHT = "User Response:", "Thought:"
"""The marks of the ReAct form, which the released parser looks for."""


@dataclass(frozen=True, slots=True)
class TauTexts:
    """The released texts of both strategies. instruction: how a task's instruction is put into them."""

    plain: Template
    react: Template
    instruction: Template
    greeting: str


@lru_cache(maxsize=4)
def read_texts(root: Path) -> TauTexts:
    """Read the texts from a folder of published data. Raises MissingFileError or ConfigError."""
    source = Source(root, "tau-bench", "tau_bench/envs/user.py")
    build = {name: f"{cls}.build_system_prompt" for name, cls in CLASSES.items()}
    return TauTexts(
        plain=source.returned(build["plain"]),
        react=source.returned(build["react"]),
        instruction=source.assigned(build["plain"], "instruction_display", 1)[0],
        greeting=source.message(f"{CLASSES['plain']}.reset", "user"),
    )


class ReleasedTauUser:
    """A served user with the released prompts. strategy: plain or react. texts: the folder of published data."""

    def __init__(
        self, task: Task, rng: random.Random, *, texts: str | None = None, strategy: str = "plain", **options: Any
    ) -> None:
        if strategy not in CLASSES:
            raise ConfigError(
                "user.bad_option",
                f"TauGym's user with released prompts has no strategy '{strategy}'. It has {', '.join(CLASSES)}.",
            )
        released = read_texts(published_root(texts))
        self._react = strategy == "react"
        self._server = ChatServer(**{"temperature": None, "max_tokens": None, **options})
        instruction = released.instruction.fill(instruction=str(task.payload["instruction"]))
        prompt = (released.react if self._react else released.plain).fill(instruction_display=instruction)
        self._messages: list[Message] = [
            {"role": "system", "content": prompt},
            {"role": "user", "content": released.greeting},
        ]
        if task.source != "published:userrl":
            self._messages.append({"role": "assistant", "content": str(task.payload["opening"])})
        self.ledger: list[ModelCall] = []

    async def reply(self, message: str) -> str:
        """Return the customer's next message. Raises UserError."""
        if len(self._messages) == 2:
            await self._next()
        self._messages.append({"role": "user", "content": spoken(message)})
        return await self._next()

    async def _next(self) -> str:
        """Request the next message of the customer, keep it whole and return what the agent may read."""
        whole, reply = await ask(self._server, self._messages, self._read, role="user", ledger=self.ledger)
        self._messages.append({"role": "assistant", "content": whole})
        return reply

    def _read(self, text: str) -> tuple[str, str]:
        if not self._react:
            return text, text
        if STOP_TOKEN.search(text):
            return text, STOP
        _, mark, reply = text.partition(RESPONSE)
        reply = reply if mark else "" if THOUGHT in text else text
        if not reply.strip():
            raise ValueError(f"there is no '{RESPONSE}'")
        return text, reply.strip()
