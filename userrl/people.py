"""The verb ``play``, whose work is in the package `userrl-people`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from userrl.machine.separate import part
from userrl_core.records import Trajectory, Turn


def play(
    gym: str,
    *,
    side: Literal["agent", "user"] = "agent",
    task: str | None = None,
    split: str = "train",
    seed: int = 0,
    turns: int = 16,
    model: str | None = None,
    base_url: str | None = None,
    run: str | None = None,
    skill: float = 0.7,
    person: str = "",
    console: Any = None,
    after_turn: Callable[[Turn, Trajectory, bool], None] | None = None,
) -> Trajectory:
    """Hold one conversation with a person, log it in the run ``people``, and return it.

    side: the person's part. task: an id or the beginning of one; by default the seed draws a task of the split. turns:
    maximum number of turns. model, base_url: a served model on the other side. run: a run whose checkpoint plays the agent.
    skill: the scripted agent's skill. person: a pseudonym. console: where the person reads and types; by default the
    terminal. after_turn: called after each turn with the turn, the conversation so far and whether it was the last. Raises
    ConfigError or GymError with one sentence.
    """
    values = {
        "gym": gym, "side": side, "task": task, "split": split, "seed": seed, "turns": turns, "model": model,
        "base_url": base_url, "run": run, "skill": skill, "person": person,
    }  # fmt: skip
    trajectory: Trajectory = part("userrl-people", "alone").play(values, console, after_turn)
    return trajectory
