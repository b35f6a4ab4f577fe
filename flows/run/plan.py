"""What a train run will do: parameters checked and turned into jobs before anything starts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from curricula import load
from curricula.recipe import Recipe
from flows.machine.home import warehouse_dir
from flows.machine.slots import alone
from flows.run.alarms import settings as alarm_settings
from flows.run.budget import BUDGETS
from flows.run.job import Actor, Job
from flows.run.run import Run, claim, identity
from userrl_core.errors import CheckpointError, ConfigError
from userrl_core.suggest import nearest
from userrl_core.training.verl.memory import check_machine
from userrl_core.training.verl.step_plan import refuse_schedule

Inputs = Mapping[str, dict[str, Any] | None]


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked request to train."""

    recipe: Recipe
    seed: int
    backend: Literal["local", "verl"]
    name: str
    init_from: str | None
    stages: tuple[str, ...]
    """Every stage of the run, in order."""
    wanted: tuple[str, ...]
    """Those between from_stage and until."""
    budget: Mapping[str, float]
    options: Mapping[str, Any]

    @property
    def run_id(self) -> str:
        """The run's id, apart from its generation."""
        return identity(
            self.recipe.identity, seed=self.seed, backend=self.backend, name=self.name, init_from=self.init_from
        )

    @property
    def rl_stages(self) -> tuple[str, ...]:
        """``rl-1`` ... ``rl-n``."""
        return tuple(stage for stage in self.stages if stage.startswith("rl-"))

    @property
    def start(self) -> dict[str, Any] | None:
        """The checkpoint to start from, as a stage's result; None where the recipe's model is used."""
        path = self.init_from or (None if "sft" in self.stages else self.recipe.model.path)
        return None if path is None else {"checkpoint": path, "sha256": path, "step": 0, "id": path, "best": None}

    def describe(self) -> str:
        """The resolved recipe's stage table in plain text."""
        rows = [f"run {self.run_id}: {' -> '.join(self.stages)}"]
        rows += [
            f"  {row['stage']}: steps {row['first']} to {row['last']}, horizon {row['horizon']}, mix {row['mix']}"
            for row in self.recipe.stage_table()
        ]
        if self.backend == "verl":
            recipe = self.recipe
            needs = check_machine(recipe.model, recipe.hardware, recipe.algorithm, recipe.credit, recipe.cold_start)
            rows += [f"  {label}: {value}" for label, value in needs]
        return "\n".join(rows)

    @contextmanager
    def begin(self, *, fresh: bool) -> Iterator[Run]:
        """The run, held by this process alone."""
        from prefect.runtime import flow_run

        about = {
            "name": self.name or self.recipe.name,
            "recipe": self.recipe.name,
            "profile": self.recipe.profile,
            "seed": self.seed,
            "backend": self.backend,
            "resolved": self.recipe.resolved(),
            "init_from": self.init_from,
        }
        run = claim(self.run_id, about, fresh=fresh, flow_run=str(flow_run.id or "none"))
        with alone(run.folder / "run.lock", f"Run {run.id}"):
            run.forget_stop()
            yield run

    def has(self, stage: str) -> bool:
        """Whether this run has the stage at all."""
        return stage in self.stages

    def skips(self, stage: str) -> bool:
        """Whether the stage lies outside from_stage ... until."""
        return stage not in self.wanted

    def earlier(self, run: Run, stage: str, inputs: Inputs) -> dict[str, Any] | None:
        """The result of a stage before from_stage; None for one after until."""
        if self.stages.index(stage) > self.stages.index(self.wanted[-1]):
            return None
        found = self.job(run, stage, inputs).result()
        if found is None:
            raise CheckpointError(
                f"from_stage is {self.wanted[0]}, but run {run.id} has no finished stage {stage}; leave from_stage out."
            )
        return {**found, "reused": True}

    def job(self, run: Run, stage: str, inputs: Inputs) -> Job:
        """The stage as data."""
        kind: Literal["distill", "sft", "rl", "evaluate"]
        kind = "rl" if stage.startswith("rl-") else stage  # type: ignore[assignment]
        given = {name: value for name, value in inputs.items() if value is not None}
        return Job(
            kind=kind,
            stage=stage,
            run_id=run.id,
            folder=run.stage(stage),
            warehouse=warehouse_dir(),
            recipe=self.recipe.resolved(),
            seed=self.seed,
            backend=self.backend,
            inputs=given,
            actors=actors(self.recipe, given) if kind == "evaluate" else [],
            options={
                **self.options,
                "name": self.name or self.recipe.name,
                "code_version": code_version(),
                "budget": dict(self.budget),
            },
        )


def make_plan(
    recipe: str,
    profile: str | None = "laptop",
    backend: str = "auto",
    seed: int = 0,
    name: str = "",
    overrides: Mapping[str, Any] | None = None,
    init_from: str | None = None,
    from_stage: str | None = None,
    until: str | None = None,
    keep_checkpoints: int = 2,
    budget: Mapping[str, float] | None = None,
    wandb: str = "offline",
) -> Plan:
    """Check everything that can be checked now. Raises ConfigError or CheckpointError in one sentence."""
    loaded = load(recipe, profile=profile, overrides=dict(overrides or {}))
    alarm_settings(loaded.alarms)
    if not 0 <= seed < 2**63:
        raise ConfigError(f"seed is {seed}; give 0 or a positive integer below 2 to the 63rd.")
    if keep_checkpoints < 1:
        raise ConfigError(f"keep_checkpoints is {keep_checkpoints}; 1 or more are needed to continue from.")
    for key, value in (budget or {}).items():
        if key not in BUDGETS:
            raise ConfigError(f"A budget has no '{key}'{nearest(key, BUDGETS)}; it has {' and '.join(BUDGETS)}.")
        if value <= 0:
            raise ConfigError(f"budget.{key} is {value}; give more than 0, or leave it out.")
    chosen = loaded.hardware.backend if backend == "auto" else "verl" if backend == "verl" else "local"
    if chosen == "local" and loaded.algorithm.kl_reward_coef > 0:
        raise ConfigError(
            f"algorithm.kl_reward_coef is {loaded.algorithm.kl_reward_coef:g}, which only verl takes off the rewards; set it to "
            "0 (algorithm.kl_coef is the penalty in the loss, which both backends have), or backend to verl."
        )
    if chosen == "verl" and not (loaded.model.path or init_from):
        raise ConfigError(
            f"verl trains a checkpoint, and profile {profile} makes a model from scratch; set model.path, or take a profile such "
            "as qwen3-8b."
        )
    stages = _stages(loaded)
    wanted = _between(stages, from_stage, until)
    trained = [(planned.first, planned.last) for planned in loaded.plan if planned.name in wanted]
    if chosen == "verl" and trained:
        refuse_schedule(loaded.schedule.horizon, trained)
    return Plan(
        recipe=loaded,
        seed=seed,
        backend=chosen,
        name=name,
        init_from=_checked_start(init_from),
        stages=stages,
        wanted=wanted,
        budget=dict(budget or {}),
        options={"keep_checkpoints": keep_checkpoints, "wandb": wandb},
    )


def actors(recipe: Recipe, inputs: Mapping[str, dict[str, Any]]) -> list[Actor]:
    """Who is compared on held-out tasks: the scripted demonstrator, the cold start, and the best checkpoint of RL.

    A recipe without a cold start that trains from scratch has what RL started from in its place.
    """
    found = []
    if recipe.demonstrations.policy == "scripted" and "distill" in inputs:
        found.append(Actor(label="demonstrator", kind="demonstrator"))
    cold, rl = inputs.get("sft"), inputs.get("rl")
    if cold is not None:
        found.append(_checkpoint("SFT" if recipe.cold_start.enabled else "start", cold))
    if rl is not None and (cold is None or rl["checkpoint"] != cold["checkpoint"]):
        found.append(_checkpoint("RL", rl))
    return found


def _checkpoint(label: str, result: Mapping[str, Any]) -> Actor:
    """The best checkpoint on validation where there is one, else the last."""
    best = result.get("best")
    if best is None:
        return Actor(
            label=label,
            kind="checkpoint",
            path=str(result["checkpoint"]),
            id=result.get("id"),
            sha256=str(result["sha256"]),
            step=int(result["step"]) if label == "RL" else 0,
        )
    return Actor(
        label=label, kind="checkpoint", path=str(best["path"]), id=best["id"], sha256=best["id"], step=int(best["step"])
    )


def _stages(recipe: Recipe) -> tuple[str, ...]:
    cold = ("distill", "sft") if recipe.cold_start.enabled else ()
    if not cold and recipe.model.path is None:
        cold = ("distill", "sft")  # the tokenizer is trained on demonstrations, and weights have to come from somewhere
    return (*cold, *(planned.name for planned in recipe.plan), "evaluate")


def _between(stages: tuple[str, ...], first: str | None, last: str | None) -> tuple[str, ...]:
    for field, value in (("from_stage", first), ("until", last)):
        if value is not None and value not in stages:
            raise ConfigError(f"{field} is '{value}'{nearest(value, stages)}, but the stages are {', '.join(stages)}.")
    begin = stages.index(first) if first else 0
    end = stages.index(last) if last else len(stages) - 1
    if begin > end:
        raise ConfigError(f"from_stage '{first}' comes after until '{last}'.")
    return stages[begin : end + 1]


def _checked_start(init_from: str | None) -> str | None:
    """A local checkpoint must exist; what looks like a Hugging Face name is left to the loader."""
    if init_from is None:
        return None
    path = Path(init_from)
    if (path / "config.json").is_file():
        return str(path.resolve())
    if path.is_absolute() or init_from.startswith((".", "~")) or init_from.count("/") != 1:
        raise CheckpointError(f"init_from {init_from} is no checkpoint: there is no config.json in it.")
    return init_from


def code_version() -> str:
    """The commit of the working tree, ``+`` where it has changes; "" outside git."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"],
            capture_output=True,
            text=True,
            timeout=5,
            cwd=Path(__file__).parent,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
