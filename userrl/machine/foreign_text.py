"""Text of models, users and files, made safe for a terminal and a page."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from userrl_core.json_files import json_text

_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except newline and tab (escape sequences begin with one), marks that reverse the order of letters, and
halves of characters, which cannot be printed.
"""


def plain(text: str) -> str:
    r"""Replace every control character by its code, such as ``\x1b``."""
    return _UNSEEN.sub(lambda match: _written(match.group()), text)


def plain_json(value: Any, indent: int | None = None, default: Callable[[Any], Any] = str) -> str:
    """Return `json_text` for a terminal: characters that it would interpret are escaped, which JSON readers undo."""
    text = json_text(value, indent=indent, default=default)
    return _UNSEEN.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def _written(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
