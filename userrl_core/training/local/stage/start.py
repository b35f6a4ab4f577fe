"""The state that a stage starts with: model, optimiser, generators and curriculum."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from userrl_core.seeding import derive_seed
from userrl_core.training.jobs import RlJob
from userrl_core.training.local.algorithms.ppo import Critic
from userrl_core.training.local.lora import adapt
from userrl_core.training.local.model import card_gb
from userrl_core.training.local.optimizer import adamw
from userrl_core.training.local.stage.restart import Restart
from userrl_core.training.local.state import TrainState, load_start, load_to_train
from userrl_core.training.one_gpu import check_rl, known_shape


def load_state(job: RlJob, restart: Restart) -> TrainState:
    """Return the state to continue with. A run's first stage gets the model of its start and a new trainer.

    Raises CheckpointError for an unusable checkpoint, TrainingError for one that this stage cannot continue.
    """
    config, start = job.algorithm, restart.start
    card, shape = card_gb(job.device), known_shape(start)
    if card is not None and shape is not None:
        check_rl(shape, job.model, config, card)
    continued = not restart.begins_run
    model, tokenizer, base = load_start(start, job.model, job.device, config.lora, continued=continued)
    generator = torch.Generator(job.device).manual_seed(derive_seed(job.seed, "sampling"))
    torch.manual_seed(derive_seed(job.seed, "torch"))
    critic = Critic(model) if config.name == "ppo" else None  # before adapters: all of its weights are trained
    if base is not None:
        adapt(model, base.settings, derive_seed(job.seed, "adapters"))
    optimizer = adamw(model, config.lr, config.betas, config.weight_decay)
    state = TrainState(model, tokenizer, optimizer, generator, kind="rl", base=base)
    if critic is not None:
        state.critic = critic
        state.critic_optimizer = adamw(critic, config.critic_lr, config.betas, config.weight_decay)
    restart.check(continued and state.restore(start), state.step)
    return state


def load_reference(job: RlJob, state: TrainState) -> Any:
    """Return the model of the KL term; None where the term has no weight, since its forward pass is a tenth of a step.

    Under adapters the base model already serves as reference.
    """
    if job.reference is None or job.algorithm.kl_coef == 0:
        return None
    if state.base is not None and Path(state.base.path).resolve() == job.reference.resolve():
        return state.model
    return load_to_train(job.reference, job.model, job.device)[0]
