"""A served gym in OpenEnv's protocol, for trainers that use it.

A WebSocket ``/ws`` is a session. Messages ``reset``, ``step``, ``state`` and ``close`` with ``data`` go in;
``observation``, ``state`` or ``error`` come out (openenv-core 0.3.0, ``core/env_server/types.py``; unchanged since
December 2025). ``GET /schema`` and ``/metadata`` describe it.

OpenEnv's ``POST /reset`` and ``/step`` make an environment for each request, and its client does not use them. Here those
routes are AgentGym's. We do not use the package, because it brings a web interface and its own openai version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, WebSocket, WebSocketDisconnect
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError

from userrl_core.errors import GymError, UserRLError
from userrl_core.gyms import gym_class
from userrl_core.gyms.prompt import opening_messages
from userrl_core.interact import tool_schema
from userrl_core.json_files import json_text
from userrl_serving.gym_server import GymServer
from userrl_serving.json_bodies import read_body


class Reset(BaseModel):
    """The data of ``reset``. Unknown names are ignored, as on OpenEnv's servers."""

    seed: NonNegativeInt | None = None
    """Seed of the episode's random draws."""
    episode_id: str | None = Field(None, max_length=255)
    data_idx: NonNegativeInt | None = None
    """Index of the task. Default: the seed; without a seed, the task after the session's last one."""
    horizon: PositiveInt = 16
    """Steps after which the episode is done. The instructions state it."""
    config: dict[str, Any] = {}
    """Fields of the gym's config, for this episode."""


class Action(BaseModel):
    """One message of the agent: a ``<tool_call>``, ``choice: content``, or only the content if the gym has one choice."""

    model_config = ConfigDict(extra="forbid")

    message: str
    metadata: dict[str, Any] = {}


class Observation(BaseModel):
    """The observation after a reset or a step."""

    done: bool = False
    reward: float | None = None
    metadata: dict[str, Any] = {}
    text: str
    """The text of the user or environment."""
    messages: list[dict[str, str]] = []
    """After a reset: the system message and the user's first message, as our own agents see them."""
    tools: list[dict[str, Any]] = []
    """After a reset: the agent's only tool, as OpenAI function JSON."""
    score: float | None = None
    success: bool = False


class State(BaseModel):
    """The state of a session."""

    episode_id: str | None = None
    step_count: int = 0
    task: str | None = None


class _OpenEnvSession:
    """The consecutive episodes of one connection."""

    def __init__(self, server: GymServer, client: str) -> None:
        self.server, self.client = server, client
        self.number: int | None = None
        self.last, self.horizon, self.state = -1, 0, State()

    async def reset(self, data: Reset) -> dict[str, Any]:
        """Start a new episode. Raises UserRLError if the server is full or the config is invalid."""
        await self.close()
        indices = (data.data_idx, data.seed)
        self.last = next((number for number in indices if number is not None), self.last + 1) % len(self.server.pool)
        self.number = int((await self.server.create(self.client, data.config))["id"])
        state = await self.server.reset(self.number, self.last, data.seed)
        gym = self.server.playing(self.number)
        self.horizon, self.state = data.horizon, State(episode_id=data.episode_id, task=gym.task.key)
        messages = opening_messages(gym, state["observation"], data.horizon)
        tools = [tool_schema(gym.choices())]
        return _answer(state, reward=None, done=False, messages=[*map(dict, messages)], tools=tools)

    async def step(self, action: Action) -> dict[str, Any]:
        """Execute one turn. Raises UserRLError if it could not be scored, because clients would read a null reward as 0."""
        if self.number is None:
            raise GymError("gym.misused", "No episode is running. Send reset first.")
        state = await self.server.step(self.number, action.message)
        self.state.step_count += 1
        if "error" in state:
            raise GymError("gym.not_scored", state["error"])
        done = state["done"] or self.state.step_count >= self.horizon
        if done:
            await self.close()
        return _answer(state, reward=state["reward"], done=done)

    async def close(self) -> None:
        """End the running episode, if any."""
        if self.number is not None:
            await self.server.close(self.number)
            self.number = None


def _answer(state: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    observation = Observation(text=state["observation"], score=state["score"], success=state["success"], **more)
    return {
        "observation": observation.model_dump(exclude={"reward", "done", "metadata"}),
        "reward": observation.reward,
        "done": observation.done,
    }


def routes(server: GymServer) -> APIRouter:
    """Return OpenEnv's routes to a server's gym."""
    router = APIRouter()

    @router.get("/schema")
    async def schema() -> dict[str, Any]:
        return {name: kind.model_json_schema() for name, kind in _MODELS.items()}

    @router.get("/metadata")
    async def metadata() -> dict[str, Any]:
        return {"name": f"userrl {server.name}", "description": gym_class(server.name).goal}

    @router.websocket("/ws")
    async def session(socket: WebSocket) -> None:
        await socket.accept()
        episodes = _OpenEnvSession(server, socket.client.host if socket.client else "")
        try:
            while (answer := await _reply(episodes, await socket.receive_text())) is not None:
                await socket.send_text(json_text(answer))
            await socket.close()
        except WebSocketDisconnect:
            pass  # the episode ends with the connection
        finally:
            await episodes.close()

    return router


_MODELS: Mapping[str, type[BaseModel]] = {"action": Action, "observation": Observation, "state": State}


async def _reply(episodes: _OpenEnvSession, text: str) -> dict[str, Any] | None:
    """Return the answer to a message, or None for the message that closes the session."""
    try:
        message = read_body(text)
    except (ValueError, RecursionError) as error:
        return _error("INVALID_JSON", f"Invalid JSON: {error}")
    kind, data = (message.get("type"), message.get("data", {})) if isinstance(message, dict) else (None, None)
    try:
        match kind:
            case "reset":
                return {"type": "observation", "data": await episodes.reset(Reset.model_validate(data))}
            case "step":
                return {"type": "observation", "data": await episodes.step(Action.model_validate(data))}
            case "state":
                return {"type": "state", "data": episodes.state.model_dump()}
            case "close":
                return None
    except ValidationError as error:
        return _error("VALIDATION_ERROR", f"Invalid message: {error}")
    except UserRLError as error:
        return _error("EXECUTION_ERROR", str(error))
    return _error("UNKNOWN_TYPE", f"Unknown message type: {kind}")


def _error(code: str, sentence: str) -> dict[str, Any]:
    return {"type": "error", "data": {"message": sentence, "code": code}}
