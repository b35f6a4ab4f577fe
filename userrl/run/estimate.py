"""A rough estimate of a run's duration, shown before a run that takes hours without a GPU, and in a plan for verl.

Every sampled token costs a forward pass, every trained token a forward and a backward pass: 2 and 6 operations per
parameter. The estimate is within a factor of two on travel, but 4.5 times too low on tau. Time of served user models
comes on top.
"""

from __future__ import annotations

from curricula import Recipe
from userrl.machine.pretrained import model_title
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
"""Operations per second. Measured laptop runs of several mixes on two cores were between half and twice this value."""
PRETRAINED_RATES = {"float32": (0.75e11, 1.4e11), "bfloat16": (1.2e11, 3.5e11)}
"""Operations a second of a pretrained model of 135 M parameters on two cores, for playing and for training. bfloat16 was
measured on a run of 20 minutes (Xeon with AMX). float32 is scaled from it by the speeds of single passes on that machine."""
TURN_SHARE, TOKEN_SHARE = 0.7, 0.4
"""Average share of its horizon, and of its token limit, that a conversation uses."""
MINUTES_UP_TO = 12.0
"""Hours up to which an estimate is given in minutes."""


def hours(recipe: Recipe) -> float | None:
    """Return the hours of distillation, cold start, training and evaluation on a CPU. None if the model's size is unknown."""
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
    play_rate, train_rate = (RATE, RATE) if recipe.model.path is None else PRETRAINED_RATES[recipe.model.dtype]
    return (2 * played / play_rate + 6 * trained / train_rate) * parameters / 3600 + seconds / 3600


def warning(recipe: Recipe, gpus: int) -> str | None:
    """Return the estimate as a sentence for a long run without a GPU, else None."""
    expected = None if gpus else hours(recipe)
    if expected is None or (expected < LONG_HOURS and recipe.model.path is None):
        return None
    if expected < MINUTES_UP_TO and recipe.hardware.backend == "local" and recipe.model.path is not None:
        slow = "; float32, since this CPU has neither AMX nor AVX512 for bfloat16" * (recipe.model.dtype == "float32")
        return (
            f"{model_title(recipe.model.path)}: this run will take about {60 * expected:.0f} minutes on two quiet cores"
            f"{slow}. Fewer steps, tasks or turns shorten it."
        )
    return (
        f"This run will take about {expected:.0f} hours on this machine, which has no GPU; fewer steps, tasks or turns "
        "shorten it."
    )


def step_rows(recipe: Recipe) -> list[tuple[str, str]]:
    """Return the time of an RL step on verl on the recipe's machine, as (label, value). All of it is arithmetic."""
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
    except ConfigError as error:  # a model of unknown shape
        return [("estimate of one step", f"not computed: {error}")]
    if took is None:
        return [("estimate of one step", f"not computed: the speed of GPU '{hardware.gpu}' is not known")]
    elsewhere = "served elsewhere, not included" if served else "a rule"
    parts = [
        f"train {took.train:.0f} s",
        f"rollout {took.rollout:.0f} s",
        f"user {elsewhere if took.user is None else f'{took.user:.0f} s at the same time'}",
        f"sync {took.around:.0f} s",
    ]
    assumed = (
        f"{algorithm.batch} x {algorithm.group} conversations of {talk.turns} turns and {talk.tokens:,} tokens, "
        f"{COMPUTED:.0%} of the card's peak; none of it was measured"
    )
    return [
        ("estimate of one step", f"{took.step:.0f} s: {', '.join(parts)}; the longest part is {took.longest}"),
        ("estimate of 100 steps", f"{took.step / 36:.1f} h"),
        ("assumptions", assumed),
    ]


def one_gpu(recipe: Recipe, init_from: str | None) -> list[tuple[str, str]]:
    """Return the local backend's needs on the recipe's GPU, as (label, value). Raises ConfigError if they exceed the card."""
    card = recipe.hardware.memory_gb
    return check_one_gpu(recipe.model, recipe.algorithm, recipe.cold_start, card, init_from or None)


def parameters_of(model: ModelConfig) -> float | None:
    """Return the parameter count of a published checkpoint or a model from scratch. None if it cannot be determined."""
    if model.path is not None:
        try:
            return float(shape_of(model.path).parameters)
        except ConfigError:
            return None
    return float(model.weights)
