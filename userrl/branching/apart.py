"""Continuation of a conversation in a separate process, so that the caller loads no model and can enforce a time limit.

The process reads the request as JSON. It writes the continuations, or one sentence of refusal, as JSON.
"""

from __future__ import annotations

import asyncio
import shlex

from pydantic import BaseModel, ConfigDict

from userrl.branching.branch import BranchRequest, Continuation
from userrl.machine.piped import PipedProcess
from userrl_core.errors import ConfigError, ErrorReport, TrainingError

PROGRAM = "userrl.branching.process"
"""The module that the process runs."""

LAST_LINES = 3


class BranchAnswer(BaseModel):
    """The answer of the process: continuations, or a sentence of refusal."""

    model_config = ConfigDict(frozen=True)

    ways: tuple[Continuation, ...] = ()
    refused: ErrorReport | None = None


async def branch_apart(request: BranchRequest, seconds: float) -> tuple[Continuation, ...]:
    """Continue from the turn in a separate process and return the continuations. The process is killed at the time limit.

    Raises ConfigError with the sentence of a refusal or at the time limit, and TrainingError for a process that died.
    """
    process = PipedProcess(PROGRAM)
    try:
        line = await asyncio.wait_for(asyncio.to_thread(process.ask, request), seconds)
        if not line:
            status, lines = process.ended()
            raise TrainingError(
                "process.died",
                f"The process that continues the conversation ended with status {status}: "
                f"{' '.join(lines[-LAST_LINES:]) or 'it gave no reason'}",
            )
    except TimeoutError:
        options = request.model_dump(exclude={"trajectory"}, exclude_defaults=True)
        words = (str(word) for name, value in options.items() for word in (f"--{name}", value))
        command = shlex.join(["userrl", "branch", str(request.trajectory), *words])
        raise ConfigError(
            "branch.too_slow", f"This took longer than {seconds:g} s. `{command}` has no time limit."
        ) from None
    finally:
        process.close()
    answer = BranchAnswer.model_validate_json(line)
    if answer.refused is not None:
        raise ConfigError(answer.refused.code, answer.refused.sentence)
    return answer.ways
