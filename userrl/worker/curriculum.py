"""The recipe in the form that a trainer uses: horizons, stages and tasks by step, resumable."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from curricula.recipe import PlannedStage, Recipe
from curricula.sampler import TaskSampler
from curricula.schedule import Probes
from curricula.task_curriculum import Oversample, TaskCurriculum
from userrl.run.tasks import rl_tasks
from userrl_core.records import Task
from userrl_core.training.protocols import History

RECORDED = {"signal": "groups/mixed/share", "entropy": "rollout/entropy/mean", "tokens": "tokens/all/sum"}
TIMES = {"cpu_seconds": "seconds/cpu/sum", "gpu_seconds": "seconds/gpu/sum"}
"""Recorded only if a gate needs it. Two runs of the same seed agree in everything else in a checkpoint."""

COUNTED = {"conversations": "rollout/attempts/count", "updates": "policy/updates/count"}
"""Recorded only if a gate counts in them, so that checkpoints of earlier runs keep their contents."""

SHUFFLED = "all"
"""Name of the only pool if a stage weighs tasks and not gyms."""


class RecipeCurriculum:
    """An implementation of `userrl_core.training.protocols.Curriculum` over a recipe's schedule, mix and sampler."""

    def __init__(self, recipe: Recipe, used: Collection[str], seed: int, branch: str = "", ahead: int = 0) -> None:
        """used: keys of the tasks that demonstrations took out of the RL set. branch: the branch to train.

        ahead: number of steps by which the recipe's numbering is ahead. Earlier stages with a limit in seconds took
        fewer steps than were reserved for them.
        """
        self._recipe, self._branch, self._ahead = recipe, branch, ahead
        self._used = frozenset(used)
        self._seed = seed
        self._history: list[dict[str, Any]] = []
        self._stage = 0
        self._drawn: tuple[int, set[str]] = 0, set()
        """The last step, and the keys of the tasks drawn for it. Groups without a signal are drawn again from the others."""
        estimating = recipe.curriculum if isinstance(recipe.curriculum, TaskCurriculum) else None
        self._sampler = TaskSampler({}, seed, estimating)
        self._timed = timed_gates(recipe)
        self._counted = counted_gates(recipe)

    def horizon(self, step: int, history: History, group: int | None = None) -> int:
        """Return the horizon of this step, or of a group of it."""
        # Our history holds all values that gates and probes read. A trainer's own list is shorter.
        recorded = self._history or history
        return self._recipe.horizon(step + self._ahead, recorded, group, seed=self._seed, branch=self._branch)

    def stage_of(self, step: int) -> str:
        """Return the stage of a step: ``rl-1`` ... ``rl-n``."""
        return self._at(step).name

    def draw(self, step: int, n: int) -> list[Task]:
        """Return the next n tasks in the proportions of the step's mix."""
        stage = self._at(step)
        # A new stage may have other gyms and task options, and then other pools.
        if stage.number != self._stage:
            self._enter(stage)
        mix = stage.mix(step + self._ahead)
        if stage.stage.weigh == "tasks" and not stage.stage.alternate:
            mix = {SHUFFLED: 1.0}
        curriculum = self._recipe.curriculum
        oversample = curriculum.share if isinstance(curriculum, Oversample) else stage.stage.oversample
        drawn = self._drawn[1] if self._drawn[0] == step else set()
        by_tokens = stage.stage.weigh == "tokens"
        tasks = self._sampler.batch(n, mix, oversample=oversample, by_tokens=by_tokens, last=drawn)
        self._drawn = step, drawn | {task.key for task in tasks}
        return tasks

    def choices(self, step: int) -> list[Task] | None:
        """Return all tasks of a step's stage if the curriculum chooses by pass rates."""
        if not isinstance(self._recipe.curriculum, TaskCurriculum):
            return None
        stage = self._at(step)
        if stage.number != self._stage:
            self._enter(stage)
        return self._sampler.tasks()

    def record(self, step: int, stats: Mapping[str, float], outcomes: Sequence[Sequence[tuple[int, int]]] = ()) -> None:
        """Record the values that gates use. success is None if no trajectory of the step could be scored."""
        values: dict[str, Any] = {"step": float(step), "success": stats.get("rollout/success/mean")}
        values |= {name: stats[metric] for name, metric in RECORDED.items() if metric in stats}
        turns, horizon = stats.get("rollout/turns/mean"), stats.get("curriculum/horizon/value")
        if turns is not None and horizon:
            # As a share of the horizon, so that a gate's threshold means the same in every stage.
            values["length"] = turns / horizon
        if self._timed:
            values |= {name: stats[metric] for name, metric in TIMES.items() if metric in stats}
        if self._counted:
            values |= {name: stats[metric] for name, metric in COUNTED.items() if metric in stats}
        if isinstance(self._recipe.schedule, Probes):
            largest = self._recipe.schedule.horizons[-1]
            values["groups"] = len(outcomes)
            # Only a conversation that was allowed the largest horizon shows how many turns a success needs.
            values["probes"] = [turns for group in outcomes for allowed, turns in group if allowed == largest]
        self._history.append(values)
        self._sampler.end_step()

    def observe(self, task_key: str, success: float, tokens: float | None = None, conversations: int = 1) -> None:
        """Report the result of a task's group to the sampler."""
        self._sampler.observe(task_key, success, tokens, conversations)

    def metrics(self) -> dict[str, float]:
        """Return the progress of the epochs."""
        return self._sampler.metrics()

    def state_dict(self) -> dict[str, Any]:
        """Return the history, the current stage, and the sampler's position."""
        return {"history": self._history, "stage": self._stage, "sampler": self._sampler.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self._history = [dict(entry) for entry in state["history"]]
        number = int(state["stage"])
        # 0 was stored before the first draw, when no pool was chosen yet.
        if number:
            self._enter(next(stage for stage in self._recipe.planned_stages if stage.number == number))
            self._sampler.load_state_dict(state["sampler"])

    def _at(self, step: int) -> PlannedStage:
        return self._recipe.stage_of(step + self._ahead, self._history, self._branch)

    def _enter(self, stage: PlannedStage) -> None:
        self._stage = stage.number
        pools: dict[str, list[Task]] = {}
        for gym in stage.stage.gyms:
            options = {**self._recipe.gym(gym).tasks, **stage.stage.tasks.get(gym, {})}
            pools[gym] = rl_tasks(self._recipe, gym, self._used, options)
        if stage.stage.weigh == "tasks" and not stage.stage.alternate:
            pools = {SHUFFLED: [task for tasks in pools.values() for task in tasks]}
        self._sampler.use(pools)


def timed_gates(recipe: Recipe) -> bool:
    """Return whether a gate of the recipe uses time."""
    gates = [level.gate for level in recipe.schedule.levels()] if recipe.stages else []
    return any(gate is not None and gate.timed for gate in gates)


def counted_gates(recipe: Recipe) -> bool:
    """Return whether a gate of the recipe counts conversations or updates."""
    gates = [level.gate for level in recipe.schedule.levels()] if recipe.stages else []
    return any(gate is not None and gate.unit != "steps" for gate in gates)
