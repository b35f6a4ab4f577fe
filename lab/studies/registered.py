"""Plans of registered studies, and their hashes.

A plan's hash is that of its bytes. Each row has it, so that runs of another plan are told apart.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import yaml


def read_plan(path: Path) -> dict[str, Any]:
    """Return the plan of a study."""
    plan: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return plan


def plan_hash(path: Path) -> str:
    """Return the hash of a plan, in 16 hex digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def plans(path: Path) -> list[str]:
    """Return the hashes of a plan and of those that it amends, newest first. Their runs are shown together."""
    return [plan_hash(path), *read_plan(path).get("amends", [])]
