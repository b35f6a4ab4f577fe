"""Imports without packages that others import if they are installed, for features that we do not use."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def left_out(*packages: str) -> Iterator[None]:
    """Let imports of these packages fail here. A package that is already imported stays."""
    absent = [package for package in packages if package not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]  # None makes Python's import fail
    try:
        yield
    finally:
        for package in absent:
            del sys.modules[package]
