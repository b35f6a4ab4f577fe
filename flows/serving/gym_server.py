"""A gym behind HTTP, in the shape of AgentGym's environment servers, so that other trainers can play it.

``POST /create``, ``/reset``, ``/step``, ``/close`` and ``GET /observation``, every answer 200 with JSON; what went wrong is
a field ``error``, as those servers have it. An action is a message as a model writes it: a ``<tool_call>``, or, for clients
without tools, ``choice: content``.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from dataclasses import dataclass, field
from typing import Any

from fastapi import Body, FastAPI, Query, Request

from userrl_core.errors import GymError, UserRLError
from userrl_core.gyms import gym_class, make, tasks
from userrl_core.gyms.base import Gym
from userrl_core.interact import CHOICES, InteractCall, parse_text
from userrl_core.records import Task

_PLAIN = re.compile(rf"\s*({'|'.join(CHOICES)})\s*:\s*(.*)", re.DOTALL | re.IGNORECASE)


@dataclass(slots=True)
class _Session:
    client: str
    gym: Gym[Any] | None = None
    observation: str = ""
    reward: float = 0.0
    done: bool = False
    used: float = field(default_factory=time.monotonic)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(slots=True)
class GymServer:
    """Sessions of one gym.

    most: sessions of one client at once; its longest unused one makes room for a new one. total: of all clients. idle: seconds
    after which an unused session is closed when another begins.
    """

    name: str
    split: str = "test"
    user: Any = "rule"
    most: int = 1024
    total: int = 4096
    idle: float = 3600.0
    options: dict[str, Any] = field(default_factory=dict)
    step_timeout: float = 120.0
    _sessions: dict[int, _Session] = field(default_factory=dict)
    _ids: Any = field(default_factory=lambda: itertools.count(1))

    @property
    def pool(self) -> list[Task]:
        """The tasks that are played; a session's data_idx counts through them."""
        return list(tasks(self.name, self.split, **self.options))

    async def create(self, client: str) -> dict[str, Any]:
        """A new session, not yet reset. Raises GymError when there are too many."""
        forgotten = time.monotonic() - self.idle
        for key in [key for key, session in self._sessions.items() if session.used < forgotten]:
            await self.close(key)
        own = [key for key, session in self._sessions.items() if session.client == client]
        if len(own) >= self.most:
            await self.close(min(own, key=lambda key: self._sessions[key].used))
        if len(self._sessions) >= self.total:
            raise GymError(f"There are {self.total} sessions; close some, or come back later.")
        number = next(self._ids)
        self._sessions[number] = _Session(client)
        return {"id": number}

    async def reset(self, number: int, data_idx: int, seed: int | None = None) -> dict[str, Any]:
        """Begin the task with this index. The observation is the user's first message."""
        session = self._find(number)
        pool = self.pool
        async with session.lock:
            if session.gym is not None:
                await session.gym.aclose()
            session.gym = make(self.name, pool[data_idx % len(pool)], self.user)
            session.observation, session.reward, session.done = session.gym.reset(seed=seed), 0.0, False
        return self._state(number, session)

    async def step(self, number: int, action: str) -> dict[str, Any]:
        """Carry out one message. A reward that could not be had is null, and the session is over."""
        session = self._find(number)
        async with session.lock:
            if session.gym is None or session.done:
                raise GymError(f"Session {number} is not running; reset it first.")
            call = read_action(action)
            if isinstance(call, str):
                session.observation, session.reward = call, 0.0
                return self._state(number, session)
            try:
                async with asyncio.timeout(self.step_timeout):
                    result = await session.gym.step(call)
            except (TimeoutError, UserRLError) as error:
                session.done = True
                return {**self._state(number, session), "reward": None, "error": f"not scored: {error}"}
            session.observation, session.done = result.observation, result.terminated
            session.reward = result.reward or 0.0
            return {**self._state(number, session), "reward": result.reward}

    async def close(self, number: int) -> bool:
        """End a session; True when there was one."""
        session = self._sessions.pop(number, None)
        if session is None:
            return False
        if session.gym is not None:
            await session.gym.aclose()
        return True

    def observe(self, number: int) -> str:
        """The session's last observation."""
        return self._find(number).observation

    def _find(self, number: int) -> _Session:
        if number not in self._sessions:
            raise GymError(f"There is no session {number}; create one first.")
        session = self._sessions[number]
        session.used = time.monotonic()
        return session

    @staticmethod
    def _state(number: int, session: _Session) -> dict[str, Any]:
        return {"id": number, "observation": session.observation, "reward": session.reward, "done": session.done}


def read_action(text: str) -> InteractCall | str:
    """A message as a call, or the sentence that says why it is none."""
    plain = _PLAIN.fullmatch(text)
    if plain:
        return InteractCall(plain[1].lower(), plain[2].strip())
    parsed = parse_text(text)
    return parsed.call if parsed.call is not None else parsed.error or "The reply could not be read."


def app_of(server: GymServer) -> FastAPI:
    """The server's routes. Raises ConfigError for a gym or split that does not exist."""
    gym_class(server.name)
    count = len(server.pool)
    app = FastAPI(title=f"userrl {server.name}", docs_url=None, redoc_url=None)

    async def tried(work: Any) -> Any:
        try:
            return await work
        except UserRLError as error:
            return {"error": str(error)}

    @app.get("/")
    async def about() -> dict[str, Any]:
        return {"gym": server.name, "split": server.split, "tasks": count, "choices": gym_class(server.name).choices()}

    @app.post("/create")
    async def create(request: Request) -> Any:
        return await tried(server.create(request.client.host if request.client else ""))

    @app.post("/reset")
    async def reset(id: int = Body(), data_idx: int = Body(0), seed: int | None = Body(None)) -> Any:
        return await tried(server.reset(id, data_idx, seed))

    @app.post("/step")
    async def step(id: int = Body(), action: str = Body()) -> Any:
        return await tried(server.step(id, action))

    @app.post("/close")
    async def close(id: int = Body(embed=True)) -> Any:
        return await tried(server.close(id))

    @app.get("/observation")
    async def observation(id: int = Query()) -> Any:
        try:
            return server.observe(id)
        except UserRLError as error:
            return {"error": str(error)}

    return app
