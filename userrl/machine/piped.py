"""A program of ours behind a pipe, which loads the model that its caller does not: lines of JSON in, lines of JSON out.

It ends with `close`, or with the process that started it. What it started ends with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

from pydantic import BaseModel

from userrl.machine.home import quiet
from userrl_core.processes import die_with_parent


class PipedProcess:
    """A started program. module: what it runs."""

    def __init__(self, module: str) -> None:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  `close` closes it
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=quiet() | {"PYTHONIOENCODING": "utf-8"},  # both sides, whatever the locale
            start_new_session=True,
            encoding="utf-8",
        )

    def tell(self, line: BaseModel) -> None:
        """Send a line. A program that has died gets none, which its missing answer shows."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(f"{line.model_dump_json()}\n")
            self._process.stdin.flush()

    def ask(self, line: BaseModel) -> str:
        """Send a line and return the answer; "" if the program has died, also in the middle of a line."""
        self.tell(line)
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        return answer if answer.endswith("\n") else ""

    def ended(self) -> tuple[int, list[str]]:
        """Wait for the end. Return the exit status, and the lines that it wrote to stderr."""
        status = self._process.wait()
        self._errors.seek(0)
        return status, [line.strip() for line in self._errors.read().splitlines() if line.strip()]

    def kill(self) -> None:
        """End the program at once. A caller that waits for an answer in another thread gets none."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # what it started ends with it
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """End the program and free its resources."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what was not read by a dead process
                    pipe.close()


@contextlib.contextmanager
def answering() -> Iterator[Callable[[BaseModel], None]]:
    """In the program: yield a function that sends an answer. Prints of libraries go to stderr meanwhile."""
    die_with_parent()
    answers = sys.stdout

    def answer(message: BaseModel) -> None:
        answers.write(f"{message.model_dump_json()}\n")
        answers.flush()

    with contextlib.redirect_stdout(sys.stderr):
        yield answer
