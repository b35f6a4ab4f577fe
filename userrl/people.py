"""Conversations with people, which are a separate package (`packages/userrl-people`)."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from userrl_core.errors import ConfigError
from userrl_core.installed.same_name import offered
from userrl_core.records import Trajectory


def installed() -> bool:
    """Return whether the package is installed."""
    return "people" in offered("userrl.people")


def part(module: str) -> ModuleType:
    """Import a module of the package. Raises ConfigError if the package is not installed."""
    if not installed():
        raise ConfigError(
            "install.missing",
            "Conversations with people are a separate package. Install it with pip install ./packages/userrl-people.",
        )
    (point, *_) = offered("userrl.people")["people"]
    return import_module(f"{point.value}.{module}")


def play(gym: str, **options: Any) -> Trajectory:
    """Hold one conversation with a person, log it in the run ``people``, and return it.

    options: side (agent or user: the person's part), task, split, seed, turns, model, base_url, run, skill, person, console,
    after_turn, as `userrl_people.alone.play` explains them. Raises ConfigError or GymError with one sentence.
    """
    trajectory: Trajectory = part("alone").play(gym, **options)
    return trajectory
