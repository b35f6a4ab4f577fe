"""A recipe's stage as verl's own configuration: a list of overrides that can be printed, saved and compared.

Every value is named here once, with the verl key it becomes. Order is fixed; what a cluster adds comes last and wins.
Paths are the stage folder's, so two stages of one recipe differ in few lines.

Traps that this list avoids (seen in verl 0.9.1):
- ``trainer.total_training_steps`` is absolute and also overwrites the learning-rate horizon: the rate is constant after
  an absolute number of warm-up steps, so a longer run changes nothing.
- the dataloader's state crashes when data set or batch size change: rows are read in order, without shuffling, from a
  file that holds exactly the steps that are left (see `data`), and the saved state is removed.
- ``rollout_rs`` rewrites the response mask, from which turns are recovered: it stays off.
- weights are also saved as a Hugging Face folder, which another number of GPUs, an evaluation or a next stage can load.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import Any

from userrl_core.errors import ConfigError
from userrl_core.training.config import Cluster
from userrl_core.training.verl.job import VerlJob, VerlSftJob

Value = str | int | float | bool | None | Sequence[str] | Sequence[float]

ESTIMATORS = {"grpo": "userrl", "rloo": "userrl_rloo", "ppo": "gae", "reinforce_pp": "userrl_reinforce_pp"}
"""Ours, in which trajectories without a score do not count; verl's own where a critic values tokens, which it shows to no other."""

AGGREGATIONS = {"trajectory_mean": "seq-mean-token-mean", "token_mean": "token-mean"}

NO_DUAL_CLIP = 1e9
"""verl's dual clip cannot be switched off; a bound that no loss reaches does it."""

MASKING_TRAINER = "userrl_entropy_mask"
"""verl's synchronous trainer with the entropy mask, as `entropy_trainer` registers it."""

ENDLESS = 1_000_000
"""Epochs: the number of steps decides, not the number of passes over a file that holds only what is left."""

_PLAIN = re.compile(r"[A-Za-z0-9_./:@+-]+\Z")


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a stage starts. model: a HF folder or name. path: a verl checkpoint folder ``global_step_N``, or None.

    weights_only: take the step from the folder's name and nothing else; weights come from model, the optimizer is new.
    """

    model: str
    path: Path | None = None
    weights_only: bool = False


def rl_overrides(job: VerlJob, folder: Path, resume: Resume) -> list[str]:
    """verl's overrides for one RL stage. Raises ConfigError for what verl cannot do."""
    refuse_what_verl_cannot(job)
    algorithm, cluster = job.algorithm, job.cluster
    values: dict[str, Value] = {
        **_data(job, folder),
        **_algorithm(job, folder),
        **_model(resume),
        **_actor(job),
        **_rollout(job, folder),
        **(_critic(job, resume) if algorithm.name == "ppo" else {}),
        **_trainer(job, folder, resume),
        **_ray(cluster),
    }
    return merged([f"{key}={literal(value)}" for key, value in values.items()], cluster.overrides)


def sft_overrides(job: VerlSftJob, folder: Path, model: str, rows: int) -> list[str]:
    """verl's overrides for the cold start; rows: conversations in the training file.

    Raises ConfigError when there are fewer of them than one step takes.
    """
    sft, cluster = job.sft, job.cluster
    gpus = cluster.cold_start_gpus
    per_epoch = rows // sft.batch
    if per_epoch < 1:
        raise ConfigError(
            f"{rows} demonstrations do not fill one step of {sft.batch}; distil more, or lower cold_start.batch."
        )
    if sft.batch % gpus:
        raise ConfigError(f"cold_start.batch {sft.batch} must be a multiple of the {gpus} GPUs of the cold start.")
    if sft.schedule == "linear":
        raise ConfigError("verl's SFT trainer has no linear schedule; set cold_start.schedule to cosine or constant.")
    steps = sft.steps or max(round(sft.epochs * per_epoch), 1)
    warmup = round(sft.warmup * steps) if sft.warmup < 1 else int(sft.warmup)
    # One conversation of full length must fit a forward pass; shorter ones are packed until it is full.
    values: dict[str, Value] = {
        "data.train_files": str(folder / "sft.parquet"),
        "data.train_batch_size": sft.batch,
        "data.micro_batch_size_per_gpu": max(sft.batch // gpus, 1),
        "data.use_dynamic_bsz": True,
        "data.max_token_len_per_gpu": cluster.micro_tokens or sft.cutoff,
        "data.max_length": sft.cutoff,
        "data.truncation": "right",
        "data.pad_mode": "no_padding",
        # Message by message, as rollouts append them; Qwen3's template would add an empty thought to the last one.
        "data.ignore_input_ids_mismatch": True,
        "data.num_workers": 2,
        "model.path": model,
        "model.enable_gradient_checkpointing": True,
        "model.use_remove_padding": True,
        "engine.strategy": "fsdp2",
        "engine.model_dtype": "fp32",
        "engine.dtype": "bfloat16",
        "engine.ulysses_sequence_parallel_size": cluster.sequence_parallel,
        "engine.param_offload": cluster.offload,
        "engine.optimizer_offload": cluster.offload,
        "optim.lr": sft.lr,
        "optim.lr_scheduler_type": "cosine" if sft.schedule == "cosine" else "constant",
        "optim.lr_warmup_steps": warmup,
        "optim.betas": list(sft.betas),
        "optim.weight_decay": sft.weight_decay,
        "optim.clip_grad": sft.grad_norm,
        "checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        "trainer.total_epochs": ENDLESS,
        "trainer.total_training_steps": steps,
        "trainer.save_freq": per_epoch,
        "trainer.max_ckpt_to_keep": job.keep_checkpoints,
        "trainer.test_freq": -1,
        "trainer.seed": job.seed,
        "trainer.resume_mode": "auto",
        "trainer.default_local_dir": str(folder / "checkpoints"),
        "trainer.project_name": "userrl",
        "trainer.experiment_name": job.stage,
        "trainer.logger": ["console", "file"],
        "trainer.device": cluster.device,
        "trainer.nnodes": 1,
        "trainer.n_gpus_per_node": gpus,
    }
    return merged([f"{key}={literal(value)}" for key, value in values.items()], cluster.sft_overrides)


def agents_file(stage_file: Path) -> str:
    """verl's list of agent loops, as YAML (JSON is YAML)."""
    loop = {
        "name": "userrl",
        "_target_": "userrl_core.training.verl.agent_loop.GymAgentLoop",
        "stage_file": str(stage_file),
    }
    return json.dumps([loop], indent=1) + "\n"


def refuse_what_verl_cannot(job: VerlJob) -> None:
    """Raise ConfigError, with what to change, for settings that verl would take another way than the recipe means."""
    algorithm = job.algorithm
    if job.intervention is not None and job.credit.shaping != "equalized":
        raise ConfigError(
            "With backend=verl an interrupted attempt counts as a turn to the shaping of credit; set credit.shaping to equalized, "
            "or train with backend=local."
        )
    if job.credit.filter == "resample":
        raise ConfigError(
            "With backend=verl, groups without a signal cannot be drawn again; set credit.filter to drop or keep."
        )
    if algorithm.batch % algorithm.minibatches:
        raise ConfigError(
            f"algorithm.batch {algorithm.batch} must be a multiple of algorithm.minibatches {algorithm.minibatches}."
        )
    gpus = job.cluster.all_gpus
    mini = algorithm.batch // algorithm.minibatches * algorithm.group
    if mini % (gpus // job.cluster.sequence_parallel or 1):
        raise ConfigError(f"A minibatch of {mini} conversations does not divide evenly over {gpus} GPUs.")
    if job.cluster.nodes > 1 and job.cluster.ray_address is None:
        raise ConfigError(
            f"{job.cluster.nodes} nodes need a running Ray cluster; start one with 'ray start' on each and set "
            "hardware.ray_address to auto."
        )


def compose(overrides: Sequence[str], *, name: str = "ppo_trainer") -> Any:
    """verl's whole configuration under these overrides, checked by verl's own rules. Needs verl; starts nothing.

    Raises ConfigError with verl's first sentence.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = hydra_compose(config_name=name, overrides=list(overrides))
        OmegaConf.resolve(config)
        if name == "ppo_trainer":
            from verl.trainer.ppo.utils import need_critic, need_reference_policy
            from verl.utils.config import validate_config

            validate_config(config, need_reference_policy(config), need_critic(config))
    except (HydraException, OmegaConfBaseException, AssertionError, ValueError) as error:
        raise ConfigError(f"verl refuses this configuration: {_first_line(error)}") from error
    return config


def literal(value: Value) -> str:
    """A value in the grammar of hydra's command line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        if _PLAIN.match(value):
            return value
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    return f"[{','.join(literal(item) for item in value)}]"


def merged(overrides: Sequence[str], more: Sequence[str]) -> list[str]:
    """One list in which a key occurs once: the last value counts, at the first one's place."""
    by_key: dict[str, str] = {}
    for override in (*overrides, *more):
        key, equals, _ = override.partition("=")
        if not equals:
            raise ConfigError(f"'{override}' is no override; write key=value.")
        by_key[key.lstrip("+")] = override
    return list(by_key.values())


def _data(job: VerlJob, folder: Path) -> dict[str, Value]:
    return {
        "data.train_files": str(folder / "train.parquet"),
        "data.val_files": str(folder / "validation.parquet"),
        "data.train_batch_size": job.algorithm.batch,
        "data.max_prompt_length": job.algorithm.max_prompt_tokens,
        "data.max_response_length": job.algorithm.max_response_tokens,
        "data.shuffle": False,
        "data.validation_shuffle": False,
        "data.filter_overlong_prompts": False,
        "data.seed": job.seed,
        "data.dataloader_num_workers": 2,
    }


def _algorithm(job: VerlJob, folder: Path) -> dict[str, Value]:
    algorithm, credit = job.algorithm, job.credit
    values: dict[str, Value] = {
        "algorithm.adv_estimator": ESTIMATORS[algorithm.name],
        "algorithm.gamma": algorithm.gae_gamma,
        "algorithm.lam": algorithm.gae_lambda,
        "algorithm.use_kl_in_reward": algorithm.kl_reward_coef > 0,
        "algorithm.kl_ctrl.kl_coef": algorithm.kl_reward_coef,
        "algorithm.rollout_correction.rollout_rs": None,
        "algorithm.filter_groups.enable": False,
    }
    if algorithm.name != "ppo":
        values |= {
            "+algorithm.userrl.shaping": credit.shaping,
            "+algorithm.userrl.score": credit.score,
            "+algorithm.userrl.gamma": credit.gamma,
            "+algorithm.userrl.k": credit.k,
            "+algorithm.userrl.form": credit.form,
            "+algorithm.userrl.ddof": credit.ddof,
            **({"+algorithm.userrl.rounding": credit.rounding} if credit.rounding != "none" else {}),
            "+algorithm.userrl.stage_file": str(folder / "stage.json"),
        }
    if algorithm.entropy_mask is not None:
        values |= {
            "trainer.v1.trainer_mode": MASKING_TRAINER,
            "+algorithm.entropy_mask.share": algorithm.entropy_mask,
            # The local backend leaves groups without a signal out of the update, and so out of the threshold.
            "+algorithm.entropy_mask.compared": algorithm.name in ("grpo", "rloo") and credit.filter == "drop",
        }
    return values


def _model(resume: Resume) -> dict[str, Value]:
    return {
        "actor_rollout_ref.model.path": resume.model,
        "actor_rollout_ref.model.enable_gradient_checkpointing": True,
        "actor_rollout_ref.model.use_remove_padding": True,
    }


def _actor(job: VerlJob) -> dict[str, Value]:
    algorithm, cluster = job.algorithm, job.cluster
    actor = "actor_rollout_ref.actor"
    return {
        f"{actor}.strategy": "fsdp2",
        f"{actor}.ppo_mini_batch_size": algorithm.batch // algorithm.minibatches,
        f"{actor}.ppo_epochs": algorithm.inner_epochs,
        f"{actor}.use_dynamic_bsz": True,
        f"{actor}.ppo_max_token_len_per_gpu": micro_tokens(job),
        f"{actor}.ulysses_sequence_parallel_size": cluster.sequence_parallel,
        f"{actor}.loss_agg_mode": AGGREGATIONS[algorithm.loss_aggregation],
        f"{actor}.clip_ratio": algorithm.clip,
        f"{actor}.clip_ratio_low": algorithm.clip,
        f"{actor}.clip_ratio_high": algorithm.clip_high or algorithm.clip,
        f"{actor}.clip_ratio_c": algorithm.dual_clip or NO_DUAL_CLIP,
        f"{actor}.use_kl_loss": algorithm.kl_coef > 0,
        f"{actor}.kl_loss_coef": algorithm.kl_coef,
        f"{actor}.kl_loss_type": "low_var_kl",
        f"{actor}.entropy_coeff": algorithm.entropy_coef,
        f"{actor}.grad_clip": algorithm.grad_norm,
        f"{actor}.optim.lr": algorithm.lr,
        f"{actor}.optim.lr_scheduler_type": "constant",
        f"{actor}.optim.lr_warmup_steps": algorithm.warmup_steps,
        f"{actor}.optim.betas": list(algorithm.betas),
        f"{actor}.optim.weight_decay": algorithm.weight_decay,
        f"{actor}.optim.clip_grad": algorithm.grad_norm,
        f"{actor}.fsdp_config.param_offload": cluster.offload,
        f"{actor}.fsdp_config.optimizer_offload": cluster.offload,
        f"{actor}.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
    }


def _rollout(job: VerlJob, folder: Path) -> dict[str, Value]:
    algorithm, cluster = job.algorithm, job.cluster
    rollout = "actor_rollout_ref.rollout"
    return {
        f"{rollout}.name": cluster.engine,
        f"{rollout}.n": algorithm.group,
        f"{rollout}.temperature": algorithm.temperature,
        f"{rollout}.top_p": algorithm.top_p,
        f"{rollout}.calculate_log_probs": True,
        f"{rollout}.tensor_model_parallel_size": cluster.tensor_parallel,
        f"{rollout}.gpu_memory_utilization": cluster.engine_memory,
        f"{rollout}.max_model_len": algorithm.max_prompt_tokens + algorithm.max_response_tokens,
        f"{rollout}.seed": job.seed,
        f"{rollout}.val_kwargs.n": 1,
        f"{rollout}.val_kwargs.temperature": job.validation_temperature,
        f"{rollout}.val_kwargs.top_p": job.validation_top_p,
        f"{rollout}.val_kwargs.do_sample": job.validation_temperature > 0,
        f"{rollout}.multi_turn.enable": True,
        f"{rollout}.multi_turn.max_assistant_turns": job.validation_horizon,
        f"{rollout}.agent.num_workers": cluster.workers,
        f"{rollout}.agent.default_agent_loop": "userrl",
        f"{rollout}.agent.agent_loop_config_path": str(folder / "agents.yaml"),
    }


def _critic(job: VerlJob, resume: Resume) -> dict[str, Value]:
    algorithm, cluster = job.algorithm, job.cluster
    return {
        "critic.model.path": resume.model,
        "critic.model.use_remove_padding": True,
        "critic.strategy": "fsdp2",
        "critic.optim.lr": algorithm.critic_lr,
        "critic.ppo_mini_batch_size": algorithm.batch // algorithm.minibatches,
        "critic.ppo_epochs": algorithm.inner_epochs,
        "critic.use_dynamic_bsz": True,
        "critic.ppo_max_token_len_per_gpu": micro_tokens(job),
        "critic.ulysses_sequence_parallel_size": cluster.sequence_parallel,
    }


def _trainer(job: VerlJob, folder: Path, resume: Resume) -> dict[str, Value]:
    cluster = job.cluster
    values: dict[str, Value] = {
        "trainer.project_name": "userrl",
        "trainer.experiment_name": job.stage,
        "trainer.logger": ["console", "file"],
        "trainer.nnodes": cluster.nodes,
        "trainer.n_gpus_per_node": cluster.node_gpus,
        "trainer.device": cluster.device,
        "trainer.total_epochs": ENDLESS,
        "trainer.total_training_steps": job.last_step,
        "trainer.critic_warmup": job.algorithm.critic_warmup,
        # What was validated must lie there to be chosen.
        "trainer.save_freq": gcd(job.checkpoint_every, job.validate_every) if job.validation else job.checkpoint_every,
        "trainer.test_freq": job.validate_every if job.validation else -1,
        "trainer.val_before_train": bool(job.validation) and job.first_step == 1 and resume.path is None,
        "trainer.default_local_dir": str(folder / "checkpoints"),
        "trainer.resume_mode": "disable" if resume.path is None else "resume_path",
    }
    if resume.path is not None:
        values["trainer.resume_from_path"] = str(resume.path)
    if resume.weights_only:
        # The step comes from the folder's name; nothing is read from it.
        values["actor_rollout_ref.actor.checkpoint.load_contents"] = []
        if job.algorithm.name == "ppo":
            values["critic.checkpoint.load_contents"] = []
    return values


def _ray(cluster: Cluster) -> dict[str, Value]:
    if cluster.ray_address is not None:
        return {"+ray_kwargs.ray_init.address": cluster.ray_address}
    return {"+ray_kwargs.ray_init.include_dashboard": False}


def micro_tokens(job: VerlJob) -> int:
    """Tokens of one forward pass per GPU: at least one conversation of full length over its sequence-parallel group."""
    longest = job.algorithm.max_prompt_tokens + job.algorithm.max_response_tokens
    least = -(-longest // job.cluster.sequence_parallel)
    chosen = job.cluster.micro_tokens or least
    if chosen < least:
        raise ConfigError(f"hardware.micro_tokens {chosen} holds no conversation of full length; set {least} or more.")
    return chosen


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
