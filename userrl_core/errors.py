"""The errors this product raises on purpose: one class per boundary (gym, user, judge, policy, log ...).

A failed rollout is data and not a crash. The episode catches these errors once, records a null reward with the reason, and
the run continues. Each class also subclasses the built-in exception that a caller would expect.

Every error has a code, such as ``recipe.unknown_key``, and a message. The message says what is wrong and what
to do next. docs/reference/errors.md explains every code.
"""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

LINE = "error: "
"""The beginning of the line that a process writes about its error (`UserRLError.line`)."""

_ROOMS = ("analysis", "curricula", "flows", "sweeps", "userrl", "userrl_core", "warehouse")
_OURS = tuple(f"{Path(__file__).parents[1] / room}/" for room in _ROOMS)
_STDLIB, *_INSTALLED = (sysconfig.get_paths()[kind] for kind in ("stdlib", "purelib", "platlib"))
_LINE = re.compile(rf"(?:{LINE})?(?P<sentence>.*?)(?: \[(?P<code>[a-z_]+\.[a-z_]+)\])?\s*", re.DOTALL)


class UserRLError(Exception):
    """Base class of every error this product raises on purpose.

    code: a stable name of the error, for programs and for docs/reference/errors.md. The text of the error is the message alone.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, *self.args), {k: v for k, v in vars(self).items() if k != "code"}

    @property
    def told(self) -> ErrorReport:
        """Code and message, for a caller in another process."""
        return ErrorReport(self.code, str(self))

    @property
    def line(self) -> str:
        """The message after ``error: ``, with the code in brackets at the end of its first line."""
        first, *rest = str(self).split("\n")
        return "\n".join([f"{LINE}{first} [{self.code}]", *rest])


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, of at most 200 characters; the error's name if it has no text."""
    # Never a whole response body, which may contain a key.
    return next((text[:200] for line in _text(error).split("\n") if (text := line.strip())), type(error).__name__)


def in_one_line(error: BaseException) -> str:
    """Return an error's class, its text (at most 200 characters) and its place in one line."""
    # Some libraries name the fault in the third line.
    return " ".join(f"{type(error).__name__}: {_text(error)}".split())[:200].rstrip(":") + place(error)


def place(error: BaseException) -> str:
    """Return `` at FILE:LINE``, where somebody else's code failed. Empty for errors that this product raised.

    It is the innermost line outside of packages, else of a package. Lines of ours and of Python's own library do not count.
    """
    if isinstance(error, UserRLError):
        return ""
    lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    lines = [(file, line) for file, line in lines if not file.startswith((*_OURS, "<"))]
    own = [(file, line) for file, line in lines if not file.startswith((_STDLIB, *_INSTALLED))]
    installed = [(file, line) for file, line in lines if file.startswith(tuple(_INSTALLED))]
    return next((f" at {Path(file).name}:{line}" for file, line in reversed(own or installed)), "")


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  a gym's own error class may fail to give its text
        return ""


class ErrorReport(NamedTuple):
    """The code and the message of an error of another process."""

    code: str
    sentence: str


def read_line(line: str) -> ErrorReport:
    """Return the code and the message of one `UserRLError.line`; ``process.failed`` for a line without a code."""
    match = _LINE.fullmatch(line)
    assert match is not None  # every text has this form
    return ErrorReport(match["code"] or "process.failed", match["sentence"])


class ConfigError(UserRLError, ValueError):
    """A recipe, profile, parameter or option cannot be used as given."""


Check = tuple[object, str, str]
"""A condition that must not hold, with the code and the message of its error."""


def refuse_first(checks: Iterable[Check]) -> None:
    """Raise ConfigError for the first check whose condition holds."""
    for holds, code, message in checks:
        if holds:
            report = ErrorReport(code, message)
            raise ConfigError(report.code, report.sentence)


class TaskError(UserRLError, ValueError):
    """A task file or task row cannot be read; the message names file, index and field."""


class MissingFileError(TaskError):
    """A file or folder of published tasks is not there."""


class GymError(UserRLError, RuntimeError):
    """A gym was misused or is broken: a step after the end, a second reset, a bug in a rule."""


class UserError(UserRLError, RuntimeError):
    """The simulated user gave no usable reply after all retries: the turn's reward is null, never zero."""


class JudgeError(UserRLError, RuntimeError):
    """The judge gave no reply that fits its schema after all retries: the turn's reward is null, never zero."""


class PolicyError(UserRLError, RuntimeError):
    """The policy's model server gave no reply after all retries: the trajectory is not admitted."""


class LogError(UserRLError, OSError):
    """The turn log cannot write (disk full, folder deleted): training stops, because turns would be lost."""


class CheckpointError(UserRLError, FileNotFoundError):
    """A checkpoint is missing, incomplete or does not match its hash."""


class TrainingError(UserRLError, RuntimeError):
    """A trainer ended without a result (no optimiser step, no checkpoint, a dead worker)."""


class Refused(UserRLError, PermissionError):
    """The request is not allowed (an SQL statement other than SELECT, a file outside the warehouse)."""
