"""AgentGym's environments on their own servers (AgentGym-RL 3.1, appendix B).

A turn's reward is its change of the environment's score, so the rewards add up to the score. The score is in [0, 1]:
textcraft 0 or 1, babyai 1 - 0.9 t/T, sciworld max(score, 0) / 100, searchqa and webarena as their servers report it.
A missing answer or an error gives a null reward, never a zero. Every episode has its own session, reset before and
closed after it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from userrl_core.errors import UserError
from userrl_core.gyms.base import Gym, GymConfig, Reply
from userrl_core.records import Task
from userrl_gym_agentgym.client import Session, open_session
from userrl_gym_agentgym.protocols import PROTOCOLS, Protocol, flag, number


class AgentGymConfig(GymConfig):
    """Servers of the environment."""

    servers: tuple[str, ...] = ("http://127.0.0.1:8100",)
    """Addresses of replicas of one environment. A new session goes to the one with the fewest sessions from here."""

    timeout: float = 60.0
    """Time limit of one request in seconds."""

    retries: int = 3
    """Retries of a refused connection. A step is never sent again."""


class AgentGymGym(Gym[AgentGymConfig]):
    """One episode on a server."""

    name = "agentgym"
    config_type = AgentGymConfig
    reward_range = (-1.0, 1.0)
    metric = "Score"
    elsewhere = True
    irreproducible = "a server elsewhere keeps its episodes' state"
    blocking = True

    def __init__(self, task: Task, user: Any = None, config: AgentGymConfig | None = None) -> None:
        super().__init__(task, user, config)
        self._protocol: Protocol = PROTOCOLS[task.payload["env"]]
        self.goal = self._protocol.goal  # type: ignore[misc]  # of the instance: each environment has its own instruction
        self._session: Session | None = None
        self._score = 0.0

    def help_for(self, choice: str) -> str:
        """Return the environment's actions."""
        return self._protocol.actions

    def opening(self) -> str:
        """Return a new session's first observation. Raises UserError if no server opens a session."""
        options, number = self.task.payload.get("options") or {}, self.task.payload["item"]
        self._session = open_session(
            self._protocol,
            self.config.servers,
            number,
            timeout=self.config.timeout,
            retries=self.config.retries,
            **options,
        )
        # Our own servers take a seed; AgentGym's have none to take.
        seed = {"seed": self.rng.getrandbits(31)} if self._protocol.per_turn else {}
        self._opening = self._session.reset(number, **seed)
        return self._opening

    def brief(self) -> str:
        """Return the opening, which the server gives once."""
        return self._opening

    async def action(self, content: str) -> Reply:
        """Send one action. Raises UserError if the server fails."""
        text = self._protocol.read(content)
        if text is None:
            return Reply("Only one action is possible in a message.")
        assert self._session is not None
        answer = await asyncio.to_thread(self._session.step, text)
        return self._reply(answer)

    def _reply(self, answer: dict[str, Any]) -> Reply:
        if not isinstance(observation := answer.get("observation"), str):
            raise UserError("gym.server_failed", "The server's answer to /step has no observation.")
        done = any(flag(answer, field) for field in self._protocol.ends)
        if self._protocol.per_turn:
            self._score = self._protocol.score(answer)
            return Reply(observation, number(answer, "reward"), done, success=flag(answer, "success"))
        before, self._score = self._score, self._protocol.score(answer)
        solved = self._score >= self._protocol.solved
        return Reply(observation, self._score - before, done or solved, success=solved)

    def score(self) -> float | None:
        """Return the environment's score so far."""
        return None if None in self.rewards else self._score

    async def aclose(self) -> None:
        """Close the session on its server."""
        await super().aclose()
        if self._session is not None:
            await asyncio.to_thread(self._session.close)
