"""Every setting that a stage passes to verl, and through it to vLLM: key, value and reason.

Each value appears once, next to its reason. `config` writes the list as verl's overrides, and docs/reference/verl-flags.md
shows it for each profile (``python scripts/verl_tables.py``). Paths are in the stage's folder, so two stages of one
recipe differ in few lines. In hydra, a leading ``+`` marks a key that verl's own files do not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from userrl_core.errors import ConfigError
from userrl_core.training.config import Cluster, LoraSettings, ModelConfig
from userrl_core.training.verl.job import Resume, VerlJob, VerlSftJob

Value = str | int | float | bool | None | Sequence[str] | Sequence[float]


class VerlFlag(NamedTuple):
    """One setting. why: the recipe key it comes from, or the reason for a fixed value."""

    value: Value
    why: str


Flags = dict[str, VerlFlag]

ESTIMATORS = {
    "grpo": "userrl",
    "rloo": "userrl_rloo",
    "ppo": "gae",
    "reinforce_pp": "userrl_reinforce_pp",
    "remax": "userrl_remax",
}
"""verl's estimator per algorithm. Ours leave out trajectories without a score. ppo uses verl's own, the only one that
sees the critic's values.
"""

AGGREGATIONS = {"trajectory_mean": "seq-mean-token-mean", "token_mean": "token-mean"}

NO_DUAL_CLIP = 1e9
"""verl's dual clip cannot be switched off, so the bound is set where no loss reaches it."""

MASKING_TRAINER = "userrl_entropy_mask"
"""verl's synchronous trainer with the entropy mask, registered by `entropy_trainer`."""

ENDLESS = 1_000_000
"""Epochs. The number of steps decides, not the number of passes over a file with only the remaining rows."""

SAVED = ["model", "optimizer", "extra", "hf_model"]

WHY_ATTENTION = "hardware.attention; auto: flash where the trainer's interpreter imports flash_attn, else sdpa"
WHY_SAVED = (
    "shards to resume from, and a Hugging Face folder for another number of GPUs, an evaluation or the next stage"
)
WHY_OFFLOAD = "hardware.offload: true keeps training state in host memory during rollouts"
WHY_PACKED = "no padding is computed: conversations differ in length"
WHY_CHATS = "the tokens and the mask of rollouts and of the local backend; verl's own renders each message by itself"
WHY_RECOMPUTED = "activations of a full-length conversation do not fit next to the training state"
WHY_STRATEGY = "weights, gradients and moments are sharded over all GPUs"
WHY_PARALLEL = "hardware.sequence_parallel: GPUs that share one long conversation (Ulysses)"
WHY_STEPS = "the number of steps decides, not passes over a file with only the remaining rows"


def rl_flags(job: VerlJob, folder: Path, resume: Resume, attention: str) -> Flags:
    """Return the flags of one RL stage. attention: the result of `attention.chosen_attention`."""
    return {
        **_data(job, folder),
        **_algorithm(job, folder),
        **_model(job, resume, attention),
        **_actor(job),
        **_rollout(job, folder),
        **(_critic(job, resume, attention) if job.algorithm.name == "ppo" else {}),
        **_trainer(job, folder, resume),
        **_ray(job.cluster),
    }


def sft_flags(job: VerlSftJob, folder: Path, model: str, per_epoch: int, attention: str) -> Flags:
    """Return the flags of the cold start. per_epoch: whole steps in one pass over the demonstrations."""
    sft, cluster = job.sft, job.cluster
    gpus = cluster.cold_start_gpus
    steps = sft.steps or max(round(sft.epochs * per_epoch), 1)
    warmup = round(sft.warmup * steps) if sft.warmup < 1 else int(sft.warmup)
    return {
        **lora_flags("model", sft.lora, "cold_start.lora"),
        **_thinking(job.model),
        "data.train_files": VerlFlag(str(folder / "sft.parquet"), "the demonstrations, written by the launcher"),
        "data.train_batch_size": VerlFlag(sft.batch, "cold_start.batch"),
        "data.micro_batch_size_per_gpu": VerlFlag(
            max(sft.batch // gpus, 1), "required by verl; packing by tokens decides"
        ),
        "data.use_dynamic_bsz": VerlFlag(True, "shorter demonstrations are packed until a forward pass is full"),
        "data.max_token_len_per_gpu": VerlFlag(
            cluster.pass_tokens or sft.cutoff, "hardware.micro_tokens; none: one full-length demonstration"
        ),
        "data.max_length": VerlFlag(sft.cutoff, "cold_start.cutoff"),
        "data.truncation": VerlFlag("right", "tokens beyond the cutoff are cut off"),
        "data.pad_mode": VerlFlag("no_padding", WHY_PACKED),
        "data.custom_cls.path": VerlFlag("pkg://userrl_core.training.verl.data", WHY_CHATS),
        "data.custom_cls.name": VerlFlag("ChatDataset", WHY_CHATS),
        "data.num_workers": VerlFlag(2, "reading is not a bottleneck"),
        "model.path": VerlFlag(model, "model.path, or init_from"),
        "model.enable_gradient_checkpointing": VerlFlag(True, WHY_RECOMPUTED),
        "model.use_remove_padding": VerlFlag(True, WHY_PACKED),
        "+model.override_config.attn_implementation": VerlFlag(attention, WHY_ATTENTION),
        "engine.strategy": VerlFlag("fsdp2", WHY_STRATEGY),
        "engine.model_dtype": VerlFlag("fp32", "the optimizer's weights: steps of 1e-6 are lost in bfloat16"),
        "engine.dtype": VerlFlag("bfloat16", "number format of the forward and backward pass"),
        "engine.ulysses_sequence_parallel_size": VerlFlag(cluster.sequence_parallel, WHY_PARALLEL),
        "engine.param_offload": VerlFlag(cluster.offload, WHY_OFFLOAD),
        "engine.optimizer_offload": VerlFlag(cluster.offload, WHY_OFFLOAD),
        "optim.lr": VerlFlag(sft.lr, "cold_start.lr"),
        "optim.lr_scheduler_type": VerlFlag(
            "cosine" if sft.schedule == "cosine" else "constant", "cold_start.schedule"
        ),
        "optim.lr_warmup_steps": VerlFlag(warmup, "cold_start.warmup, as steps"),
        "optim.betas": VerlFlag(list(sft.betas), "cold_start.betas"),
        "optim.weight_decay": VerlFlag(sft.weight_decay, "cold_start.weight_decay"),
        "optim.clip_grad": VerlFlag(sft.grad_norm, "cold_start.grad_norm"),
        "checkpoint.save_contents": VerlFlag(SAVED, WHY_SAVED),
        "trainer.total_epochs": VerlFlag(ENDLESS, WHY_STEPS),
        "trainer.total_training_steps": VerlFlag(
            steps, "cold_start.steps, or cold_start.epochs over the demonstrations"
        ),
        "trainer.save_freq": VerlFlag(per_epoch, "one checkpoint per epoch"),
        "trainer.max_ckpt_to_keep": VerlFlag(job.keep_checkpoints, "keep_checkpoints"),
        "trainer.test_freq": VerlFlag(-1, "the cold start is not validated"),
        "trainer.seed": VerlFlag(job.seed, "seed"),
        "trainer.resume_mode": VerlFlag("auto", "a restart continues from the newest checkpoint"),
        "trainer.default_local_dir": VerlFlag(str(folder / "checkpoints"), "the stage's folder"),
        "trainer.project_name": VerlFlag("userrl", "name in verl's logs"),
        "trainer.experiment_name": VerlFlag(job.stage, "name in verl's logs"),
        "trainer.logger": VerlFlag(["console", "file"], "the launcher reads the file; no network"),
        "trainer.device": VerlFlag(cluster.device, "hardware.device"),
        "trainer.nnodes": VerlFlag(1, "the cold start runs on one node"),
        "trainer.n_gpus_per_node": VerlFlag(gpus, "hardware.sft_gpus; 0: as many as RL"),
    }


def _thinking(model: ModelConfig) -> Flags:
    if model.thinking is None:
        return {}
    return {"+data.apply_chat_template_kwargs.enable_thinking": VerlFlag(model.thinking, "model.thinking")}


def _data(job: VerlJob, folder: Path) -> Flags:
    return {
        **_thinking(job.model),
        "data.train_files": VerlFlag(str(folder / "train.parquet"), "the rows of the remaining steps, in order"),
        "data.val_files": VerlFlag(str(folder / "validation.parquet"), "verl requires a file even if it is never read"),
        "data.train_batch_size": VerlFlag(job.algorithm.batch, "algorithm.batch"),
        "data.max_prompt_length": VerlFlag(job.algorithm.max_prompt_tokens, "algorithm.max_prompt_tokens"),
        "data.max_response_length": VerlFlag(job.algorithm.max_response_tokens, "algorithm.max_response_tokens"),
        "data.shuffle": VerlFlag(False, "a resumed stage must read the remaining rows, which the file has in order"),
        "data.validation_shuffle": VerlFlag(False, "the same tasks in the same order at every validation"),
        "data.filter_overlong_prompts": VerlFlag(False, "a dropped row would shift all later steps"),
        "data.seed": VerlFlag(job.seed, "seed"),
        "data.dataloader_num_workers": VerlFlag(2, "reading is not a bottleneck"),
    }


def _algorithm(job: VerlJob, folder: Path) -> Flags:
    algorithm, credit = job.algorithm, job.credit
    flags = {
        "algorithm.adv_estimator": VerlFlag(
            ESTIMATORS[algorithm.name], "algorithm.name: ours skips trajectories without a score; gae for ppo"
        ),
        "algorithm.gamma": VerlFlag(algorithm.gae_gamma, "algorithm.gae_gamma"),
        "algorithm.lam": VerlFlag(algorithm.gae_lambda, "algorithm.gae_lambda"),
        "algorithm.use_kl_in_reward": VerlFlag(algorithm.kl_reward_coef > 0, "algorithm.kl_reward_coef above 0"),
        "algorithm.kl_ctrl.kl_coef": VerlFlag(algorithm.kl_reward_coef, "algorithm.kl_reward_coef"),
        "algorithm.rollout_correction.rollout_rs": VerlFlag(
            None, "it rewrites the response mask, and turns are recovered from that mask"
        ),
        "algorithm.filter_groups.enable": VerlFlag(
            False, "groups without a signal have advantage 0 and are not replaced"
        ),
    }
    if algorithm.name != "ppo":
        flags |= {
            "+algorithm.userrl.shaping": VerlFlag(credit.shaping, "credit.shaping"),
            "+algorithm.userrl.score": VerlFlag(credit.score, "credit.score"),
            "+algorithm.userrl.gamma": VerlFlag(credit.gamma, "credit.gamma"),
            "+algorithm.userrl.k": VerlFlag(credit.k, "credit.k"),
            "+algorithm.userrl.form": VerlFlag(credit.form, "credit.form"),
            "+algorithm.userrl.ddof": VerlFlag(credit.ddof, "credit.ddof"),
        }
        if credit.rounding != "none":
            flags["+algorithm.userrl.rounding"] = VerlFlag(credit.rounding, "credit.rounding")
        flags["+algorithm.userrl.stage_file"] = VerlFlag(str(folder / "stage.json"), "the stage file for the estimator")
    if algorithm.entropy_mask is not None:
        flags |= {
            "trainer.v1.trainer_mode": VerlFlag(
                MASKING_TRAINER, "verl's policy losses see no entropies, but its trainer does"
            ),
            "+algorithm.entropy_mask.share": VerlFlag(algorithm.entropy_mask, "algorithm.entropy_mask"),
            "+algorithm.entropy_mask.compared": VerlFlag(
                algorithm.name in ("grpo", "rloo", "remax") and credit.filter == "drop",
                "the local backend excludes groups without a signal from the update and from the threshold",
            ),
        }
    return flags


def lora_flags(model: str, lora: LoraSettings | None, key: str) -> Flags:
    """Return the flags for adapters of the model under this verl key; empty when all weights are trained."""
    if lora is None:
        return {}
    targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
    return {
        f"{model}.lora_rank": VerlFlag(lora.rank, f"{key}.rank"),
        f"{model}.lora_alpha": VerlFlag(lora.alpha, f"{key}.alpha"),
        f"{model}.target_modules": VerlFlag(targets, f"{key}.targets"),
    }


def _model(job: VerlJob, resume: Resume, attention: str) -> Flags:
    model, lora = "actor_rollout_ref.model", job.algorithm.lora
    folded = "the engine gets merged weights: every engine accepts them, at full speed"
    return {
        **lora_flags(model, lora, "algorithm.lora"),
        **({} if lora is None else {f"{model}.lora.merge": VerlFlag(True, folded)}),
        f"{model}.path": VerlFlag(resume.model, "the cold start's or the previous stage's checkpoint"),
        f"{model}.enable_gradient_checkpointing": VerlFlag(True, WHY_RECOMPUTED),
        f"{model}.use_remove_padding": VerlFlag(True, WHY_PACKED),
        f"+{model}.override_config.attn_implementation": VerlFlag(attention, WHY_ATTENTION),
    }


def _actor(job: VerlJob) -> Flags:
    algorithm, cluster = job.algorithm, job.cluster
    actor = "actor_rollout_ref.actor"
    minibatch = "algorithm.batch over algorithm.minibatches"
    clip_low = "algorithm.clip"
    return {
        f"{actor}.strategy": VerlFlag("fsdp2", WHY_STRATEGY),
        f"{actor}.ppo_mini_batch_size": VerlFlag(algorithm.batch // algorithm.minibatches, minibatch),
        f"{actor}.ppo_epochs": VerlFlag(algorithm.inner_epochs, "algorithm.inner_epochs"),
        f"{actor}.use_dynamic_bsz": VerlFlag(True, "conversations are packed until a forward pass is full"),
        f"{actor}.ppo_max_token_len_per_gpu": VerlFlag(
            micro_tokens(job), "hardware.micro_tokens; none: one full-length conversation over its parallel group"
        ),
        f"{actor}.ulysses_sequence_parallel_size": VerlFlag(cluster.sequence_parallel, WHY_PARALLEL),
        f"{actor}.loss_agg_mode": VerlFlag(AGGREGATIONS[algorithm.loss_aggregation], "algorithm.loss_aggregation"),
        f"{actor}.clip_ratio": VerlFlag(algorithm.clip, clip_low),
        f"{actor}.clip_ratio_low": VerlFlag(algorithm.clip, clip_low),
        f"{actor}.clip_ratio_high": VerlFlag(
            algorithm.clip_high or algorithm.clip, "algorithm.clip_high; none: algorithm.clip"
        ),
        f"{actor}.clip_ratio_c": VerlFlag(
            algorithm.dual_clip or NO_DUAL_CLIP, "algorithm.dual_clip; none: a bound that no loss reaches"
        ),
        f"{actor}.use_kl_loss": VerlFlag(algorithm.kl_coef > 0, "algorithm.kl_coef above 0"),
        f"{actor}.kl_loss_coef": VerlFlag(algorithm.kl_coef, "algorithm.kl_coef"),
        f"{actor}.kl_loss_type": VerlFlag("low_var_kl", "exp(d) - d - 1, the local backend's estimate"),
        f"{actor}.entropy_coeff": VerlFlag(algorithm.entropy_coef, "algorithm.entropy_coef"),
        f"{actor}.grad_clip": VerlFlag(algorithm.grad_norm, "algorithm.grad_norm"),
        f"{actor}.optim.lr": VerlFlag(algorithm.lr, "algorithm.lr"),
        f"{actor}.optim.lr_scheduler_type": VerlFlag(
            "constant",
            "the number of steps also sets verl's learning-rate horizon: a longer run would change earlier steps",
        ),
        f"{actor}.optim.lr_warmup_steps": VerlFlag(algorithm.warmup_steps, "algorithm.warmup_steps"),
        f"{actor}.optim.betas": VerlFlag(list(algorithm.betas), "algorithm.betas"),
        f"{actor}.optim.weight_decay": VerlFlag(algorithm.weight_decay, "algorithm.weight_decay"),
        f"{actor}.optim.clip_grad": VerlFlag(algorithm.grad_norm, "algorithm.grad_norm"),
        f"{actor}.fsdp_config.param_offload": VerlFlag(cluster.offload, WHY_OFFLOAD),
        f"{actor}.fsdp_config.optimizer_offload": VerlFlag(cluster.offload, WHY_OFFLOAD),
        f"{actor}.checkpoint.save_contents": VerlFlag(SAVED, WHY_SAVED),
    }


def _rollout(job: VerlJob, folder: Path) -> Flags:
    algorithm, cluster = job.algorithm, job.cluster
    rollout = "actor_rollout_ref.rollout"
    greedy = "validation is greedy at temperature 0"
    return {
        f"{rollout}.name": VerlFlag(cluster.engine, "hardware.engine"),
        f"{rollout}.n": VerlFlag(algorithm.group, "algorithm.group"),
        f"{rollout}.temperature": VerlFlag(algorithm.temperature, "algorithm.temperature"),
        f"{rollout}.top_p": VerlFlag(algorithm.top_p, "algorithm.top_p"),
        f"{rollout}.calculate_log_probs": VerlFlag(
            True, "the engine's own probabilities are logged and compared with the actor's"
        ),
        f"{rollout}.tensor_model_parallel_size": VerlFlag(cluster.tensor_parallel, "hardware.tensor_parallel"),
        f"{rollout}.gpu_memory_utilization": VerlFlag(cluster.engine_share, "hardware.engine_memory"),
        f"{rollout}.max_model_len": VerlFlag(
            algorithm.max_prompt_tokens + algorithm.max_response_tokens, "opening and full-length conversation"
        ),
        f"{rollout}.seed": VerlFlag(job.seed, "seed"),
        f"{rollout}.val_kwargs.n": VerlFlag(1, "one attempt per validation task"),
        f"{rollout}.val_kwargs.temperature": VerlFlag(job.validation_temperature, greedy),
        f"{rollout}.val_kwargs.top_p": VerlFlag(job.validation_top_p, greedy),
        f"{rollout}.val_kwargs.do_sample": VerlFlag(job.validation_temperature > 0, greedy),
        f"{rollout}.multi_turn.enable": VerlFlag(True, "conversations have several turns"),
        f"{rollout}.multi_turn.max_assistant_turns": VerlFlag(
            job.validation_horizon, "the longest horizon; the agent loop ends each conversation at its own"
        ),
        f"{rollout}.agent.num_workers": VerlFlag(cluster.workers, "hardware.workers"),
        f"{rollout}.agent.default_agent_loop": VerlFlag("userrl", "our episode, as on the local backend"),
        f"{rollout}.agent.agent_loop_config_path": VerlFlag(str(folder / "agents.yaml"), "names our agent loop"),
    }


def _critic(job: VerlJob, resume: Resume, attention: str) -> Flags:
    algorithm, cluster = job.algorithm, job.cluster
    return {
        "critic.model.path": VerlFlag(resume.model, "the critic starts from the policy's weights"),
        "critic.model.use_remove_padding": VerlFlag(True, WHY_PACKED),
        "+critic.model.override_config.attn_implementation": VerlFlag(attention, WHY_ATTENTION),
        "critic.strategy": VerlFlag("fsdp2", WHY_STRATEGY),
        "critic.optim.lr": VerlFlag(algorithm.critic_lr, "algorithm.critic_lr"),
        "critic.ppo_mini_batch_size": VerlFlag(algorithm.batch // algorithm.minibatches, "same as the actor's"),
        "critic.ppo_epochs": VerlFlag(algorithm.inner_epochs, "same as the actor's"),
        "critic.use_dynamic_bsz": VerlFlag(True, "same as the actor's"),
        "critic.ppo_max_token_len_per_gpu": VerlFlag(micro_tokens(job), "same as the actor's"),
        "critic.ulysses_sequence_parallel_size": VerlFlag(cluster.sequence_parallel, WHY_PARALLEL),
    }


def _trainer(job: VerlJob, folder: Path, resume: Resume) -> Flags:
    cluster = job.cluster
    flags = {
        "trainer.project_name": VerlFlag("userrl", "name in verl's logs"),
        "trainer.experiment_name": VerlFlag(job.stage, "name in verl's logs"),
        "trainer.logger": VerlFlag(["console", "file"], "the launcher reads the file; no network"),
        "trainer.nnodes": VerlFlag(cluster.nodes, "hardware.nodes"),
        "trainer.n_gpus_per_node": VerlFlag(cluster.node_gpus, "hardware.gpus"),
        "trainer.device": VerlFlag(cluster.device, "hardware.device"),
        "trainer.total_epochs": VerlFlag(ENDLESS, WHY_STEPS),
        "trainer.total_training_steps": VerlFlag(
            job.last_step, "the stage's last step: absolute, counted over all stages"
        ),
        "trainer.critic_warmup": VerlFlag(
            job.algorithm.critic_warmup if job.algorithm.name == "ppo" else 0,
            "algorithm.critic_warmup; verl would not train the policy in these steps, also without a critic",
        ),
        "trainer.save_freq": VerlFlag(
            _save_every(job),
            "a validated policy needs a checkpoint to be chosen; otherwise as seldom as requested: one is some 130 GB for 8 B",
        ),
        "trainer.test_freq": VerlFlag(job.validate_every if job.validation else -1, "evaluate.every"),
        "trainer.val_before_train": VerlFlag(
            bool(job.validation) and job.first_step == 1 and resume.path is None, "the initial policy of a run, once"
        ),
        "trainer.default_local_dir": VerlFlag(str(folder / "checkpoints"), "the stage's folder"),
        "trainer.resume_mode": VerlFlag(
            "disable" if resume.path is None else "resume_path", "the launcher names the checkpoint"
        ),
    }
    if resume.path is not None:
        flags["trainer.resume_from_path"] = VerlFlag(str(resume.path), "the newest checkpoint with a logged step")
    if resume.weights_only:
        reason = "the step comes from the folder's name; nothing is read from it"
        flags["actor_rollout_ref.actor.checkpoint.load_contents"] = VerlFlag([], reason)
        if job.algorithm.name == "ppo":
            flags["critic.checkpoint.load_contents"] = VerlFlag([], reason)
    return flags


def _save_every(job: VerlJob) -> int:
    """Return the steps between two checkpoints.

    Every validation has a checkpoint. Otherwise checkpoints are at least checkpoint_every steps apart.
    """
    every = job.validate_every
    if not job.validation:
        return job.checkpoint_every
    return next(steps for steps in range(min(job.checkpoint_every, every), every + 1) if every % steps == 0)


def _ray(cluster: Cluster) -> Flags:
    if cluster.ray_address is not None:
        return {"+ray_kwargs.ray_init.address": VerlFlag(cluster.ray_address, "hardware.ray_address")}
    return {"+ray_kwargs.ray_init.include_dashboard": VerlFlag(False, "no port is opened for an unused dashboard")}


def micro_tokens(job: VerlJob) -> int:
    """Return the tokens of one forward pass per GPU: at least one full-length conversation over its sequence-parallel group."""
    longest = job.algorithm.max_prompt_tokens + job.algorithm.max_response_tokens
    least = -(-longest // job.cluster.sequence_parallel)
    chosen = job.cluster.pass_tokens or least
    if chosen < least:
        raise ConfigError(
            "recipe.invalid_value",
            f"hardware.micro_tokens {chosen} is less than a conversation of full length. Set {least} or more.",
        )
    return chosen
