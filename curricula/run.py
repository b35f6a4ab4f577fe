"""A recipe in motion: horizon, stage and tasks of every step, for a trainer (its ``Curriculum``)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from curricula.recipe import PlannedStage, Recipe
from curricula.sampler import TaskSampler
from userrl_core.errors import ConfigError
from userrl_core.gyms.registry import load_published, tasks
from userrl_core.records import Task

SUCCESS = ("success", "rollout/success/mean")
"""Names under which a step's success rate is looked for among its metrics."""

TasksOf = Callable[[str, Mapping[str, Any]], Sequence[Task]]
"""The RL tasks of a gym under given task options."""


def training_tasks(recipe: Recipe, used: Collection[str] = ()) -> TasksOf:
    """The training split of every gym as the recipe sets it up, without the tasks whose keys are in ``used``.

    used: keys of the tasks that became demonstrations; they leave the RL set (UserRL section 4.1).
    """
    taken = frozenset(used)

    def tasks_of(gym: str, options: Mapping[str, Any]) -> Sequence[Task]:
        setup = recipe.gym(gym)
        if setup.published is not None:
            found: Sequence[Task] = [task for task in load_published(gym, setup.published) if task.split == "train"]
        else:
            found = tasks(gym, "train", **{**setup.tasks, **options})
        return [task for task in found if task.key not in taken]

    return tasks_of


class RunCurriculum:
    """Draws every step's tasks and answers for its horizon. Its whole state is JSON and goes into the checkpoint."""

    def __init__(self, recipe: Recipe, tasks_of: TasksOf, seed: int = 0) -> None:
        """tasks_of: see `training_tasks`. Raises ConfigError where a stage's gym has no task left."""
        self.recipe = recipe
        self.history: list[dict[str, float]] = []
        self._tasks_of = tasks_of
        self._stage = 0
        self._sampler: TaskSampler | None = None
        self._seed = seed

    def horizon(self, step: int, history: Sequence[Mapping[str, float]] = ()) -> int:
        """The most turns in this step; what was recorded here decides for gates where no history is given."""
        return self.recipe.schedule.horizon(step, _successes(history) if history else self.history)

    def stage_of(self, step: int) -> str:
        """The stage's name, ``rl-1`` ... ``rl-n``."""
        return self._planned(step).name

    def draw(self, step: int, n: int) -> list[Task]:
        """The next n distinct tasks of this step's mix; advances the sampler."""
        planned = self._planned(step)
        sampler = self._enter(planned)
        weights = planned.mix(step)
        if planned.stage.weigh == "tasks" and not planned.stage.alternate:
            weights = {"all": 1.0}
        return sampler.batch(n, weights, oversample=planned.stage.oversample)

    def record(self, step: int, stats: Mapping[str, float]) -> None:
        """The step is complete; its success rate is what gates read. Recording a step again replaces what followed it."""
        self.history = [entry for entry in self.history if entry["step"] < step]
        self.history += _successes([{"step": step, **stats}])

    def observe(self, task_key: str, success: float) -> None:
        """The share of a task's group that succeeded, for the oversampling of mixed groups."""
        if self._sampler is not None:
            self._sampler.observe(task_key, success)

    def metrics(self) -> dict[str, float]:
        """How far the epochs are."""
        return self._sampler.metrics() if self._sampler is not None else {}

    def state_dict(self) -> dict[str, Any]:
        """Everything that `draw` and the gates depend on, JSON-able."""
        sampler = self._sampler.state_dict() if self._sampler is not None else None
        return {"stage": self._stage, "history": [dict(entry) for entry in self.history], "sampler": sampler}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where `state_dict` was taken. Raises ConfigError when recipe or tasks are others."""
        self.history = [dict(entry) for entry in state["history"]]
        self._stage, self._sampler = 0, None
        if state["sampler"] is None:
            return
        number = int(state["stage"])
        if not 1 <= number <= len(self.recipe.stages):
            raise ConfigError(f"The checkpoint is in stage {number}, which recipe '{self.recipe.name}' lacks.")
        self._use(number).load_state_dict(state["sampler"])

    def _planned(self, step: int) -> PlannedStage:
        return self.recipe.stage_of(step, self.history)

    def _enter(self, planned: PlannedStage) -> TaskSampler:
        """The sampler with the pools of the stage; pools that stay the same go on where they were."""
        number = next(i for i, stage in enumerate(self.recipe.stages, 1) if stage is planned.stage)
        if self._sampler is None or number != self._stage:
            return self._use(number)
        return self._sampler

    def _use(self, number: int) -> TaskSampler:
        stage = self.recipe.stages[number - 1]
        pools = {gym: self._tasks_of(gym, stage.tasks.get(gym, {})) for gym in stage.gyms}
        for gym, found in pools.items():
            if not found:
                raise ConfigError(
                    f"Gym '{gym}' has no RL task left in stage {number}; lower demonstrations.top_k or mix others."
                )
        if stage.weigh == "tasks" and not stage.alternate:
            pools = {"all": [task for found in pools.values() for task in found]}
        if self._sampler is None:
            self._sampler = TaskSampler(pools, self._seed)
        else:
            self._sampler.use(pools)
        self._stage = number
        return self._sampler


def _successes(history: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """Step and success rate of every entry; 0 where a step reports none, which opens no gate."""
    return [
        {"step": entry["step"], "success": next((float(entry[key]) for key in SUCCESS if key in entry), 0.0)}
        for entry in history
    ]
