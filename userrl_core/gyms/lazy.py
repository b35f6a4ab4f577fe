"""User factories that import their module on first use. A gym with rule users then never loads the model server's client.

For start-up time only. This file and the registry are the only places where the core imports its own modules late.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from importlib import import_module
from typing import Any

from userrl_core.records import Task

UserFactory = Callable[..., Any]


def lazily(path: str) -> UserFactory:
    """Return a factory ``(task, rng, **options) -> user`` for the class at ``module:Class``, imported at the first call."""

    def make(task: Task, rng: random.Random, **options: Any) -> Any:
        module, _, name = path.partition(":")
        return getattr(import_module(module), name)(task, rng, **options)

    return make
