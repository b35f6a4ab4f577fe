"""Values of a person that have no effect, given the recipe's other values. Each is named when the recipe is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from curricula.merge import Merged, Rank
from curricula.recipe import Recipe
from userrl_core.rewards.config import Shaping

PERSON = (Rank.MACHINE, Rank.PERSON, Rank.PERSON_FOR_PROFILE, Rank.OVERRIDE)
_SCRATCH = "hidden_size layers heads kv_heads head_dim mlp initializer_range vocab_size max_context"
_FINE_TUNING = "epochs steps lr schedule warmup cutoff batch micro_batch weight_decay betas grad_norm lora"
_CRITIC = "critic_lr critic_warmup gae_lambda assignment"


def name_unread(recipe: Recipe, merged: Merged, *, resolved: bool) -> Iterator[str]:
    """Yield a sentence for each group of values that a person wrote, that differ from the defaults, and that nothing reads.

    Shipped recipes and profiles may hold such values: those that extend them give them an effect. resolved: the file holds
    theirs too, so that only overrides are a person's.
    """
    for is_unread, block, fields, reason in _groups(recipe):
        settings, path = (getattr(recipe, block), f"{block}.") if block else (recipe, "")
        keys = [
            path + field
            for field in fields.split()
            if is_unread
            and getattr(settings, field) != type(settings).model_fields[field].get_default(call_default_factory=True)
            and merged.rank(path + field) in PERSON[-1 if resolved else 0 :]
        ]
        if keys:
            yield f"{', '.join(keys)} {'has' if len(keys) == 1 else 'have'} no effect, because {reason}."


def _groups(recipe: Recipe) -> Iterator[tuple[object, str, str, str]]:
    """Yield whether fields are unread, their block ("" for the recipe's own), their names, and the reason."""
    policy, algorithm, shaping = recipe.demonstrations.policy, recipe.algorithm.name, recipe.credit.shaping
    yield policy == "scripted", "demonstrations", "temperature server", "the demonstrator is a script"
    yield policy != "scripted", "demonstrations", "skill", f"the demonstrator is the served model {policy}"
    enabled = recipe.cold_start.enabled
    yield not enabled, "cold_start", _FINE_TUNING, "cold_start.enabled is false"
    yield enabled and recipe.cold_start.steps is not None, "cold_start", "epochs", "cold_start.steps replaces it"
    yield recipe.model.path is not None, "model", _SCRATCH, "model.path names a checkpoint"
    yield algorithm != "ppo", "algorithm", _CRITIC, f"algorithm.name is {algorithm}, which has no critic"
    yield algorithm not in ("ppo", "reinforce_pp"), "algorithm", "gae_gamma", f"algorithm.name is {algorithm}"
    yield algorithm != "dpo", "algorithm", "dpo_beta dpo_normalize", f"algorithm.name is {algorithm}"
    yield (
        shaping in get_args(Shaping) and shaping != "em",
        "credit",
        "k",
        f"credit.shaping is {shaping} (audits of em read it)",
    )
    resampled = recipe.credit.filter == "resample"
    yield not resampled, "credit", "resample_limit", f"credit.filter is {recipe.credit.filter}"
    yield shaping == "equalized", "credit", "form", "under credit.shaping equalized all forms give the same advantages"
    yield recipe.evaluate.temperature == 0, "evaluate", "top_p", "evaluate.temperature is 0"
    trains = recipe.stages or recipe.branches
    yield not trains, "evaluate", "every last validation_tasks", "the recipe has no stages"
    users = [recipe.demonstrations.user, recipe.evaluate.user, *(setup.user for setup in recipe.gyms.values())]
    prompts = [user.options.get("prompts") for user in users if user] + [recipe.judge.prompts if recipe.judge else None]
    ours = recipe.data == "ours" and all(setup.published is None for setup in recipe.gyms.values())
    yield ours, "", "published", "data is ours"
    yield ours and "released" not in prompts, "", "data_folder", "data is ours"
