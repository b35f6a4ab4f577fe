"""Inference for a checkpoint, in this process or through a rollout engine that serves it on the stage's GPUs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from curricula import Recipe
from userrl.machine.engine import copies, engine_plays
from userrl.machine.slots import slots
from userrl.run.job import StageJob
from userrl.worker.device import local_policy
from userrl_core.errors import CheckpointError
from userrl_core.policies import BatchPolicy
from userrl_core.served.model_server import ServeOptions, default_python, free_port, serving
from userrl_core.served.tokens import TokenServer

STARTS = 2
"""Number of engine starts before the stage fails, because the cause of a failed start usually recurs."""

CONCURRENCY = 256
"""Default number of parallel conversations: the batch of one copy. More would wait in the engine."""

MakePolicy = Callable[..., BatchPolicy]
"""(recipe, temperature=, top_p=, seed=, name=) -> the checkpoint as a policy under the recipe's limits."""


@contextmanager
def checkpoint_speaks(job: StageJob, checkpoint: str | Path) -> Iterator[MakePolicy]:
    """Provide a checkpoint for inference while the block runs, as `MakePolicy`.

    Raises CheckpointError for an unusable checkpoint, UserError if the engine does not start.
    """
    hardware = job.recipe.hardware
    gpus = sum(slot.gpu is not None for slot in slots())
    if not engine_plays(hardware, gpus):
        yield partial(_by_ourselves, Path(checkpoint))
        return
    from userrl_core.training.local.model import check_elsewhere

    context = engine_context(job.recipe, Path(checkpoint))
    check_elsewhere(checkpoint)
    options = serve_options(job.recipe, Path(checkpoint), gpus, context)
    # One folder per checkpoint. A server left there was started for it, and the next start of the stage stops it.
    folder = job.folder / "engine" / hashlib.sha256(str(checkpoint).encode()).hexdigest()[:12]
    with serving(options, folder, lambda text: print(text, flush=True)) as url:
        server = TokenServer(options.model, url)
        yield partial(_by_engine, Path(checkpoint), server, context, job.options.concurrency or CONCURRENCY)


def engine_context(recipe: Recipe, checkpoint: Path) -> int:
    """Return the maximum tokens of a served conversation: the training limit, or the model's if smaller.

    Raises CheckpointError if the model is missing.
    """
    try:
        model_limit = json.loads((checkpoint / "config.json").read_text()).get("max_position_embeddings")
    except (OSError, ValueError, AttributeError) as error:
        raise CheckpointError("checkpoint.missing", f"No model can be served from {checkpoint}: {error}.") from error
    room = recipe.algorithm.max_prompt_tokens + recipe.algorithm.max_response_tokens
    return min(room, model_limit or room)


def serve_options(recipe: Recipe, checkpoint: Path, gpus: int, context: int) -> ServeOptions:
    """Return the engine's options for a checkpoint, with as many copies as fit on the GPUs."""
    hardware = recipe.hardware
    return ServeOptions(
        model=str(checkpoint),
        port=free_port(),
        python=hardware.python or default_python(),
        tensor_parallel=hardware.tensor_parallel if gpus else 1,
        copies=copies(hardware, gpus),
        max_model_len=context,
        # The request sets sampling, because a checkpoint may bring its own defaults (Qwen3 has top_k 20).
        extra=("--generation-config", "vllm", "--dtype", recipe.model.dtype),
        give_up=STARTS,
    )


def _by_ourselves(
    checkpoint: Path, recipe: Recipe, *, temperature: float, top_p: float, seed: int, name: str
) -> BatchPolicy:
    return local_policy(
        checkpoint,
        recipe.model,
        recipe.hardware.threads,
        temperature=temperature,
        top_p=top_p,
        max_tokens=recipe.algorithm.max_tokens,
        max_response_tokens=recipe.algorithm.max_response_tokens,
        seed=seed,
        name=name,
    )


def _by_engine(
    checkpoint: Path,
    server: TokenServer,
    context: int,
    concurrency: int,
    recipe: Recipe,
    *,
    temperature: float,
    top_p: float,
    seed: int,
    name: str,
) -> BatchPolicy:
    """Return the served checkpoint as a policy. seed is not used, because every episode has its own."""
    from userrl_core.training.engine_policy import EnginePolicy
    from userrl_core.training.local.text.tokenizer import load_tokenizer

    return EnginePolicy(
        server,
        load_tokenizer(checkpoint, recipe.model.thinking),
        context=context,
        concurrency=concurrency,
        temperature=temperature,
        top_p=top_p,
        max_tokens=recipe.algorithm.max_tokens,
        max_response_tokens=recipe.algorithm.max_response_tokens,
        name=name,
    )
