"""Limits on chat templates. A template is a program from the checkpoint, and it may loop for ever.

`refuse_endless` first renders a template in a process with limits on time and memory. Nothing else ends a power of
huge numbers or a string of terabytes. `within` ends a rendering in this process, in any thread, because a template
may loop on some conversations only.
"""

from __future__ import annotations

import ctypes
import json
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar

from userrl_core.errors import CheckpointError, UserRLError

T = TypeVar("T")

SECONDS = 5
"""Time limit of one rendering, which normally takes milliseconds."""

_BYTES, _CHARACTERS, _WALL = 2**30, 10**6, 60.0
"""Limits of the process that tries a template: memory, output, and seconds on a busy machine."""

_USER = {"role": "user", "content": "Hi."}
_ASSISTANT = {"role": "assistant", "content": "Hello."}
_CONVERSATIONS: list[list[dict[str, str]]] = [
    [{"role": "system", "content": "Help."}, _USER],
    [_USER, _ASSISTANT, {"role": "tool", "content": "22"}],
    [_USER, _ASSISTANT, _USER, _ASSISTANT, _USER],
]


@lru_cache(64)
def refuse_endless(template: str, where: str) -> None:
    """Raise CheckpointError for a template whose rendering needs too much time, memory or output. where: its place,
    for the message.
    """
    with suppress(subprocess.TimeoutExpired):
        command = [sys.executable, "-m", __name__, str(SECONDS)]
        process = subprocess.run(
            command, input=json.dumps(template), text=True, capture_output=True, timeout=_WALL, check=False
        )
        if process.returncode == 0:
            return
    raise CheckpointError(
        "checkpoint.bad_tokenizer",
        f"The chat template of {where} does not finish within {SECONDS} s and {_BYTES >> 30} GiB. Use another "
        "checkpoint, or correct its chat_template.",
    )


class _TimeIsUp(BaseException):
    """An exception raised within a rendering. Not an `Exception`, which a template's caller may catch."""


def within(seconds: float, error: UserRLError, function: Callable[[], T]) -> T:
    """Call the function and return its result; raise the error when it takes longer than `seconds`.

    Unlike a signal this works in every thread. It ends Python code only: one long call of C runs to its end.
    """
    thread = ctypes.c_ulong(threading.get_ident())
    lock = threading.Lock()
    has_ended = fired = False

    def fire() -> None:
        nonlocal fired
        with lock:
            if not has_ended:
                fired = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(_TimeIsUp))

    timer = threading.Timer(seconds, fire)
    timer.daemon = True
    try:
        try:
            timer.start()
            return function()
        finally:
            timer.cancel()
            with lock:
                has_ended = True
            if fired:  # it may not have arrived yet, and must not arrive later
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, None)
    except _TimeIsUp:
        raise error from None


def _try(template: str, seconds: int) -> int:
    """Render the template as transformers does. Return 0 where it ends, even with an error, which its first use will report."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    try:
        _render_all(template)
    except (MemoryError, OverflowError):
        return 1
    except Exception:  # noqa: BLE001  whatever else a template raises, it has ended
        return 0
    return 0


def _render_all(template: str) -> None:
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """The template block that marks the agent's tokens."""

        tags = {"generation"}  # noqa: RUF012  jinja declares it so

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body)

    def raise_exception(message: str) -> None:
        raise ValueError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False)
    environment.globals |= {"raise_exception": raise_exception, "strftime_now": lambda form: "01 Jan 2026"}
    compiled = environment.from_string(template)
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
    for messages in _CONVERSATIONS:
        for tools in (None, [tool]):
            with suppress(ValueError, TypeError, KeyError, AttributeError):
                values = {"messages": messages, "tools": tools, "add_generation_prompt": True}
                characters = 0
                for part in compiled.generate(**values, bos_token="", eos_token="", pad_token=""):
                    characters += len(part)
                    if characters > _CHARACTERS:
                        raise MemoryError


if __name__ == "__main__":
    sys.exit(_try(json.loads(sys.stdin.read()), int(sys.argv[1])))
