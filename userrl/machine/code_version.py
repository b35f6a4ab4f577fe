"""The version of this code, as runs record it."""

from __future__ import annotations

import subprocess
from pathlib import Path


def code_version() -> str:
    """Return the commit of the working tree, with ``+`` if it has changes; "" outside git."""
    command = ["git", "describe", "--always", "--dirty=+"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=5, cwd=Path(__file__).parent, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
