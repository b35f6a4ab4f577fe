"""Continuation of a conversation in a separate process, so that the caller loads no model and can enforce a time limit.

The process reads the request as JSON. It writes the continuations, or one sentence of refusal, as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

from pydantic import BaseModel, ConfigDict, ValidationError

from userrl.branching.branch import BranchRequest, Continuation
from userrl.machine.home import quiet
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
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        PROGRAM,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=quiet(),
        start_new_session=True,
    )
    try:
        stdout, stderr = await asyncio.wait_for(process.communicate(request.model_dump_json().encode()), seconds)
    except TimeoutError:
        raise ConfigError(
            "branch.too_slow",
            f"This took longer than {seconds:g} s. `userrl branch {request.trajectory} --turn {request.turn}` "
            "has no time limit.",
        ) from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # its children end with it
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    try:
        answer = BranchAnswer.model_validate_json(stdout)
    except ValidationError:
        lines = stderr.decode(errors="replace").strip().splitlines()[-LAST_LINES:]
        raise TrainingError(
            "process.died",
            f"The process that continues the conversation ended with status {process.returncode}: "
            f"{' '.join(lines) or 'it gave no reason'}",
        ) from None
    if answer.refused is not None:
        raise ConfigError(answer.refused.code, answer.refused.sentence)
    return answer.ways
