"""How long a run will take, roughly: said before one that takes hours begins on a machine without a GPU, and in a plan for verl.

Every token that is played costs a forward pass, every token that is trained on a forward and a backward pass: 2 and 6
operations a parameter. Within a factor of two on travel, but
4.5 times too low on tau; users that are served models come on top.
"""

from __future__ import annotations

from curricula import Recipe
from userrl.machine.slots import named
from userrl.run.tasks import users_of
from userrl_core.errors import ConfigError
from userrl_core.served.health import served_users
from userrl_core.training.config import ModelConfig
from userrl_core.training.one_gpu import check_one_gpu
from userrl_core.training.shapes import shape_of
from userrl_core.training.verl.machine.step_time import COMPUTED, ConversationTokens, step_time, user_server
from userrl_core.training.verl.memory import settled

LONG_HOURS = 1.0
RATE = 5e10
"""Operations a second: what laptop runs of several mixes came to on two cores, from half to twice as much."""
TURN_SHARE, TOKEN_SHARE = 0.7, 0.4
"""How much of its horizon, and of the room for its tokens, a conversation takes on average."""


def hours(recipe: Recipe) -> float | None:
    """Hours of distillation, cold start, training and evaluation on a CPU; None where the model's size is not known."""
    parameters = parameters_of(recipe.model)
    if parameters is None:
        return None
    algorithm, cold = recipe.algorithm, recipe.cold_start
    per_turn = TOKEN_SHARE * algorithm.max_response_tokens / max(recipe.most_turns, 1)
    played = trained = 0.0
    seconds = sum(stage.stage.cpu_seconds or stage.stage.gpu_seconds or 0.0 for stage in recipe.planned_stages)
    for stage in (stage for stage in recipe.planned_stages if not stage.stage.timed):
        turns = stage.steps * algorithm.batch * algorithm.group * (stage.horizon or recipe.most_turns) * TURN_SHARE
        played += turns * per_turn * algorithm.conversations / (algorithm.batch * algorithm.group)
        trained += turns * per_turn * algorithm.inner_epochs
    conversation = recipe.evaluate.horizon * TURN_SHARE * per_turn
    steps = sum(stage.steps for stage in recipe.planned_stages if not stage.stage.timed)
    validations = min(recipe.total_steps, steps) // recipe.evaluate.every + 1
    evaluated = 3 * (recipe.evaluate.tasks or 200) * recipe.evaluate.attempts * max(len(recipe.training_gyms), 1)
    played += (validations * recipe.evaluate.validation_tasks + evaluated) * conversation
    cold_steps = cold.steps or round(cold.epochs * recipe.demonstrations.top_k / cold.batch)
    trained += cold_steps * cold.batch * conversation if cold.enabled else 0.0
    return (2 * played + 6 * trained) * parameters / RATE / 3600 + seconds / 3600


def warning(recipe: Recipe, gpus: int) -> str | None:
    """The estimate as a sentence, where the run is long and there is no GPU; None otherwise."""
    expected = None if gpus else hours(recipe)
    if expected is None or expected < LONG_HOURS:
        return None
    return (
        f"This run will take about {expected:.0f} hours on this machine, which has no GPU; fewer steps, tasks or turns "
        "shorten it."
    )


def step_rows(recipe: Recipe) -> list[tuple[str, str]]:
    """What a step of RL on verl takes on the recipe's machine, as label and value; all of it arithmetic."""
    hardware, algorithm = recipe.hardware, recipe.algorithm
    if recipe.model.path is None:
        return []
    served = bool(served_users(users_of(recipe, recipe.training_gyms, role="train")))
    gpus = len(named(hardware.user_gpus))
    known = served and gpus > 0 and hardware.user_model is not None
    talk = ConversationTokens(turns=min(ConversationTokens().turns, recipe.most_turns))
    try:
        user = user_server(str(hardware.user_model), gpus, hardware.memory_gb) if known else None
        machine = settled(recipe.model, hardware, algorithm)
        took = step_time(machine, algorithm, recipe.model.path, user=user, talk=talk)
    except ConfigError as error:  # a model whose shape is not known
        return [("one step, by arithmetic", f"not computed: {error}")]
    if took is None:
        return [("one step, by arithmetic", f"not computed: the speed of GPU '{hardware.gpu}' is not known")]
    elsewhere = "served elsewhere, not in the sum" if served else "a rule"
    parts = [
        f"train {took.train:.0f} s",
        f"rollout {took.rollout:.0f} s",
        f"user {elsewhere if took.user is None else f'{took.user:.0f} s at the same time'}",
        f"sync {took.around:.0f} s",
    ]
    assumed = (
        f"{algorithm.batch} x {algorithm.group} conversations of {talk.turns} turns and {talk.tokens:,} tokens, "
        f"{COMPUTED:.0%} of the card's peak; nothing of it was measured"
    )
    return [
        ("one step, by arithmetic", f"{took.step:.0f} s: {', '.join(parts)}; the longest is {took.longest}"),
        ("100 steps, by arithmetic", f"{took.step / 36:.1f} h"),
        ("assumed", assumed),
    ]


def one_gpu(recipe: Recipe, init_from: str | None) -> list[tuple[str, str]]:
    """What the local backend needs of the recipe's GPU, as label and value; ConfigError where it goes beyond the card."""
    card = recipe.hardware.memory_gb
    return check_one_gpu(recipe.model, recipe.algorithm, recipe.cold_start, card, init_from or None)


def parameters_of(model: ModelConfig) -> float | None:
    """Of a published checkpoint or of one made from scratch; None for a folder or name that says nothing."""
    if model.path is not None:
        try:
            return float(shape_of(model.path).parameters)
        except ConfigError:
            return None
    return float(model.weights)
