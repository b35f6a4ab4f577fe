"""A stage's plan, written down once: tasks of every step, and the horizons that are known when it begins.

verl reads a file and cannot ask the curriculum, so the curriculum plans the whole stage when it begins. A restarted
stage reads the same plan, whatever happened to the curriculum in between. The tasks are stored next to the plan, each
once; a row of the training file only names its task. A horizon, and the tasks that a task curriculum chooses, may depend
on the progress of the stage itself. The process that started verl decides them when the previous step ends, and writes
them to a file that the agent loops read. verl's own curriculum samplers choose from its table of rows inside its process,
which knows no outcome of a conversation that was not admitted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from userrl_core.errors import ConfigError, TaskError
from userrl_core.gyms.taskfile import read_tasks, write_tasks
from userrl_core.json_files import write_json
from userrl_core.records import Task
from userrl_core.training.protocols import Curriculum, History

HORIZONS = "horizons.jsonl"
"""File in a stage's folder with the horizons and tasks that were decided during the stage."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The plan of a stage. horizons: of the steps where it is known when the stage begins. steps: the keys of each
    step's tasks, in order.

    tasks: by key. state: the curriculum's state after the plan. chosen: the tasks of each step are chosen when the previous
    one has ended, and `steps` has any tasks in their places.
    """

    horizons: Mapping[int, int]
    steps: Mapping[int, Sequence[str]]
    tasks: Mapping[str, Task]
    state: Mapping[str, Any]
    chosen: bool = False

    @property
    def decided(self) -> bool:
        """Return True if horizons or tasks are decided during the stage."""
        return self.chosen or len(self.horizons) < len(self.steps)

    def tasks_from(self, step: int) -> list[Task]:
        """Return the tasks of this step and all later ones, in order."""
        return [self.tasks[key] for s in sorted(self.steps) if s >= step for key in self.steps[s]]


def plan_steps(folder: Path, curriculum: Curriculum, first: int, last: int, batch: int) -> StepPlan:
    """Return the plan of steps first to last: read from an earlier start, else drawn and written.

    Raises ConfigError where a step's tasks would depend on the progress of the stage itself: verl cannot be told in between.
    """
    path = folder / "plan.json"
    if path.exists():
        return read_step_plan(folder)
    horizons: dict[int, int] = {}
    steps: dict[int, list[str]] = {}
    choices = curriculum.choices(first)
    tasks = {task.key: task for task in choices or ()}
    for step in range(first, last + 1):
        with suppress(ConfigError):  # it depends on steps of this stage
            horizons[step] = curriculum.horizon(step, ())
        try:
            drawn = curriculum.draw(step, batch) if choices is None else choices[:batch]
        except ConfigError as error:
            raise _not_yet(step, error) from error
        if len(drawn) != batch:
            raise TaskError(
                "task.none_left", f"Step {step} has {len(drawn)} tasks for a batch of {batch}. Lower algorithm.batch."
            )
        tasks.update({task.key: task for task in drawn})
        steps[step] = [task.key for task in drawn]
    plan = StepPlan(horizons, steps, tasks, curriculum.state_dict(), chosen=choices is not None)
    write_tasks(folder / "tasks.jsonl", tasks.values())
    write_json(path, {"horizons": horizons, "steps": steps, "state": plan.state, "chosen": plan.chosen})
    return plan


def refuse_stage(stage_of: Callable[[int, History], object], first: int, last: int) -> None:
    """Raise ConfigError in advance where `plan_steps` would for these steps.

    stage_of: the source of a step's tasks, given a history. When a stage begins, all earlier steps are recorded, but
    not its own.
    """
    before: list[dict[str, float | None]] = [{"step": float(step), "success": 0.0} for step in range(1, first)]
    for step in range(first, last + 1):
        try:
            stage_of(step, before)
        except ConfigError as error:
            raise _not_yet(step, error) from error


def _not_yet(step: int, error: ConfigError) -> ConfigError:
    return ConfigError(
        "training.backend_cannot",
        f"With backend=verl the tasks of a stage are drawn when it begins, and step {step} has no stage yet "
        f"({error}). Give the gate to an adaptive schedule instead of a stage, or train with backend=local.",
    )


@dataclass(frozen=True, slots=True)
class Decision:
    """The horizon of a step, and the keys of its tasks in the order of verl's rows; none where the plan has them."""

    turns: int
    tasks: Sequence[str] = ()


def decide(folder: Path, step: int, decision: Decision) -> None:
    """Announce a step's horizon and tasks to the agent loops."""
    with (folder / HORIZONS).open("a") as file:
        file.write(json.dumps({"step": step, **asdict(decision)}) + "\n")


def decided(folder: Path, step: int) -> Decision | None:
    """Return the last decision about a step; None before there is one.

    Every conversation asks, so only lines of this step and of later ones are parsed.
    """
    try:
        whole_lines, _, _ = (folder / HORIZONS).read_text(encoding="utf-8").rpartition("\n")
    except FileNotFoundError:
        return None
    for line in reversed(whole_lines.splitlines()):
        decision = json.loads(line)
        if decision["step"] == step:
            return Decision(int(decision["turns"]), decision.get("tasks", ()))
        if decision["step"] < step:
            return None
    return None


def read_step_plan(folder: Path) -> StepPlan:
    """Return the plan in a stage's folder."""
    values = json.loads((folder / "plan.json").read_text())
    return StepPlan(
        {int(step): int(turns) for step, turns in values["horizons"].items()},
        {int(step): tuple(keys) for step, keys in values["steps"].items()},
        tasks_by_key(str(folder / "tasks.jsonl")),
        values["state"],
        values.get("chosen", False),  # plans of earlier versions have drawn all tasks
    )


@lru_cache(maxsize=8)
def tasks_by_key(path: str) -> Mapping[str, Task]:
    """Return the tasks of a file by key; read once per process."""
    return {task.key: task for task in read_tasks(Path(path))}
