"""A gym behind HTTP, in the shape of AgentGym's environment servers, so that other trainers can play it.

``POST /create``, ``/reset``, ``/step``, ``/close`` and ``GET /observation``, every answer 200 with JSON; what went wrong is
a field ``error``, as those servers have it. ``GET /available_actions`` is what the paper names and those servers lack (AgentGym-RL
3.1). An action is a message as a model writes it: a ``<tool_call>``, or, for clients without tools, ``choice: content``, or the
content alone where a gym has one choice. ``GET /health`` and ``/metrics`` (Prometheus text) are for who watches.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from fastapi import Body, FastAPI, Query, Request
from fastapi.responses import PlainTextResponse

from userrl_core.errors import GymError, UserRLError
from userrl_core.gyms import gym_class, make, tasks
from userrl_core.gyms.base import Gym, parse_config
from userrl_core.interact import CHOICES, InteractCall, parse_text
from userrl_core.records import Task

_PLAIN = re.compile(rf"\s*({'|'.join(CHOICES)})\s*:\s*(.*)", re.DOTALL | re.IGNORECASE)


@dataclass(slots=True)
class _Session:
    client: str
    config: Mapping[str, Any] = field(default_factory=dict)
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
    after which an unused session is closed. Numbers of sessions begin at the time of the start, so that whoever still holds one
    of a server that was restarted gets an error, not somebody else's session.
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
    _ids: Any = field(default_factory=lambda: itertools.count(time.time_ns() // 1_000))
    _counts: Counter[str] = field(default_factory=Counter)
    _step_seconds: float = 0.0

    @property
    def pool(self) -> list[Task]:
        """The tasks that are played; a session's data_idx counts through them."""
        return list(tasks(self.name, self.split, **self.options))

    async def create(self, client: str, config: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A new session, not yet reset. config: fields of the gym's config, for this session alone.

        Raises GymError when there are too many sessions, ConfigError for a config that the gym does not take.
        """
        parse_config(gym_class(self.name), config or {})
        await self.expire()
        own = [key for key, session in self._sessions.items() if session.client == client]
        if len(own) >= self.most:
            await self._end(min(own, key=lambda key: self._sessions[key].used), "replaced")
        if len(self._sessions) >= self.total:
            raise GymError(f"There are {self.total} sessions; close some, or come back later.")
        number = next(self._ids)
        self._sessions[number] = _Session(client, dict(config or {}))
        self._counts["created"] += 1
        return {"id": number}

    async def expire(self) -> None:
        """Close what was not used for `idle` seconds; a session in a step is in use."""
        forgotten = time.monotonic() - self.idle
        for key, session in list(self._sessions.items()):
            if session.used < forgotten and not session.lock.locked():
                await self._end(key, "expired")

    async def reset(self, number: int, data_idx: int, seed: int | None = None) -> dict[str, Any]:
        """Begin the task with this index. The observation is the user's first message."""
        session = self._find(number)
        pool = self.pool
        async with session.lock:
            if session.gym is not None:
                await session.gym.aclose()
            session.gym = make(self.name, pool[data_idx % len(pool)], self.user, **session.config)
            reset = partial(session.gym.reset, seed=seed)
            opening = await asyncio.to_thread(reset) if session.gym.blocking else reset()
            session.observation, session.reward, session.done = opening, 0.0, False
            self._counts["reset"] += 1
        return self._state(number, session)

    async def step(self, number: int, action: str) -> dict[str, Any]:
        """Carry out one message. A reward that could not be had is null, and the session is over."""
        session = self._find(number)
        async with session.lock:
            if session.gym is None or session.done:
                raise GymError(f"Session {number} is not running; reset it first.")
            call = read_action(action, session.gym.choices())
            if isinstance(call, str):
                session.observation, session.reward = call, 0.0
                return self._state(number, session)
            began = time.perf_counter()
            self._counts["steps"] += 1
            try:
                async with asyncio.timeout(self.step_timeout):
                    result = await session.gym.step(call)
            except (TimeoutError, UserRLError) as error:
                session.done = True
                self._counts["unscored"] += 1
                return {**self._state(number, session), "reward": None, "error": f"not scored: {error}"}
            finally:
                session.used = time.monotonic()
                self._step_seconds += time.perf_counter() - began
            session.observation, session.done = result.observation, result.terminated
            session.reward = result.reward or 0.0
            if result.reward is None:
                session.done = True
                self._counts["unscored"] += 1
                return {**self._state(number, session), "reward": None, "error": "not scored"}
            return self._state(number, session)

    async def close(self, number: int) -> bool:
        """End a session; True when there was one."""
        return await self._end(number, "closed")

    async def _end(self, number: int, why: str) -> bool:
        session = self._sessions.pop(number, None)
        if session is None:
            return False
        self._counts[why] += 1
        if session.gym is not None:
            await session.gym.aclose()
        return True

    def playing(self, number: int) -> Gym[Any]:
        """The gym of a session. Raises GymError for a session that was not reset."""
        gym = self._find(number).gym
        if gym is None:
            raise GymError(f"Session {number} is not running; reset it first.")
        return gym

    def actions(self, number: int) -> dict[str, str]:
        """The choices of the session's gym, and what each does."""
        gym = self._find(number).gym
        kind = gym_class(self.name)
        return {choice: gym.help_for(choice) if gym else kind.choice_help.get(choice, "") for choice in kind.choices()}

    def metrics(self) -> str:
        """Counts since the start, in Prometheus's text format."""
        lines = ["# TYPE userrl_gym_sessions gauge", f'userrl_gym_sessions{{gym="{self.name}"}} {len(self._sessions)}']
        for what in ("created", "reset", "closed", "expired", "replaced", "steps", "unscored"):
            name = f"userrl_gym_{what}_total"
            lines += [f"# TYPE {name} counter", f'{name}{{gym="{self.name}"}} {self._counts[what]}']
        lines += ["# TYPE userrl_gym_step_seconds summary"]
        lines += [f'userrl_gym_step_seconds_sum{{gym="{self.name}"}} {self._step_seconds:.6f}']
        lines += [f'userrl_gym_step_seconds_count{{gym="{self.name}"}} {self._counts["steps"]}']
        return "\n".join(lines) + "\n"

    def __len__(self) -> int:
        return len(self._sessions)

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
        assert session.gym is not None
        return {
            "id": number,
            "observation": session.observation,
            "reward": session.reward,
            "done": session.done,
            "score": session.gym.score(),
            "success": session.gym.succeeded,
        }


def read_action(text: str, choices: tuple[str, ...] = ()) -> InteractCall | str:
    """A message as a call, or the sentence that says why it is none. choices: those of the gym."""
    plain = _PLAIN.fullmatch(text)
    if plain:
        return InteractCall(plain[1].lower(), plain[2].strip())
    if len(choices) == 1 and "<tool_call>" not in text:
        return InteractCall(choices[0], text.strip())
    parsed = parse_text(text)
    return parsed.call if parsed.call is not None else parsed.error or "The reply could not be read."


def app_of(server: GymServer) -> FastAPI:
    """The server's routes. Raises ConfigError for a gym or split that does not exist."""
    gym_class(server.name)
    count = len(server.pool)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        watch = asyncio.create_task(_expire(server))
        yield
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch

    app = FastAPI(title=f"userrl {server.name}", docs_url=None, redoc_url=None, lifespan=lifespan)

    async def tried(work: Any) -> Any:
        try:
            return await work
        except UserRLError as error:
            return {"error": str(error)}

    @app.get("/")
    async def about() -> dict[str, Any]:
        return {"gym": server.name, "split": server.split, "tasks": count, "choices": gym_class(server.name).choices()}

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "gym": server.name, "sessions": len(server)}

    @app.get("/metrics")
    async def metrics() -> PlainTextResponse:
        return PlainTextResponse(server.metrics(), media_type="text/plain; version=0.0.4")

    @app.post("/create")
    async def create(request: Request, config: Annotated[dict[str, Any] | None, Body(embed=True)] = None) -> Any:
        return await tried(server.create(request.client.host if request.client else "", config))

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
        return _said(lambda: server.observe(id))

    @app.get("/available_actions")
    async def available_actions(id: int = Query()) -> Any:
        return _said(lambda: server.actions(id))

    return app


def _said(answer: Callable[[], Any]) -> Any:
    try:
        return answer()
    except UserRLError as error:
        return {"error": str(error)}


async def _expire(server: GymServer) -> None:
    """Close idle sessions also when no new one begins."""
    while True:
        await asyncio.sleep(min(60.0, server.idle / 4))
        await server.expire()
