"""The process of an environment: it runs verifiers' own rollouts, and the gym gives the replies of the model.

Started with the Python that has verifiers and the environment, which has no package of ours: ``python rollouts.py ID ARGS
FOLDER``. Requests and answers are lines of JSON with the number of their session.

The rollout's client asks the gym in place of a server. Prompts, tools, state, stop conditions and rubric are therefore the
environment's own, and so is the reward (`Environment.run_rollout`).
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import logging
import os
import sys
import threading
from typing import Any, TextIO

os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"  # they would be the last words of a process that ends

import verifiers as vf
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion

if not hasattr(vf, "load_environment"):
    sys.exit("this verifiers has no load_environment: install 'verifiers<0.4' there")

Json = dict[str, Any]
PLAYED: contextvars.ContextVar[Session] = contextvars.ContextVar("PLAYED")
"""The session of the rollout that runs in this context."""


class Session:
    """One rollout. Its answers are the messages for the agent, and at the end the score."""

    def __init__(self, number: int, out: TextIO) -> None:
        self.number, self._out = number, out
        self.state: Any = None
        self.failures: list[str] = []
        """Reward functions that failed. verifiers counts them as 0."""
        self.last: Json = {}
        """The last answer. A rollout that fails of itself ends before it is asked for more."""
        self._reply: asyncio.Future[Json] | None = None

    def say(self, **answer: Any) -> None:
        """Write an answer. NaN is written as it is; what is not JSON is written as its repr."""
        self.last = answer
        self._out.write(json.dumps({"session": self.number, **answer}, default=repr) + "\n")
        self._out.flush()

    async def ask(self, messages: list[Any], tools: list[Any]) -> Json:
        """Return the gym's reply to a request of the model."""
        if self._reply is not None:
            raise RuntimeError("The environment asked for two replies at once.")
        last = max((i for i, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
        new = messages[last + 1 :] if self._steps() else messages
        self._reply = asyncio.get_running_loop().create_future()
        self.say(messages=new, tools=tools, rewards=self._rewards())
        try:
            return await self._reply
        finally:
            self._reply = None

    def reply(self, message: Json) -> None:
        """Hand a reply to the rollout that waits for it."""
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(message)

    async def play(self, environment: Any, client: Any, row: Json) -> None:
        """Run the rollout and its rubric, and say how it ended."""
        PLAYED.set(self)
        try:
            output = await environment.run_rollout(row, client, "agent", dict(environment.sampling_args))
        except Exception as raised:  # noqa: BLE001  whatever an environment raises is told, and the others continue
            self.say(error=in_words(raised))
            return
        error = output.get("error") if self.state is None else self.state["error"]
        failure = in_words(error) if error is not None else "; ".join(self.failures)
        completion = [
            message if isinstance(message, dict) else message.model_dump() for message in output["completion"] or []
        ]
        last = max((i for i, message in enumerate(completion) if message["role"] == "assistant"), default=-1)
        self.say(
            messages=completion[last + 1 :],
            rewards=self._rewards(),
            score=output["reward"] if environment.score_rollouts else None,
            failure=failure or ("" if environment.score_rollouts else "the environment does not score its rollouts"),
            stop=output.get("stop_condition"),
            metrics=output.get("metrics") or {},
        )

    def _steps(self) -> list[Any]:
        return list((self.state or {}).get("trajectory") or [])

    def _rewards(self) -> list[Any]:
        """Return the reward that the environment gave each turn so far, or None."""
        return [step.get("reward") for step in self._steps()]


class AskGym(vf.OpenAIChatCompletionsClient):  # type: ignore[misc]  # verifiers is not installed here
    """The model's client: a request is the gym's next observation, its reply the agent's."""

    async def get_native_response(
        self, prompt: Any, model: str, sampling_args: Any, tools: Any = None, **more: Any
    ) -> ChatCompletion:
        """Answer one chat completion."""
        session = PLAYED.get()
        session.state = more.get("state", session.state)
        message = await session.ask(prompt, tools or [])
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        head = {"id": "turn", "object": "chat.completion", "created": 0, "model": model}
        return ChatCompletion.model_validate({**head, "choices": [choice]})


class Failures(logging.Handler):
    """Notes the reward functions that failed, which verifiers logs and counts as 0."""

    def emit(self, record: logging.LogRecord) -> None:
        """Note the failure in the session whose rubric runs."""
        session = PLAYED.get(None)
        if session is not None and record.getMessage().startswith("Error calling"):
            session.failures.append(record.getMessage())


def in_words(error: Any) -> str:
    """Return an error and its cause; verifiers wraps what went wrong in an error of its own, and stores it as a mapping."""
    if not isinstance(error, BaseException):
        return str(error.get("error_chain_repr", error) if isinstance(error, dict) else error)
    cause = error.__cause__
    return f"{type(error).__name__}: {error}" + (f" ({in_words(cause)})" if cause is not None else "")


def rows(environment: Any, split: str, first: int, count: int) -> list[Json]:
    """Return rows of a data set, none if the environment has no such set."""
    with contextlib.suppress(ValueError):
        data = environment.get_dataset() if split == "train" else environment.get_eval_dataset()
        if split == "train" or environment.eval_dataset is not None:
            return list(data.select(range(min(first, len(data)), min(first + count, len(data)))))
    return []


async def serve(identifier: str, arguments: str, folder: str, out: TextIO) -> None:
    """Load the environment and serve its sessions until the input ends."""
    sessions: dict[int, tuple[Session, asyncio.Task[None]]] = {}
    loop, whole = asyncio.get_running_loop(), Session(0, out)
    if folder:
        sys.path.insert(0, folder)
    try:
        environment = vf.load_environment(identifier, **json.loads(arguments))
        if environment.requires_group_rollouts:
            raise ValueError("its rubric scores rollouts in groups, and a gym plays one at a time")
        logging.getLogger("verifiers").addHandler(Failures())
        client = AskGym(AsyncOpenAI(api_key="none"))  # which never sends a request
    except Exception as error:  # noqa: BLE001  told to whoever started this process
        whole.say(error=in_words(error))
        return
    whole.say(ready=True)

    def carry_out(request: Json) -> None:
        number = request["session"]
        if "rows" in request:
            try:
                whole.say(rows=rows(environment, *request["rows"]))
            except Exception as error:  # noqa: BLE001
                whole.say(error=in_words(error))
        elif "row" in request:
            session = Session(number, out)
            sessions[number] = session, loop.create_task(session.play(environment, client, request["row"]))
        elif "message" in request:
            session, rollout = sessions[number]
            if rollout.done():
                session.say(**session.last)
            else:
                session.reply(request["message"])
        elif number in sessions:
            sessions.pop(number)[1].cancel()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(carry_out, json.loads(line))
        os._exit(0)  # the gym's process is gone, and an environment may be stuck

    threading.Thread(target=read, daemon=True).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an environment prints is no answer
    asyncio.run(serve(sys.argv[1], sys.argv[2], sys.argv[3], answers))
