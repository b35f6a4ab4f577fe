"""The gyms: environments with tasks, in which a user answers (UserRL section 2 and appendix C). A folder each."""

from userrl_core.gyms.base import Gym, GymConfig, Pay, Reply, StepResult
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
    "Pay",
    "Reply",
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
