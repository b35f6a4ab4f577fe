"""Values of a person that have no effect, given the recipe's other values. Each is named when the recipe is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from curricula.merge import Merged, Rank
from curricula.recipe import Recipe
from userrl_core.rewards.config import Shaping

PERSON = (Rank.MACHINE, Rank.PERSON, Rank.PERSON_FOR_PROFILE, Rank.OVERRIDE)
_SCRATCH = "hidden_size layers heads kv_heads head_dim mlp initializer_range vocab_size max_context"
_CRITIC = "critic_lr critic_warmup gae_lambda assignment"


def name_unread(recipe: Recipe, merged: Merged, *, resolved: bool) -> Iterator[str]:
    """Yield a sentence for each group of values that a person wrote, that differ from the defaults, and that nothing reads.

    Shipped recipes and profiles may hold such values: those that extend them give them an effect. resolved: the file holds
    theirs too, so that only overrides are a person's.
    """
    for is_unread, block, fields, reason in _groups(recipe):
        settings = getattr(recipe, block)
        keys = [
            f"{block}.{field}"
            for field in fields.split()
            if is_unread
            and getattr(settings, field) != type(settings).model_fields[field].get_default(call_default_factory=True)
            and merged.rank(f"{block}.{field}") in PERSON[-1 if resolved else 0 :]
        ]
        if keys:
            yield f"{', '.join(keys)} {'has' if len(keys) == 1 else 'have'} no effect, because {reason}."


def _groups(recipe: Recipe) -> Iterator[tuple[bool, str, str, str]]:
    """Yield whether fields are unread, their block, their names, and the reason."""
    policy, algorithm, shaping = recipe.demonstrations.policy, recipe.algorithm.name, recipe.credit.shaping
    yield policy == "scripted", "demonstrations", "temperature", "the demonstrator is a script"
    yield policy != "scripted", "demonstrations", "skill", f"the demonstrator is the served model {policy}"
    yield recipe.cold_start.steps is not None, "cold_start", "epochs", "cold_start.steps replaces it"
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
    yield recipe.evaluate.temperature == 0, "evaluate", "top_p", "evaluate.temperature is 0"
