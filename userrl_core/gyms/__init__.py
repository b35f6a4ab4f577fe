"""The gyms: environments with tasks, in which a user answers (UserRL section 2 and appendix C)."""

# Loaded before the function of the same name is bound below: importing a subpackage sets it as an attribute of its parent,
# once, and must not replace the function later.
import userrl_core.gyms.tasks  # noqa: F401
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
