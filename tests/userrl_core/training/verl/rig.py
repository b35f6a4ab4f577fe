"""Makers for the verl tests: a model of a few thousand weights, jobs that fit two cores, a curriculum of two stages."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.places import ROOT
from userrl_core.gyms import registry
from userrl_core.interact import InteractCall, render_call
from userrl_core.records import Task
from userrl_core.rewards import CreditConfig
from userrl_core.training.config import AlgorithmConfig, Cluster, ModelConfig
from userrl_core.training.verl.job import SinkSpec, VerlJob

ENV = {
    "VERL_PLATFORM": "cpu",
    "VERL_ENGINE_DEVICE": "cuda",
    "VERL_ENGINE_VENDOR": "nvidia",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "VERL_USE_EXTERNAL_MODULES": "tests.userrl_core.training.verl.cpu",
    "OMP_NUM_THREADS": "1",
    # Ray's own patience is a minute each: enough for two idle cores, and not for two busy ones.
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "600",
    "RAY_gcs_server_request_timeout_seconds": "600",
    "RAY_worker_niceness": "0",  # Ray's 15 starves a worker beside other tests
    "RAY_prestart_worker_first_driver": "0",  # no worker that nothing asked for
}

CALLS = [("action", f"{word}?") for word in ("price", "meal", "area", "room")] * 2 + [("search", "high vegan")]
REPLIES = [render_call(InteractCall(*call)) for call in [*CALLS, ("answer", "H3"), ("answer", "H4"), ("answer", "1")]]
"""What the test engine says: some of it earns a reward in the tiny travel tier, some of it ends the attempt."""

CPU = (
    "actor_rollout_ref.model.use_remove_padding=False",
    "actor_rollout_ref.model.enable_gradient_checkpointing=False",
    "actor_rollout_ref.actor.use_dynamic_bsz=False",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8",
    "actor_rollout_ref.actor.use_torch_compile=False",
    "actor_rollout_ref.rollout.load_format=auto",
    "data.dataloader_num_workers=0",
    "reward.num_workers=1",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    "ray_kwargs.ray_init.num_cpus=8",
    "+ray_kwargs.ray_init.include_dashboard=False",
    "+ray_kwargs.ray_init.num_gpus=1",
    "+ray_kwargs.ray_init.object_store_memory=200000000",
)
SFT_CPU = (
    "data.num_workers=0",
    "data.use_dynamic_bsz=False",
    "model.use_remove_padding=False",
    "model.enable_gradient_checkpointing=False",
    "engine.use_torch_compile=False",
)
MACHINE: dict[str, Any] = {
    "gpus": 1,
    "workers": 1,
    "engine": "transformers_cpu",
    "device": "cpu",
    "overrides": list(CPU),
    "sft_overrides": list(SFT_CPU),
}


def on_cpu(patch: pytest.MonkeyPatch) -> None:
    """verl's processes find a CPU platform, and an engine that speaks the replies above."""
    for name, value in ENV.items():
        patch.setenv(name, value)
    patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    patch.setenv("USERRL_TEST_REPLIES", json.dumps(REPLIES))


def cluster(**more: Any) -> Cluster:
    """One process that stands for one GPU."""
    return Cluster(**MACHINE, **more)


SMALL_BATCHES: dict[str, Any] = {
    "batch": 2,
    "group": 4,
    "minibatches": 1,
    "max_tokens": 48,
    "max_response_tokens": 384,
    "max_prompt_tokens": 256,
}
"""Overrides of `algorithm` for a step that a CPU takes in seconds."""


def hardware(python: str) -> dict[str, Any]:
    """The same machine as a recipe's overrides. python: verl's interpreter."""
    return {**MACHINE, "gpu_memory": 24, "python": python}


def make_model(folder: Path, chats: Sequence[Mapping[str, Any]]) -> Path:
    """A Qwen3 of 40,000 weights with a tokenizer learnt from the chats."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from userrl_core.training.local.text.tokenizer import render, train_tokenizer

    tokenizer = train_tokenizer(render(chats), 400)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


class TwoStages:
    """A curriculum: horizon 4 up to step 2, then 6; travel and math tasks in turn."""

    def __init__(self) -> None:
        travel = registry.tasks("travel", "train", tier="tiny")[:40]
        math = registry.tasks("math", "train")[:40]
        self.pool: list[Task] = [task for pair in zip(travel, math, strict=True) for task in pair]
        self.at = 0
        self.seen: list[float] = []

    def horizon(self, step: int, history: Sequence[Mapping[str, float]], group: int | None = None) -> int:
        return 4 if step <= 2 else 6

    def stage_of(self, step: int) -> str:
        return "rl-1" if step <= 2 else "rl-2"

    def draw(self, step: int, n: int) -> list[Task]:
        self.at += n
        return self.pool[self.at - n : self.at]

    def record(self, step: int, stats: Mapping[str, float], outcomes: Any = ()) -> None:
        self.seen.append(stats.get("rollout/success/mean", 0.0))

    def choices(self, step: int) -> list[Task] | None:
        return None

    def observe(self, task_key: str, success: float, tokens: float | None = None, conversations: int = 1) -> None: ...

    def metrics(self) -> dict[str, float]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at, "seen": self.seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.at, self.seen = int(state["at"]), list(state["seen"])


def make_job(out_dir: Path, init: Path, **more: Any) -> VerlJob:
    """A stage of two steps with two groups of four attempts."""
    values: dict[str, Any] = {
        "model": ModelConfig(prompt_style="brief"),
        "out_dir": out_dir,
        "init": init,
        "algorithm": AlgorithmConfig(
            batch=2,
            group=4,
            minibatches=1,
            lr=1e-3,
            max_prompt_tokens=128,
            max_tokens=48,
            max_response_tokens=384,
        ),
        "credit": CreditConfig(shaping="r2g", score="r2g", form="paper"),
        "last_step": 2,
        "total_steps": 4,
        "checkpoint_every": 1,
        "validation": list(registry.tasks("travel", "validation", tier="tiny")[:2]),
        "validate_every": 2,
        "validation_horizon": 6,
        "seed": 7,
        "cluster": cluster(),
        "stage": "rl-1",
        "stall": 900.0,
    }
    return VerlJob(**{**values, **more})


def warehouse_sink(root: Path, run: str) -> SinkSpec:
    """Workers log into this warehouse."""
    return SinkSpec(name="warehouse", options={"root": str(root), "run_id": run})
