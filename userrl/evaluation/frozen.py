"""A frozen policy with its training set-up: recipe, gyms, users and horizon."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.credit.replay import Setting
from curricula import Recipe
from curricula.load import from_resolved
from userrl.evaluation.planned import actor_of
from userrl.run.run import load
from userrl.run.stored import role_of
from userrl.run.tasks import gym_config, users_of
from userrl.worker.device import local_policy
from userrl_core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Frozen:
    """A frozen checkpoint. run: the run it belongs to. label, id, path: the checkpoint's."""

    run: str
    recipe: Recipe
    seed: int
    label: str
    id: str
    path: str

    @property
    def horizon(self) -> int:
        """The horizon of the stage that trained it. For other checkpoints, that of the last stage before any branch."""
        stage = Path(self.path).parent.parent.name
        stages = [planned for planned in self.recipe.planned_stages if planned.name == stage] or self.recipe.along("")
        return (stages[-1].horizon if stages else None) or self.recipe.evaluate.horizon

    def policy(self, seed: int) -> Any:
        """Return the local model, with sampling as in training."""
        algorithm = self.recipe.algorithm
        return local_policy(
            self.path,
            self.recipe.model,
            self.recipe.hardware.threads,
            temperature=algorithm.temperature,
            top_p=algorithm.top_p,
            max_tokens=algorithm.max_tokens,
            max_response_tokens=algorithm.max_response_tokens,
            max_batch=1024,
            seed=seed,
            share_openings=True,
            name=self.label,
        )


def setting_of(recipe: Recipe, gyms: tuple[str, ...], phase: str) -> Setting:
    """Return the gyms, users and prompts of a recipe's conversations in a phase."""
    return Setting(
        gym_config(recipe, evaluation=phase == "evaluate"),
        users_of(recipe, gyms, role=role_of(phase)),
        recipe.on_format_error,
        recipe.model.prompt_style,
        recipe.model.turns_left,
    )


def frozen(who: str) -> Frozen:
    """Return a run's chosen checkpoint, or a checkpoint folder within a run. Raises ConfigError or CheckpointError."""
    actor = actor_of(who)
    folder = next((parent for parent in Path(actor.path).parents if (parent / "run.json").is_file()), None)
    if actor.kind != "checkpoint" or folder is None:
        raise ConfigError(
            "checkpoint.not_of_a_run",
            f"{who} is not a checkpoint of a run, so its gyms and users are not known. Name a run, or a "
            "checkpoint's folder in it.",
        )
    run = load(folder)
    label = run.id if actor.label == run.id else f"{run.id} {Path(actor.path).relative_to(folder.resolve()).as_posix()}"
    return Frozen(run.id, from_resolved(run.info.resolved), run.info.seed, label, actor.id or "", actor.path)
