"""The verb ``play``, whose work is in the package `userrl-people`."""

from __future__ import annotations

from typing import Any

from userrl.machine.separate import part
from userrl_core.records import Trajectory


def play(gym: str, **options: Any) -> Trajectory:
    """Hold one conversation with a person, log it in the run ``people``, and return it.

    options: side (agent or user: the person's part), task, split, seed, turns, model, base_url, run, skill, person, console,
    after_turn, as `userrl_people.alone.play` explains them. Raises ConfigError or GymError with one sentence.
    """
    trajectory: Trajectory = part("userrl-people", "alone").play(gym, **options)
    return trajectory
