"""The formats that `userrl import` reads, and the recognition of a file's format by its first object."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

from analysis.foreign.chats import read_chats
from analysis.foreign.conversation import ForeignConversation
from analysis.foreign.inspect_log import read_inspect
from analysis.foreign.nemo_gym import read_nemo_gym
from analysis.foreign.tau import read_tau2, read_tau_bench
from analysis.foreign.verifiers import read_verifiers
from userrl_core.chats.message import ROLES
from userrl_core.chats.stream import CHUNK, JsonStream
from userrl_core.chats.values import broken
from userrl_core.errors import ConfigError
from userrl_core.suggest import nearest
from userrl_core.user_path import open_file

Reader = Callable[[Path], Iterator[ForeignConversation]]
"""A reader of one format. It raises ConfigError with the place of the first problem."""

OURS = "userrl"
"""Our own exports, which `warehouse.upkeep.exchange.conversations` reads."""
AUTO = "auto"
READERS: Mapping[str, Reader] = {
    "tau2": read_tau2,
    "tau-bench": read_tau_bench,
    "inspect": read_inspect,
    "verifiers": read_verifiers,
    "nemo-gym": read_nemo_gym,
    "openai-chat": read_chats,
    "sharegpt": read_chats,
}
NOT_TEXT: Mapping[bytes, str] = {
    **dict.fromkeys((b"\x1f\x8b\x08", b"BZh", b"\xfd7z", b"\x28\xb5\x2f"), " It is compressed: unpack it first."),
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff"), " It is UTF-16 or UTF-32 text: save it as UTF-8."),
}
"""What to do with files that begin so: those of gzip, bzip2, xz and zstandard, and texts of two or four bytes a character."""
FORMATS = (AUTO, *READERS, OURS)

_DECISIVE: Mapping[str, str] = {
    "simulations": "tau2",
    "traj": "tau-bench",
    "eval": "inspect",
    "samples": "inspect",
    "traces": "verifiers",
    "nodes": "verifiers",
    "completion": "verifiers",
    "responses_create_params": "nemo-gym",
    "conversations": "sharegpt",
    OURS: OURS,
}
"""Keys of a file's first object that occur in one format alone."""


def recognised(path: Path, format: str = AUTO) -> str:
    """Return the format of a file. format: a format that is known already, or ``auto``.

    Raises ConfigError for an unknown name, a missing file, and a file in no format that we read.
    """
    if format not in FORMATS:
        raise ConfigError(
            "argument.unknown_value",
            f"There is no format '{format}'{nearest(format, FORMATS)}. Use one of {', '.join(FORMATS)}.",
        )
    try:
        with open_file(path) as file:
            start = file.read(CHUNK)
            file.seek(0)
            if format != AUTO:
                return format
            detected, keys = _from_start(start), list[str]()
            if detected is None:
                detected, keys = _from_keys(file, str(path))
    except OSError as error:
        raise ConfigError("file.unreadable", f"{path} cannot be read: {error.strerror or error}.") from None
    if detected is None and not start.strip():
        raise ConfigError("import.unknown_format", f"{path} is empty. Give a file with at least one conversation.")
    if detected is None:
        contents = f" Its first object has the keys {', '.join(keys)}." if keys else ""
        remedy = next((sentence for magic, sentence in NOT_TEXT.items() if start.startswith(magic)), "")
        raise ConfigError(
            "import.unknown_format",
            f"{path} is in no format that can be imported.{remedy}{contents} Give --format if it is one of "
            f"{', '.join(FORMATS[1:])}, or convert it to JSON lines with 'messages'.",
        )
    return detected


def conversations(path: Path, format: str) -> Iterator[ForeignConversation]:
    """Yield the conversations of a file in this format. Raises ConfigError at the first problem, and at the end of a file
    without a conversation, without words, or without a turn where roles are unknown or other fields may hold the turns.
    """
    first, silent, turns, misread = None, True, 0, None
    try:
        for item in READERS[format](path):
            first = first or item
            silent = silent and bool(item.silent)
            turns += len(item.turns)
            misread = misread or (item if item.misread else None)
            yield item
    except RecursionError:
        broken(str(path), "it is nested too deeply")
    if first is None:
        broken(str(path), "the file has no conversation")
    if silent:
        broken(first.where, first.silent)
    if misread and not turns:
        broken(
            misread.where, f"{misread.misread}. The agent's messages have the role assistant; use {', '.join(ROLES)}"
        )


def _from_start(start: bytes) -> str | None:
    return "inspect" if start[:2] == b"PK" else OURS if start[:4] == b"PAR1" else None


def _from_keys(file: IO[bytes], name: str) -> tuple[str | None, list[str]]:
    """Return the format by the keys of the first object, None if no key decides; and these keys."""
    stream = JsonStream(file, name, "replace")  # the reader will say where the text is not UTF-8
    if stream.peek() == "[":
        first = next(stream.elements(), None)
        keys = first[1] if first is not None and isinstance(first[1], dict) else {}
    elif stream.peek() == "{":
        keys = {}
        for key in stream.names():
            if key in _DECISIVE:
                return _DECISIVE[key], []
            keys[key] = None
            stream.skip()
    else:
        return None, []
    format_name = next((_DECISIVE[key] for key in keys if key in _DECISIVE), None)
    return format_name or ("openai-chat" if "messages" in keys else None), list(keys)
