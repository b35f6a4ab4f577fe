"""A served model as the agent: GPT-4o, or any model behind an OpenAI-compatible server.

Each session keeps an append-only list of API messages, so tool calls keep their ids and the server can reuse its
prefix cache. For a server without tools the prompt describes the tool, and the model answers in Hermes text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from userrl_core.errors import ConfigError
from userrl_core.gyms.base import Gym
from userrl_core.interact import TOOL_NAME, tool_schema
from userrl_core.policies.base import Session
from userrl_core.records import Message, ModelCall, PolicyReply
from userrl_core.served.client import ChatServer, ToolsRefused, client_for

Tools = Literal["auto", "on", "off"]
REFUSALS = 3
"""Number of conversations in a row with refused tools, after which the server is not offered tools again."""


class OpenAIPolicy:
    """A policy through a chat server.

    tools: send the tool through the API (``on``), in the prompt (``off``), or through the API until the server
    refuses it (``auto``; the policy then stays with the prompt). name: its name in reports, the model's by default.
    """

    def __init__(self, server: ChatServer | None = None, *, tools: Tools = "auto", name: str | None = None) -> None:
        if tools not in ("auto", "on", "off"):
            raise ConfigError("argument.unknown_value", f"tools must be auto, on or off, not {tools!r}.")
        self.server = server if server is not None else ChatServer()
        self.name = name or self.server.model
        self.tools: Tools = tools
        self.refusals = 0
        """Number of conversations in a row that the server accepted only without tools."""

    def refused(self) -> None:
        """Count a conversation that the server accepted only without tools. The server may lack tools, or the refusal
        was temporary.
        """
        self.refusals += 1
        if self.refusals >= REFUSALS:
            self.tools = "off"

    def session(self, gym: Gym[Any], seed: int) -> Session:
        """Return a session; the model sees the gym's opening messages and its tool, never its task."""
        # A released prompt comes with the tool's released description.
        return OpenAISession(self, [gym.task.payload.get("tool") or tool_schema(gym.choices())])


class OpenAISession:
    """One conversation with the server. tools: OpenAI function schemas; only the first is described where they are refused."""

    def __init__(self, policy: OpenAIPolicy, tools: Sequence[dict[str, Any]]) -> None:
        self._policy = policy
        self._tools = list(tools)
        self._use_api_tools = policy.tools != "off"
        self._messages: list[Message] = []
        self._unanswered: list[str] = []
        self.open_calls: list[ModelCall] = []
        """Calls of the server for a reply that has not come."""

    async def act(self, new: Sequence[Message]) -> PolicyReply:
        """Return the model's next message. Raises PolicyError when the server gave none after all retries."""
        if not self._messages and self._policy.tools == "off":
            self._use_api_tools = False
        self._append(new)
        try:
            reply = await self._ask()
        except ToolsRefused:
            # Not `policy.tools == "off"`: many sessions may be refused at once, and each has to fall back by itself.
            if self._policy.tools == "on" or any(m["role"] == "assistant" for m in self._messages):
                raise
            self._use_api_tools = False
            self._messages = _with_tool_in_prompt(self._messages, self._tools[0])
            reply = await self._ask()
            self._policy.refused()
        else:
            if self._use_api_tools:
                self._policy.refusals = 0
        return reply

    async def _ask(self) -> PolicyReply:
        client = client_for(self._policy.server)
        tools = self._tools if self._use_api_tools else None
        answer = await client.complete(self._messages, role="policy", ledger=self.open_calls, tools=tools)
        ledger, self.open_calls = self.open_calls, []
        message: Message = {"role": "assistant", "content": answer.text}
        calls = [_repeatable(call, len(self._messages), number) for number, call in enumerate(answer.tool_calls or ())]
        if calls:
            message["tool_calls"] = calls
        self._unanswered = [call["id"] for call in calls]
        self._messages.append(message)
        return PolicyReply(
            text=answer.text,
            tool_calls=answer.tool_calls,
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=answer.completion_tokens,
            truncated=answer.truncated,
            model_calls=ledger,
        )

    def _append(self, new: Sequence[Message]) -> None:
        """Append the new messages, as replies to the open tool calls; the API refuses a call without a reply."""
        if not self._messages and not self._use_api_tools:
            self._messages = _with_tool_in_prompt(new, self._tools[0])
            return
        for message in new:
            if message["role"] != "tool":
                self._messages.append(dict(message))
            elif not self._unanswered:
                self._messages.append({"role": "user", "content": message["content"]})
            else:
                first, *rest = self._unanswered
                self._messages.append({"role": "tool", "tool_call_id": first, "content": message["content"]})
                for call_id in rest:
                    self._messages.append(
                        {"role": "tool", "tool_call_id": call_id, "content": "This call was not carried out."}
                    )
                self._unanswered = []


def _repeatable(call: dict[str, Any], message: int, number: int) -> dict[str, Any]:
    """Return a call as servers accept it in the conversation so far: with an id, and arguments that are a JSON object."""
    arguments = call["function"].get("arguments")
    try:
        readable = isinstance(json.loads(arguments), dict)
    except (TypeError, ValueError, RecursionError):
        readable = False
    if not readable:  # vLLM parses them, and would refuse the conversation for the model's own mistake
        given = arguments if isinstance(arguments, dict) else {"unreadable": arguments} if arguments else {}
        call = {**call, "function": {**call["function"], "arguments": json.dumps(given, default=str)}}
    return {**call, "id": str(call.get("id") or f"call_{message}_{number}")}


def _with_tool_in_prompt(messages: Sequence[Message], tool: dict[str, Any]) -> list[Message]:
    text = (
        f"# Tool\nThe tool's definition:\n{json.dumps(tool['function'], ensure_ascii=False)}\n\n"
        "Make a call by writing exactly this, with your own values:\n"
        f'<tool_call>\n{{"name": "{TOOL_NAME}", "arguments": {{"choice": "...", "content": "..."}}}}\n</tool_call>'
    )
    copies = [dict(message) for message in messages]
    if copies and copies[0]["role"] == "system":
        copies[0]["content"] = f"{copies[0]['content']}\n\n{text}"
        return copies
    return [{"role": "system", "content": text}, *copies]
