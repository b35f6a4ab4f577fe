"""A gym over HTTP with the interface of AgentGym's environment servers, so that other trainers can play it.

Routes are ``POST /create``, ``/reset``, ``/step``, ``/close`` and ``GET /observation``. As on those servers, every answer
has status 200 and JSON, and an error is a field ``error``. `userrl_serving.agentgym` holds the differences between those
servers. ``GET /available_actions`` is in the paper, but those servers lack it (AgentGym-RL 3.1).

An action is a model's message with a ``<tool_call>``. Clients without tools send ``choice: content``, or only the content
if the gym has one choice. ``GET /health`` and ``/metrics`` (Prometheus text) are for monitoring.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections import Counter
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel

from userrl_core.errors import GymError, UserRLError
from userrl_core.gyms import gym_class, make, tasks
from userrl_core.gyms.base import Gym, parse_config
from userrl_core.interact import CHOICES, InteractCall, parse_text
from userrl_core.records import Task
from userrl_serving.agentgym import BEGUN, BareCreate, BareReset, BareSession, BareStep, opened, tagged, told, unread
from userrl_serving.json_answers import JsonAnswer, expiring, json_app
from userrl_serving.json_bodies import JsonBodies

_PLAIN = re.compile(rf"\s*({'|'.join(CHOICES)})\s*:\s*(.*)", re.DOTALL | re.IGNORECASE)


@dataclass(slots=True)
class _GymSession:
    client: str
    config: Mapping[str, Any] = field(default_factory=dict)
    gym: Gym[Any] | None = None
    opening: str = ""
    observation: str = ""
    reward: float = 0.0
    done: bool = False
    used: float = field(default_factory=time.monotonic)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(slots=True)
class GymServer:
    """Sessions of one gym.

    per_client: sessions per client; a new one replaces the client's longest unused one. total: sessions of all clients. idle:
    seconds after which an unused session is closed. Session numbers begin at the start time, so that a client of a restarted
    server gets an error and not another client's session.
    """

    name: str
    split: str = "test"
    user: Any = "rule"
    per_client: int = 1024
    total: int = 4096
    idle: float = 3600.0
    options: dict[str, Any] = field(default_factory=dict)
    step_timeout: float = 120.0
    _sessions: dict[int, _GymSession] = field(default_factory=dict)
    _ids: Any = field(default_factory=lambda: itertools.count(time.time_ns() // 1_000))
    _counts: Counter[str] = field(default_factory=Counter)
    _step_seconds: float = 0.0

    @property
    def pool(self) -> list[Task]:
        """Return the tasks. A session's data_idx is an index into them."""
        return list(tasks(self.name, self.split, **self.options))

    async def create(self, client: str, config: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Create a session, not yet reset. config: fields of the gym's config for this session.

        Raises GymError if there are too many sessions, ConfigError for a config that the gym does not take.
        """
        parse_config(gym_class(self.name), config or {})
        await self.expire()
        client_sessions = [key for key, session in self._sessions.items() if session.client == client]
        if len(client_sessions) >= self.per_client:
            await self._end(min(client_sessions, key=lambda key: self._sessions[key].used), "replaced")
        if len(self._sessions) >= self.total:
            raise GymError(
                "server.full",
                f"There are {self.total} sessions, the most this server has. Close some, or come back later.",
            )
        number = next(self._ids)
        self._sessions[number] = _GymSession(client, dict(config or {}))
        self._counts["created"] += 1
        return {"id": number}

    async def expire(self) -> None:
        """Close sessions unused for `idle` seconds. A session in a step is in use."""
        forgotten = time.monotonic() - self.idle
        for key, session in list(self._sessions.items()):
            if session.used < forgotten and not session.lock.locked():
                await self._end(key, "expired")

    async def reset(self, number: int, data_idx: int, seed: int | None = None) -> dict[str, Any]:
        """Start the task with this index. The observation is the user's first message."""
        session = self._find(number)
        pool = self.pool
        async with session.lock:
            if session.gym is not None:
                await session.gym.aclose()
            session.gym = make(self.name, pool[data_idx % len(pool)], self.user, **session.config)
            reset = partial(session.gym.reset, seed=seed)
            session.done = True  # until it has begun
            opening = await asyncio.to_thread(reset) if session.gym.blocking else reset()
            session.opening = session.observation = opening
            session.reward, session.done = 0.0, False
            self._counts["reset"] += 1
        return self._state(number, session)

    async def step(self, number: int, action: str) -> dict[str, Any]:
        """Execute one message. If its reward cannot be computed, the reward is null and the session ends."""
        session = self._find(number)
        async with session.lock:
            if session.gym is None or session.done:
                raise GymError("gym.misused", f"Session {number} is not running. Reset it first.")
            call = read_action(action, session.gym.choices())
            if isinstance(call, str):
                session.observation, session.reward = call, 0.0
                return self._state(number, session)
            began = time.perf_counter()
            self._counts["steps"] += 1
            try:
                async with asyncio.timeout(self.step_timeout):
                    result = await session.gym.step(call)
            except Exception as error:  # noqa: BLE001  a bug of a gym ends this session, and the client is told
                session.done = True
                self._counts["unscored"] += 1
                return {**self._state(number, session), "reward": None, "error": f"not scored: {_sentence(error)}"}
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
        """End a session. Return whether it existed."""
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
        """Return the gym of a session. Raises GymError for a session that was not reset."""
        gym = self._find(number).gym
        if gym is None:
            raise GymError("gym.misused", f"Session {number} is not running. Reset it first.")
        return gym

    def actions(self, number: int) -> dict[str, str]:
        """Return the choices of the session's gym with their descriptions."""
        gym = self._find(number).gym
        kind = gym_class(self.name)
        return {choice: gym.help_for(choice) if gym else kind.choice_help.get(choice, "") for choice in kind.choices()}

    def metrics(self) -> str:
        """Return counts since the start, in Prometheus's text format."""
        lines = ["# TYPE userrl_gym_sessions gauge", f'userrl_gym_sessions{{gym="{self.name}"}} {len(self._sessions)}']
        for counter in ("created", "reset", "closed", "expired", "replaced", "steps", "unscored"):
            name = f"userrl_gym_{counter}_total"
            lines += [f"# TYPE {name} counter", f'{name}{{gym="{self.name}"}} {self._counts[counter]}']
        lines += ["# TYPE userrl_gym_step_seconds summary"]
        lines += [f'userrl_gym_step_seconds_sum{{gym="{self.name}"}} {self._step_seconds:.6f}']
        lines += [f'userrl_gym_step_seconds_count{{gym="{self.name}"}} {self._counts["steps"]}']
        return "\n".join(lines) + "\n"

    def __len__(self) -> int:
        return len(self._sessions)

    def observe(self, number: int) -> str:
        """Return the session's last observation."""
        return self._find(number).observation

    def opening(self, number: int) -> str:
        """Return the first observation of the session's episode."""
        return self._find(number).opening

    @property
    def created(self) -> int:
        """The number of sessions created since the start."""
        return self._counts["created"]

    def _find(self, number: int) -> _GymSession:
        if number not in self._sessions:
            raise GymError("gym.misused", f"There is no session {number}. Create one first.")
        session = self._sessions[number]
        session.used = time.monotonic()
        return session

    @staticmethod
    def _state(number: int, session: _GymSession) -> dict[str, Any]:
        assert session.gym is not None
        return {
            "id": number,
            "observation": session.observation,
            "reward": session.reward,
            "done": session.done,
            "score": session.gym.score(),
            "success": session.gym.succeeded,
        }


def _sentence(error: Exception) -> str:
    return str(error) if isinstance(error, UserRLError) else f"{type(error).__name__}: {error}"


def read_action(text: str, choices: tuple[str, ...] = ()) -> InteractCall | str:
    """Parse a message into a call, or return the sentence that says why it is not one. choices: the gym's."""
    plain = _PLAIN.fullmatch(text)
    if plain:
        return InteractCall(plain[1].lower(), plain[2].strip())
    if len(choices) == 1 and "<tool_call>" not in text:
        return InteractCall(choices[0], text.strip())
    parsed = parse_text(text)
    return parsed.call if parsed.call is not None else parsed.error or "The reply could not be read."


def app_of(server: GymServer) -> FastAPI:
    """Return the server's routes. Raises ConfigError for a gym or split that does not exist."""
    gym_class(server.name)
    count = len(server.pool)

    app = json_app(f"userrl {server.name}", lambda _: expiring(server))
    app.add_middleware(JsonBodies)

    @app.exception_handler(UserRLError)
    async def refused(_: Request, error: UserRLError) -> JsonAnswer:
        return _refusal(error, 200)

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
    async def create(request: Request, body: BareCreate | Create | None = None) -> Any:
        client = request.client.host if request.client else ""
        if isinstance(body, BareCreate):
            return await _bare(_create_bare(server, client, body.id))
        return await _create(server, client, body or Create())

    @app.post("/reset")
    async def reset(body: BareReset | ResetRequest) -> Any:
        if isinstance(body, BareReset):
            return await _bare(_reset_bare(server, body))
        return await _reset(server, body)

    @app.post("/step")
    async def step(body: BareStep | Step) -> Any:
        if isinstance(body, BareStep):
            return await _bare(_step_bare(server, body))
        return await _step(server, body)

    @app.post("/close")
    async def close(body: BareSession | OfSession) -> Any:
        return await server.close(body.env_idx if isinstance(body, BareSession) else body.id)

    @app.get("/observation")
    async def observation(id: int | None = None, env_idx: int | None = None) -> Any:
        if env_idx is not None:
            return await _bare(_opening(server, env_idx))
        if id is None:
            return JsonAnswer({"detail": "Name the session: ?id= with its number."}, 422)
        return server.observe(id)

    @app.get("/available_actions")
    async def available_actions(id: int = Query()) -> Any:
        return server.actions(id)

    return app


class Create(BaseModel):
    """The body of ``/create``. AgentGym's other fields are ignored."""

    config: dict[str, Any] | None = None
    """Fields of the gym's config, for this session."""


class OfSession(BaseModel):
    """The body of ``/close``."""

    id: int
    """Number of the session."""


class ResetRequest(OfSession):
    """The body of ``/reset``."""

    data_idx: int | None = 0
    """Index of the task."""
    seed: int | None = None
    """Seed of the episode's random draws."""


class Step(OfSession):
    """The body of ``/step``."""

    action: str
    """One message of the agent."""


async def _create(server: GymServer, client: str, body: Create) -> dict[str, Any]:
    created = await server.create(client, body.config)
    if server.name not in BEGUN:
        return created
    return await _reset(server, ResetRequest(id=created["id"], data_idx=server.created - 1))


async def _reset(server: GymServer, body: ResetRequest) -> dict[str, Any]:
    state = await server.reset(body.id, body.data_idx or 0, body.seed)
    return opened(server.playing(body.id), state)


async def _step(server: GymServer, body: Step) -> dict[str, Any]:
    state = await server.step(body.id, body.action)
    return told(server.playing(body.id), state)


async def _create_bare(server: GymServer, client: str, task: int) -> int:
    number = int((await server.create(client))["id"])
    await server.reset(number, task)
    return number


async def _reset_bare(server: GymServer, body: BareReset) -> str:
    return str((await server.reset(body.env_idx, body.id))["observation"])


async def _step_bare(server: GymServer, body: BareStep) -> dict[str, Any]:
    """Execute the call in the message's tags. Raises GymError for a turn without a score."""
    choices = server.playing(body.env_idx).choices()
    call = tagged(body.action, choices)
    if call is None:
        return {"observation": unread(choices), "reward": 0.0, "done": False, "info": None}
    state = await server.step(body.env_idx, ": ".join(call))
    if "error" in state:
        raise GymError("gym.not_scored", state["error"])
    observation = f"<information>{state['observation']}</information>" if call[0] == "search" else state["observation"]
    return {"observation": observation, "reward": state["reward"], "done": state["done"], "info": None}


async def _opening(server: GymServer, number: int) -> str:
    return server.opening(number)


async def _bare(work: Awaitable[Any]) -> Any:
    """Answer a client without a field for errors: an error has status 500."""
    try:
        return await work
    except UserRLError as error:
        return _refusal(error, 500)


def _refusal(error: UserRLError, status: int) -> JsonAnswer:
    return JsonAnswer({"error": str(error), "code": error.code}, status)
