"""Paths as people write them."""

from __future__ import annotations

from pathlib import Path


def user_path(text: str | Path) -> Path:
    """Return a path with a leading ``~`` expanded. ``~name`` of no user stays: no such file exists, as its reader says."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)
