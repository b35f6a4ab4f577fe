"""Names of fields that hold API keys and passwords."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

_NAME = re.compile(
    r"(?:^|[._-])x?(?:api|access|auth|secret|client)?"
    r"(?:key|token|passwd|password|pwd|secret(?:key)?|credentials?|authorization|bearer)$",
    re.IGNORECASE,
)
_REQUEST_FIELD = re.compile(r"(?:^|_)(?:cache_key|sort_key|(?:bos|eos|pad|stop)_token)$")
"""Names of fields of a request that end like a key's."""
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_OTHER_KEY = re.compile(r"(?<!api)(?<!api[_-])(?:key|token)$", re.IGNORECASE)
_LONG_WORD = re.compile(r"(?=.*\d)[\w.~+/=-]{16,}")


def names_a_key(name: str) -> bool:
    """Return whether a field has a key's name: ``api_key``, ``apikey``, ``openaiApiKey``, ``hf_token``, ``Authorization``."""
    return bool(_NAME.search(_HUMP.sub("_", name))) and not _REQUEST_FIELD.search(name)


def holds_a_key(name: str, value: Any) -> bool:
    """Return whether a field in another tool's file holds a key. A short text or a list under a name such as ``answer_key`` or
    ``eos_token`` is none, and a shell's ``pwd`` is a folder.
    """
    if not names_a_key(name) or name.lower() == "pwd" or not isinstance(value, str | list | dict) or not value:
        return False
    return not _OTHER_KEY.search(name) or (isinstance(value, str) and bool(_LONG_WORD.fullmatch(value)))


def fits_a_header(key: str) -> bool:
    """Return whether HTTP can send a key or token. A line end, as of a file that was read whole, ends a header."""
    return key.isascii() and key.isprintable()


def without_keys(value: Any, removed: Counter[str]) -> Any:
    """Return a value of JSON with "" for each key that it holds at any depth. removed: counts them by name."""
    if isinstance(value, Mapping):
        names = [name for name, item in value.items() if holds_a_key(name, item)]
        removed.update(f"value of {name}" for name in names)
        return {name: "" if name in names else without_keys(item, removed) for name, item in value.items()}
    return [without_keys(item, removed) for item in value] if isinstance(value, list) else value
