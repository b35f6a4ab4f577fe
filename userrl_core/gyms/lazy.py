"""User factories that import their module on first use: a gym with rule users then never loads a model server's client.

This and the registry are the only places where the core imports its own modules late, for the time of start-up.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from importlib import import_module
from typing import Any

from userrl_core.records import Task

UserFactory = Callable[..., Any]


def lazily(path: str) -> UserFactory:
    """A factory ``(task, rng, **options) -> user`` for the class at ``module:Class``, imported when it is first called."""

    def make(task: Task, rng: random.Random, **options: Any) -> Any:
        module, _, name = path.partition(":")
        return getattr(import_module(module), name)(task, rng, **options)

    return make
