"""A served model under each gym's native protocol: plain words are for the user, tools are the gym's own.

The benchmarks behind TravelGym and TauGym talk to a model this way, in contrast to the one interact tool (UserRL 4.2,
"adapting existing benchmarks"). A message becomes the equivalent interact call, so gym, log and metrics are the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from userrl_core.gyms.base import Gym
from userrl_core.interact import TOOL_NAME, InteractCall
from userrl_core.policies.base import Session
from userrl_core.policies.openai import OpenAIPolicy, OpenAISession
from userrl_core.records import Message, ModelCall, PolicyReply
from userrl_core.served.client import ChatServer


class NativePolicy:
    """A policy through a chat server, with the tools of `Gym.native_tools`. Needs prompt style ``native``."""

    def __init__(self, server: ChatServer, *, name: str | None = None) -> None:
        # A reply in words is half of the protocol, so no call is ever required.
        self._served = OpenAIPolicy(server.model_copy(update={"tool_choice": "auto"}), tools="on")
        self.name = name or f"{server.model} (native)"

    def session(self, gym: Gym[Any], seed: int) -> Session:
        """Return a session; the model sees the gym's opening messages and tools, never its task."""
        return _NativeSession(OpenAISession(self._served, gym.native_tools()), gym)


class _NativeSession:
    def __init__(self, served: OpenAISession, gym: Gym[Any]) -> None:
        self._served, self._gym = served, gym

    @property
    def open_calls(self) -> list[ModelCall]:
        """Return the served session's open calls."""
        return self._served.open_calls

    async def act(self, new: Sequence[Message]) -> PolicyReply:
        """Return the model's next message, as interact calls. Raises PolicyError as the served model does."""
        reply = await self._served.act(new)
        calls = reply.tool_calls or [{"function": {"name": "", "arguments": reply.text}}]
        return replace(reply, tool_calls=[self._translated(call) for call in calls])

    def _translated(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Return the equivalent interact call. An unreadable call is unchanged, and is a format error."""
        function = dict(call.get("function") or {})
        name, arguments = str(function.get("name") or ""), function.get("arguments")
        if name == "":
            call_meant: InteractCall | None = InteractCall("action", str(arguments))
        else:
            call_meant = self._gym.native_call(name, _object(arguments))
        if call_meant is None:
            return {"function": function}
        content = {"choice": call_meant.choice, "content": call_meant.content}
        return {"function": {"name": TOOL_NAME, "arguments": json.dumps(content, ensure_ascii=False)}}


def _object(arguments: Any) -> dict[str, Any]:
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {}
