"""VoiceGym's tasks: TauGym's, ours and the published ones, with the same options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from userrl_core.gyms.tau import tasks as tau
from userrl_core.records import Task


def tasks(split: str, **options: Any) -> Sequence[Task]:
    """Return TauGym's tasks of a split."""
    return _spoken(tau.tasks(split, **options))


def generate(n: int, seed: int, **options: Any) -> list[Task]:
    """Return n of TauGym's tasks. Raises ConfigError if a domain's data gives fewer."""
    return _spoken(tau.generate(n, seed, **options))


def load_published(root: Path) -> list[Task]:
    """Return tau-bench's tasks. Raises TaskError."""
    return _spoken(tau.load_published(root))


def _spoken(tasks: Sequence[Task]) -> list[Task]:
    return [replace(task, gym="voice") for task in tasks]
