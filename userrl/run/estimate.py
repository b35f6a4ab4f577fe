"""Estimates of a run's cost before it starts: CPU-seconds, tokens and storage, and GPU-seconds with verl.

Every sampled token costs a forward pass, every trained token a forward and a backward pass: 2 and 6 operations per
parameter. On top of these a run takes a fixed time for its processes, a time for every turn, and a time for every round in
which all conversations of a step get their next turn. `SCRATCH_RATE`, `TURN`, `ROUND` and `START` were fitted to the rows of
data/claims/published_arms.csv, all of which they predict within a factor of 1.5. Fitted without the predicted claim, they
predict 49 of 55 rows within 1.5, and the worst within 2.2. Time of served models comes on top.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from curricula import Recipe
from userrl.machine.pretrained import model_title
from userrl.machine.slots import named
from userrl.run.request import Backend
from userrl.run.tasks import users_of
from userrl_core.errors import ConfigError
from userrl_core.served.health import served_users
from userrl_core.training.config import ModelConfig
from userrl_core.training.one_gpu import check_one_gpu
from userrl_core.training.shapes import shape_of
from userrl_core.training.verl.machine.step_time import ConversationTokens, step_time, user_server
from userrl_core.training.verl.memory import check_machine, settled

LONG_HOURS = 1.0
SCRATCH_RATE = 1.25e11
"""Operations per CPU-second of a model from scratch."""
START, TURN, ROUND = 23.0, 9e-5, 8e-3
"""CPU-seconds of a run's processes, of a played turn (gym and turn log), and of a round of all conversations of a step."""
PRETRAINED_RATES = {"float32": (0.66e11, 1.24e11), "bfloat16": (1.05e11, 2.7e11)}
"""Operations a second of a pretrained model of 135 M parameters on two cores, for playing and for training. bfloat16 was
fitted to the stages of a run of 22 minutes (Xeon with AMX). float32 has the ratio of single passes, scaled to a run of 60 minutes
(Xeon with AVX512, without AMX)."""
TURN_SHARE, TOKEN_SHARE = 0.7, 0.4
"""Average share of its horizon, and of its token limit, that a conversation uses."""
CORES = 2
"""Cores of the machine that the rates of pretrained models were measured on."""
FITTED = frozenset({"errand", "searchqa", "tau", "textcraft", "travel", "webshop", "wish"})
"""Gyms on whose laptop runs the estimate was within a factor of 2. Others may take longer for a turn, as babyai does."""
STAGES = 4
"""Processes among which `START` is divided: distillation, cold start, RL, evaluation."""
TASKS = 300
"""Test tasks of a gym where the recipe takes all of them. Errand has 331."""
TOKEN_BYTES, CHECKPOINT_BYTES, KEPT = 6.0, 11.6, 7
"""Bytes in the warehouse per token of a turn, bytes of a checkpoint per parameter (weights and Adam's two moments), and
checkpoints that a claim's run keeps. All three were measured. A turn took 36 bytes in a claim on errand, and 303 with 60 tokens."""
MINUTES_UP_TO = 12.0
"""Hours up to which an estimate is given in minutes."""


@dataclass(frozen=True, slots=True)
class RunCost:
    """The estimated cost of one run, all stages.

    seconds: of the clock, on two quiet cores or on the profile's GPUs. gpu_seconds: seconds times GPUs of RL on verl, without
    evaluations; 0 without a GPU. tokens: trained by RL, with openings and observations. turns: played in all stages, one row
    each in the warehouse. stored: bytes of turns and checkpoints.
    """

    seconds: float
    cpu_seconds: float
    gpu_seconds: float
    tokens: float
    turns: float
    stored: float


def run_cost(recipe: Recipe) -> RunCost | None:
    """Return the cost of a run on its profile's machine. None if the model's size or the GPU's speed is unknown."""
    cost = _on_cpu(recipe)
    if cost is None or (recipe.hardware.backend == "local" and not recipe.hardware.gpus):
        return cost
    took = None if recipe.hardware.backend == "local" else _step(recipe)
    if took is None:
        return None
    seconds = took * recipe.total_steps
    gpus = recipe.hardware.all_gpus + len(named(recipe.hardware.user_gpus))
    return replace(cost, seconds=seconds, cpu_seconds=0.0, gpu_seconds=seconds * gpus)


def _on_cpu(recipe: Recipe) -> RunCost | None:
    parameters = parameters_of(recipe.model)
    if parameters is None:
        return None
    algorithm, cold, scratch = recipe.algorithm, recipe.cold_start, recipe.model.path is None
    per_turn = _turn_tokens(recipe)
    trained = rounds = timed = 0.0
    for planned in recipe.planned_stages:
        timed += planned.stage.cpu_seconds or planned.stage.gpu_seconds or 0.0
        if planned.stage.timed:
            continue
        horizon = planned.horizon or recipe.most_turns
        rounds += planned.steps * horizon
        if planned.stage.tokens is not None:
            trained += planned.steps * (algorithm.batch_tokens or planned.stage.tokens)
        else:
            trained += planned.steps * algorithm.batch * algorithm.group * horizon * TURN_SHARE * per_turn
    played = trained * algorithm.conversations / (algorithm.batch * algorithm.group)
    steps = sum(planned.steps for planned in recipe.planned_stages if not planned.stage.timed)
    validations = min(recipe.total_steps, steps) // recipe.evaluate.every + 1
    policies = 2 + max(recipe.evaluate.last, 1)  # demonstrator, cold start, and the evaluated steps of RL
    tested = (
        policies * (recipe.evaluate.tasks or TASKS) * recipe.evaluate.attempts * max(len(recipe.evaluation_gyms), 1)
    )
    turns = (validations * recipe.evaluate.validation_tasks + tested) * recipe.evaluate.horizon * TURN_SHARE
    played += turns * per_turn
    demonstrated = (recipe.demonstrations.horizon or recipe.evaluate.horizon) * TURN_SHARE
    cold_steps = cold.steps or round(cold.epochs * recipe.demonstrations.top_k / cold.batch)
    imitated = cold_steps * cold.batch * demonstrated * per_turn if cold.enabled else 0.0
    turns += trained / per_turn + (recipe.demonstrations.episodes or recipe.demonstrations.top_k) * demonstrated
    rates = (SCRATCH_RATE, SCRATCH_RATE) if scratch else PRETRAINED_RATES[recipe.model.dtype]
    computed = parameters * (2 * played / rates[0] + 6 * (trained * algorithm.inner_epochs + imitated) / rates[1])
    other = START + turns * TURN + rounds * ROUND + timed
    return RunCost(
        seconds=computed + other,
        cpu_seconds=computed * (1 if scratch else CORES) + other,  # rates of pretrained models are of two cores
        gpu_seconds=0.0,
        tokens=trained,
        turns=turns,
        stored=turns * per_turn * TOKEN_BYTES + parameters * CHECKPOINT_BYTES * KEPT,
    )


def evaluation_cost(recipe: Recipe, tasks: int, horizon: int) -> RunCost | None:
    """Return the cost of an evaluation of one agent on the CPU. None if the model's size is unknown."""
    parameters = parameters_of(recipe.model)
    if parameters is None or recipe.model.path is not None:
        return None
    turns = tasks * horizon * TURN_SHARE
    per_turn = _turn_tokens(recipe)
    seconds = START / STAGES + turns * (TURN + 2 * parameters * per_turn / SCRATCH_RATE) + horizon * ROUND
    return RunCost(seconds, seconds, 0.0, 0.0, turns, turns * per_turn * TOKEN_BYTES)


def _turn_tokens(recipe: Recipe) -> float:
    """Return the tokens of a turn. A response has room for the longest conversation, also where only tests are that long."""
    longest = max(recipe.most_turns, recipe.evaluate.horizon, 1)
    return TOKEN_SHARE * recipe.algorithm.max_response_tokens / longest


def hours(recipe: Recipe) -> float | None:
    """Return the hours of a run on a CPU with two quiet cores. None if the model's size is unknown."""
    return None if (cost := _on_cpu(recipe)) is None else cost.seconds / 3600


def warning(recipe: Recipe, gpus: int) -> str | None:
    """Return the estimate as a sentence for a long run without a GPU, else None."""
    expected = None if gpus else hours(recipe)
    if expected is None or (expected < LONG_HOURS and recipe.model.path is None):
        return None
    if expected < MINUTES_UP_TO and recipe.hardware.backend == "local" and recipe.model.path is not None:
        slow = "; float32, since this CPU has no fast bfloat16" * (recipe.model.dtype == "float32")
        return (
            f"{model_title(recipe.model.path)}: this run will take about {60 * expected:.0f} minutes on two quiet cores"
            f"{slow}. Fewer steps, tasks or turns shorten it."
        )
    return (
        f"This run will take about {expected:.0f} hours on this machine, which has no GPU; fewer steps, tasks or turns "
        "shorten it."
    )


def _step(recipe: Recipe) -> float | None:
    """Return the seconds of one RL step on verl, None for a GPU of unknown speed. Raises ConfigError for an unknown model."""
    hardware, algorithm = recipe.hardware, recipe.algorithm
    gpus = len(named(hardware.user_gpus))
    served = bool(served_users(users_of(recipe, recipe.training_gyms, role="train")))
    serves_user = served and gpus > 0 and hardware.user_model is not None
    user = user_server(str(hardware.user_model), gpus, hardware.memory_gb) if serves_user else None
    machine = settled(recipe.model, hardware, algorithm)
    talk = ConversationTokens(turns=min(ConversationTokens().turns, recipe.most_turns))
    return step_time(machine, algorithm, str(recipe.model.path), user=user, talk=talk)


def gpu_needs(recipe: Recipe, backend: Backend, init_from: str | None) -> list[tuple[str, str]]:
    """Return a run's needs on each of its GPUs, as (label, value); [] on a CPU. Raises ConfigError if they exceed the card."""
    hardware, start = recipe.hardware, init_from or None
    if backend == "verl":
        return check_machine(recipe.model, hardware, recipe.algorithm, recipe.credit, recipe.cold_start)
    if not hardware.gpus:
        return []
    return check_one_gpu(recipe.model, recipe.algorithm, recipe.cold_start, hardware.memory_gb, start)


def parameters_of(model: ModelConfig) -> float | None:
    """Return the parameter count of a published checkpoint or a model from scratch. None if it cannot be determined."""
    if model.path is not None:
        try:
            return float(shape_of(model.path).parameters)
        except ConfigError:
            return None
    return float(model.weights)
