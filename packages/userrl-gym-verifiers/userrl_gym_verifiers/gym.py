"""Environments of the package verifiers: multi-turn, with tools, or with a simulated user of their own.

The environment runs its own rollout in another process, and each request to its model is a turn here. The score is the
rubric's reward. A turn's reward is what the environment gave the turn (``reward`` of its trajectory step), else 0. The last
turn also gets what is missing to the score. A rollout or reward function that fails gives a null reward; verifiers counts the
latter as 0. A conversation that ends here at the horizon was not scored by the rubric, and has the rewards of its turns so far.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from userrl_core.errors import UserError
from userrl_core.gyms.base import Gym, GymConfig, Reply
from userrl_core.gyms.other_python import Program, is_number, result
from userrl_core.interact import InteractCall
from userrl_core.records import Task
from userrl_gym_verifiers.process import missing, running


class VerifiersConfig(GymConfig):
    """Limits of an environment."""

    timeout: float = 60.0
    """Seconds that the environment may take for a turn, its judge and simulated user included."""

    solved: float = 1.0
    """Score from which a conversation is a success."""


class VerifiersGym(Gym[VerifiersConfig]):
    """One rollout."""

    name = "verifiers"
    config_type = VerifiersConfig
    reward_range = (-1.0, 1.0)
    metric = "Reward"
    success_rule = "a reward of `solved` or more"
    goal = "Reach what the first message asks for."
    elsewhere = True
    irreproducible = "its environment may draw without our seed"
    blocking = True
    choice_help: ClassVar = {
        "action": "what to say",
        "answer": 'one tool call as JSON, e.g. {"name": "add", "arguments": {"a": 1, "b": 2}}',
    }

    def __init__(self, task: Task, user: Any = None, config: VerifiersConfig | None = None) -> None:
        super().__init__(task, user, config)
        self._process: Program | None = None
        self._session, self._calls = 0, 0
        self._tools: list[dict[str, Any]] = []
        self._paid = 0.0
        self._score: float | None = None

    @classmethod
    def unavailable(cls) -> str:
        """Return what is missing on this machine, in one sentence."""
        return missing()

    def help_for(self, choice: str) -> str:
        """Return the effect of a choice, with the environment's tools."""
        if choice != "answer":
            return super().help_for(choice)
        functions = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in self._tools)
        return f"{super().help_for(choice)}. The tools:\n{functions}" if functions else "not used: there are no tools"

    def native_tools(self) -> list[dict[str, Any]]:
        """Return the environment's tools."""
        return [dict(tool) for tool in self._tools]

    def native_call(self, name: str, arguments: Mapping[str, Any]) -> InteractCall | None:
        """Translate a call of one of its tools."""
        return InteractCall("answer", json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False))

    def opening(self) -> str:
        """Begin the rollout and return its prompt. Raises UserError if the environment fails, or never asks for a reply."""
        payload = self.task.payload
        self._process = running(payload["env"], payload["args"])
        self._session, answer = self._process.open(row=payload["row"])
        first = result(self._process, answer, self.config.timeout)
        if "score" in first:
            raise self._failed("ended before the agent's first reply")
        with self._read():
            self._tools = [tool for tool in first["tools"] if tool["function"]["name"]]
            system = [message for message in first["messages"] if message["role"] == "system"]
            if system:
                self.goal = self._text(system)  # type: ignore[misc]  # of the instance: the environment's own instruction
            self._opening = self._text([message for message in first["messages"] if message["role"] != "system"])
        return self._opening

    def brief(self) -> str:
        """Return the opening, which the environment gives once."""
        return self._opening

    async def action(self, content: str) -> Reply:
        """Send a message. verifiers takes an empty one for a failure of the model's server, so it is not sent."""
        if not content:
            return Reply("Error: an empty message is not sent.")
        return await self._send({"role": "assistant", "content": content})

    async def answer(self, content: str) -> Reply:
        """Call a tool. What is not a call of one of the tools is not sent."""
        names = [tool["function"]["name"] for tool in self._tools]
        try:
            call = json.loads(content)
            name, arguments = call["name"], call.get("arguments", {})
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return Reply(f"Error: not a tool call. Write {self.choice_help['answer']}.", info={"tool_error": True})
        if name not in names or not isinstance(arguments, dict):
            listed = f"The tools are {', '.join(names)}" if names else "There are no tools"
            return Reply(f"Error: no such call. {listed}.", info={"tool_error": True})
        self._calls += 1
        function = {"name": name, "arguments": json.dumps(arguments)}
        tool_call = {"id": f"call_{self._calls}", "type": "function", "function": function}
        return await self._send({"role": "assistant", "content": None, "tool_calls": [tool_call]})

    async def _send(self, message: dict[str, Any]) -> Reply:
        assert self._process is not None
        got = await self._process.answered(self._session, self.config.timeout, message=message)
        with self._read():
            return self._reply(got)

    def _reply(self, got: Mapping[str, Any]) -> Reply:
        text = self._text(got["messages"])
        if "score" not in got:
            return Reply(text, self._earned(got["rewards"]))
        if got["failure"]:
            raise self._failed(f"did not score the conversation: {got['failure']}")
        self._score = self._number(got["score"])
        metrics = {name: value for name, value in got["metrics"].items() if is_number(value)}
        return Reply(
            text or "The conversation has ended.",
            self._score - self._paid,
            done=True,
            success=self._score >= self.config.solved,
            info={"stop": got["stop"], "metrics": metrics},
        )

    def _earned(self, rewards: Sequence[Any]) -> float:
        """Return the gain in the rewards that the environment gave to turns, which may give one later."""
        before, self._paid = self._paid, sum(self._number(reward) for reward in rewards if reward is not None)
        return self._paid - before

    def _number(self, value: object) -> float:
        if not is_number(value):
            raise self._failed(f"gave the reward {str(value)[:40]!r}, which is not a finite number")
        return float(value)

    def _text(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Return the words of messages. With an earlier message of the agent (few-shot), each has its role before it."""
        is_marked = any(message["role"] == "assistant" for message in messages)
        role_texts = [(message["role"], self._words(message.get("content"))) for message in messages]
        return "\n".join(f"{role}: {text}" if is_marked else text for role, text in role_texts)

    def _words(self, content: object) -> str:
        if content is None or isinstance(content, str):
            return content or ""
        texts = [part.get("text") for part in _as_list(content) if isinstance(part, dict)]
        text_parts = [text for text in texts if isinstance(text, str)]
        if len(text_parts) < len(_as_list(content)):
            raise self._failed("sent a message that is not text")
        return "".join(text_parts)

    @contextmanager
    def _read(self) -> Iterator[None]:
        """Name an answer that has not the fields of one."""
        try:
            yield
        except (LookupError, TypeError, AttributeError) as error:
            raise self._failed(f"sent an answer that cannot be read ({type(error).__name__}: {error})") from None

    def _failed(self, reason: str) -> UserError:
        return UserError("gym.program_failed", f"Environment '{self.task.payload['env']}' {reason[:400]}.")

    def score(self) -> float | None:
        """Return the rubric's reward, and before the end the rewards of the turns so far."""
        if None in self.rewards:
            return None
        return super().score() if self._score is None else self._score

    async def aclose(self) -> None:
        """End the rollout."""
        await super().aclose()
        if self._process is not None:
            self._process.close(self._session)


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]
