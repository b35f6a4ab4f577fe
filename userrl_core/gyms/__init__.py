"""Gyms: environments with tasks and a simulated user (UserRL section 2 and appendix C). Each gym has its own folder."""

from userrl_core.gyms.base import Gym, GymConfig, Reply, RewardBounds, StepResult
from userrl_core.gyms.registry import (
    demonstrator_class,
    generate,
    gym_class,
    load_published,
    make,
    min_turns,
    names,
    tasks,
)

__all__ = [
    "Gym",
    "GymConfig",
    "Reply",
    "RewardBounds",
    "StepResult",
    "demonstrator_class",
    "generate",
    "gym_class",
    "load_published",
    "make",
    "min_turns",
    "names",
    "tasks",
]
