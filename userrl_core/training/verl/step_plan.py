"""What a stage will train on, written down once: tasks of every step, and the horizons that are known when it begins.

verl reads a file and asks nobody, so the curriculum is asked for the whole stage when it begins. A stage that is started
again reads the same plan, whatever became of the curriculum meanwhile. Tasks lie beside the plan, each once; a row of the
training file only names its task. A horizon that depends on how the stage itself goes is decided as the step before ends, by
the process that started verl, and left in a file that the agent loops read.
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
from userrl_core.json_files import GrowingLines, write_json
from userrl_core.records import Task
from userrl_core.training.protocols import Curriculum, History

HORIZONS = "horizons.jsonl"
"""File in a stage's folder with the horizons that were decided while it went on."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """horizons: of the steps where it is known when the stage begins. steps: per step, the keys of its tasks in order.

    tasks: by key. state: the curriculum's, after.
    """

    horizons: Mapping[int, int]
    steps: Mapping[int, Sequence[str]]
    tasks: Mapping[str, Task]
    state: Mapping[str, Any]

    @property
    def decided(self) -> bool:
        """Whether horizons are decided while the stage goes on."""
        return len(self.horizons) < len(self.steps)

    def tasks_from(self, step: int) -> list[Task]:
        """Tasks of this step and all later ones, in order."""
        return [self.tasks[key] for s in sorted(self.steps) if s >= step for key in self.steps[s]]


def plan_steps(folder: Path, curriculum: Curriculum, first: int, last: int, batch: int) -> StepPlan:
    """The plan of steps first to last: read where an earlier start left it, else drawn and written.

    Raises ConfigError where a step's tasks would depend on how the stage itself goes: verl cannot be told in between.
    """
    path = folder / "plan.json"
    if path.exists():
        return read_step_plan(folder)
    horizons: dict[int, int] = {}
    steps: dict[int, list[str]] = {}
    tasks: dict[str, Task] = {}
    for step in range(first, last + 1):
        with suppress(ConfigError):  # it depends on steps of this stage
            horizons[step] = curriculum.horizon(step, ())
        try:
            drawn = curriculum.draw(step, batch)
        except ConfigError as error:
            raise _not_yet(step, error) from error
        if len(drawn) != batch:
            raise TaskError(f"Step {step} has {len(drawn)} tasks for a batch of {batch}; lower algorithm.batch.")
        tasks.update({task.key: task for task in drawn})
        steps[step] = [task.key for task in drawn]
    plan = StepPlan(horizons, steps, tasks, curriculum.state_dict())
    write_tasks(folder / "tasks.jsonl", tasks.values())
    write_json(path, {"horizons": horizons, "steps": steps, "state": plan.state})
    return plan


def refuse_stage(stage_of: Callable[[int, History], object], first: int, last: int) -> None:
    """Raise ConfigError, before anything was spent, where `plan_steps` would for these steps.

    stage_of: what a step's tasks are drawn by, under a history. When a stage begins, all steps before it are recorded and none
    of its own.
    """
    before: list[dict[str, float | None]] = [{"step": float(step), "success": 0.0} for step in range(1, first)]
    for step in range(first, last + 1):
        try:
            stage_of(step, before)
        except ConfigError as error:
            raise _not_yet(step, error) from error


def _not_yet(step: int, error: ConfigError) -> ConfigError:
    return ConfigError(
        f"With backend=verl the tasks of a stage are drawn when it begins, and step {step} has no stage yet ({error}); give the "
        "gate to an adaptive schedule in place of a stage, or train with backend=local."
    )


def decide_horizon(folder: Path, step: int, turns: int) -> None:
    """Tell the agent loops the horizon of a step."""
    with (folder / HORIZONS).open("a") as file:
        file.write(json.dumps({"step": step, "turns": turns}) + "\n")


def decided_horizon(folder: Path, step: int) -> int | None:
    """The horizon that was decided for a step, the newest word; None before there is one."""
    turns = [int(line["turns"]) for line in GrowingLines(folder / HORIZONS) if int(line["step"]) == step]
    return turns[-1] if turns else None


def read_step_plan(folder: Path) -> StepPlan:
    """The plan that lies in a stage's folder."""
    written = json.loads((folder / "plan.json").read_text())
    return StepPlan(
        {int(step): int(turns) for step, turns in written["horizons"].items()},
        {int(step): tuple(keys) for step, keys in written["steps"].items()},
        read_tasks(str(folder / "tasks.jsonl")),
        written["state"],
    )


def write_tasks(path: Path, tasks: Any) -> None:
    """Tasks as JSON lines, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("w", encoding="utf-8") as file:
        for task in tasks:
            file.write(json.dumps({**asdict(task), "payload": dict(task.payload)}, ensure_ascii=False) + "\n")
    partial.replace(path)


@lru_cache(maxsize=8)
def read_tasks(path: str) -> Mapping[str, Task]:
    """Tasks by key; read once per process."""
    with Path(path).open(encoding="utf-8") as file:
        tasks = [Task(**json.loads(line)) for line in file]
    return {task.key: task for task in tasks}
