"""The recipe as a trainer sees it: horizons, stages and tasks by step, resumable."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from curricula.recipe import PlannedStage, Recipe
from curricula.sampler import TaskSampler
from flows.run.tasks import rl_tasks
from userrl_core.records import Task
from userrl_core.training.protocols import History

SHUFFLED = "all"
"""Name of the one pool when a stage weighs tasks, not gyms."""


class RecipeCurriculum:
    """Implements `userrl_core.training.protocols.Curriculum` over a recipe's schedule, mix and sampler."""

    def __init__(self, recipe: Recipe, used: Collection[str], seed: int, branch: str = "") -> None:
        """used: keys of the tasks that demonstrations took out of the RL set. branch: the one that is trained."""
        self._recipe, self._branch = recipe, branch
        self._used = frozenset(used)
        self._history: list[dict[str, float | None]] = []
        self._stage = 0
        self._sampler = TaskSampler({}, seed)

    def horizon(self, step: int, history: History) -> int:
        """The most turns in this step."""
        if self._branch:
            return self._at(step).horizon or 1
        return self._recipe.schedule.horizon(step, list(history) or self._history)

    def stage_of(self, step: int) -> str:
        """``rl-1`` ... ``rl-n``."""
        return self._at(step).name

    def draw(self, step: int, n: int) -> list[Task]:
        """The next n tasks in the shares of the step's mix."""
        stage = self._at(step)
        if stage.number != self._stage:
            self._enter(stage)
        mix = stage.mix(step)
        if stage.stage.weigh == "tasks" and not stage.stage.alternate:
            mix = {SHUFFLED: 1.0}
        return self._sampler.batch(n, mix, oversample=stage.stage.oversample, by_tokens=stage.stage.weigh == "tokens")

    def record(self, step: int, stats: Mapping[str, float]) -> None:
        """Note the step's success, for gates; None where no trajectory of the step could be scored."""
        self._history.append({"step": float(step), "success": stats.get("rollout/success/mean")})

    def observe(self, task_key: str, success: float, tokens: float | None = None) -> None:
        """Tell the sampler how a task's group went."""
        self._sampler.observe(task_key, success, tokens)

    def metrics(self) -> dict[str, float]:
        """How far the epochs are."""
        return self._sampler.metrics()

    def state_dict(self) -> dict[str, Any]:
        """The history, the stage that was entered, and the sampler's position."""
        return {"history": self._history, "stage": self._stage, "sampler": self._sampler.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self._history = [dict(entry) for entry in state["history"]]
        number = int(state["stage"])
        if number:
            self._enter(next(stage for stage in self._recipe.planned_stages if stage.number == number))
            self._sampler.load_state_dict(state["sampler"])

    def _at(self, step: int) -> PlannedStage:
        return self._recipe.stage_of(step, self._history, self._branch)

    def _enter(self, stage: PlannedStage) -> None:
        self._stage = stage.number
        pools: dict[str, list[Task]] = {}
        for gym in stage.stage.gyms:
            options = {**self._recipe.gym(gym).tasks, **stage.stage.tasks.get(gym, {})}
            pools[gym] = rl_tasks(self._recipe, gym, self._used, options)
        if stage.stage.weigh == "tasks" and not stage.stage.alternate:
            pools = {SHUFFLED: [task for tasks in pools.values() for task in tasks]}
        self._sampler.use(pools)
