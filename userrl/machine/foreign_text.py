"""Text of models, users and files: shown and never obeyed, on a terminal and on a page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but newline and tab (escape sequences begin with one), marks that turn the order of letters around,
and halves of characters, which cannot be printed at all."""


def plain(text: str) -> str:
    """The text with every control character written out, such as ``\\x1b``."""
    return _UNSEEN.sub(lambda match: _written(match.group()), text)


def plain_json(value: Any, indent: int | None = None, default: Callable[[Any], Any] = str) -> str:
    """JSON that reads the same for programs; characters that a terminal would obey are escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=default)
    return _UNSEEN.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def _written(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
