"""A program in a Python of its own, for packages that do not fit beside ours; all episodes of this process share it.

Requests and answers are lines of JSON with the number of their session; session 0 is the program's own. The program says that it
is ready, or an ``error``. It ends when its input does. Its Python is named by the machine's environment, never by a recipe.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any, TypeGuard

from userrl_core.errors import GymError, UserError
from userrl_core.interact import InteractCall
from userrl_core.records import Task
from userrl_core.served.bounded import MAX_BYTES

LOAD = 600.0
"""Seconds that a program may take to start: an environment may build its data set."""
_LOCK = threading.Lock()
_RUNNING: dict[tuple[object, ...], Program] = {}


def missing(gym: str, variable: str, requirement: str) -> str:
    """Return what this machine lacks, in one sentence; "" if the variable names a program.

    requirement: what pip installs into that Python.
    """
    python = os.environ.get(variable, "")
    if python and os.access(python, os.X_OK):
        return ""
    is_wrong = f"{python} is not a program" if python else "it is not set"
    return (
        f"Gym '{gym}' runs in a Python of its own: install '{requirement}' in a venv and set ${variable} ({is_wrong})."
    )


def running(name: str, python: str, program: Path, *arguments: str) -> Program:
    """Return a program that has started. Raises UserError if it does not start.

    name: the program in a sentence, such as "environment 'wordle'". program: its file.
    """
    known_by = os.getpid(), python, program, arguments
    with _LOCK:
        started = _RUNNING.get(known_by)
        if started is None or started.failure or started.retired:
            started = _RUNNING[known_by] = Program(name, [python, str(program), *arguments])
    started.ready()
    return started


class Program:
    """A running program. Its sessions are numbered; each has at most one request under way."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self.hello: dict[str, Any] = {}
        """Its first answer."""
        self.failure = ""
        """Why nothing more can be asked, as a sentence."""
        self.retired = False
        """Whether a request was not answered in time. New sessions get another process."""
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._open: set[int] = set()
        self._lock = threading.Lock()
        self._said: collections.deque[str] = collections.deque(maxlen=1)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=kept
        )
        self._ready = self._waiting[0] = Future()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        threading.Thread(target=self._read, daemon=True).start()

    def ready(self) -> None:
        """Wait until it has started. Raises UserError if it does not start."""
        self.hello = result(self, self._ready, LOAD)

    def open(self, **request: Any) -> tuple[int, Future[dict[str, Any]]]:
        """Begin a session, and return its number and its first answer."""
        number = next(self._numbers)
        self._open.add(number)
        return number, self.ask(number, **request)

    def ask(self, number: int, **request: Any) -> Future[dict[str, Any]]:
        """Send a request of a session, and return its answer to come."""
        answer: Future[dict[str, Any]] = Future()
        with self._lock:
            if self.failure:
                answer.set_result({"ended": self.failure})
            else:
                self._waiting[number] = answer
                self._send({"session": number, **request})
        return answer

    async def answered(self, number: int, seconds: float, **request: Any) -> dict[str, Any]:
        """Send a request of a session, and return its answer. Raises UserError without one in time, and for an error."""
        answer = self.ask(number, **request)
        await asyncio.wait([asyncio.wrap_future(answer)], timeout=seconds)
        if not answer.done():
            raise self.late(seconds)
        return result(self, answer, 0.0)

    def late(self, seconds: float) -> UserError:
        """Return the error of a request without an answer, after which new sessions get another process."""
        self.retired = True
        self._end_retired()
        return UserError(
            "gym.program_failed", f"{self.name[0].upper()}{self.name[1:]} did not answer within {seconds:g} seconds."
        )

    def close(self, number: int) -> None:
        """End a session. The last one of a retired process ends the process."""
        with self._lock:
            self._waiting.pop(number, None)
            if number in self._open and not self.failure:
                self._send({"session": number})
            self._open.discard(number)
        self._end_retired()

    def _end_retired(self) -> None:
        if self.retired and not self._open:
            self._process.kill()

    def _send(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended, which `_read` tells everybody
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        """Hand each answer to whoever waits for it, until the process ends or sends what cannot be read."""
        assert self._process.stdout is not None
        with self._process.stdout as answers:
            reason = self._read_from(answers)
        self._process.kill()
        status = self._process.wait()
        self._listener.join(1.0)  # its last words
        reason = reason or f"ended with status {status}{f' ({self._said[0]})' if self._said else ''}"
        with self._lock:
            self.failure = f"The process of {self.name} {reason}."
            left, self._waiting = self._waiting, {}
        for answer in left.values():
            answer.set_result({"ended": self.failure})

    def _read_from(self, answers: IO[bytes]) -> str:
        while line := answers.readline(MAX_BYTES + 1):
            if len(line) > MAX_BYTES:
                return f"sent an answer of more than {MAX_BYTES >> 20} MB"
            try:
                answer = json.loads(line)
                waiting = self._waiting.pop(answer["session"], None)
            except (ValueError, KeyError, TypeError, RecursionError):
                return "sent what is not an answer"
            if waiting is not None and not waiting.cancelled():
                waiting.set_result(answer)
        return ""

    def _listen(self) -> None:
        """Keep the last line that the program writes to its error output, for a sentence about its end."""
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            while line := lines.readline(4096):
                if text := line.decode(errors="replace").strip():
                    self._said.append(text[:300])


def result(program: Program, answer: Future[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """Return an answer, waiting at most so long. Raises UserError without one in time, and for an error that it says."""
    try:
        got = answer.result(seconds)
    except TimeoutError:
        raise program.late(seconds) from None
    if "error" in got:
        raise UserError(
            "gym.program_failed", f"{program.name[0].upper()}{program.name[1:]} failed: {str(got['error'])[:300]}"
        )
    if "ended" in got:
        raise UserError("gym.program_failed", got["ended"])
    return got


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a program's reward is a finite number. A truth value is none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


class UnscriptedDemonstrator:
    """The player of an environment that nobody wrote a player for. It says what to use in its place."""

    def __init__(self, task: Task, rng: random.Random, skill: float, config: object) -> None:
        self._env = task.payload.get("env") or task.tier

    def act(self, observation: str) -> InteractCall:
        """Raise GymError."""
        raise GymError(
            "demonstrations.no_script",
            f"Environment {self._env} has no scripted demonstrator. Name a model in demonstrations.policy, or set "
            "cold_start.data to recorded conversations.",
        )
