"""User factories that import their module on first use, so that a gym starts without the client of a model server."""

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
