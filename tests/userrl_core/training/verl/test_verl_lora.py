"""Stock verl on a CPU trains adapters of our recipe: two stages, of which the second goes on with the adapters of the first."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.userrl_core.training.verl.rig import CPU, TwoStages, cluster, make_job, make_model, on_cpu
from tests.userrl_core.training.verl.test_verl_stages import in_log
from userrl_core.distill import to_chat
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.rollout import run_episodes
from userrl_core.training.config import AlgorithmConfig, LoraSettings
from userrl_core.training.jobs import StageResult
from userrl_core.training.verl.checkpoints import owner
from userrl_core.training.verl.rl import run_rl

LORA = LoraSettings(rank=4, alpha=8)


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.timeout(1800)
def test_two_stages_of_verl_train_adapters_and_leave_ordinary_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked: str
) -> None:
    import torch
    from safetensors.torch import load_file

    from userrl_core.training.local.lora import folded

    on_cpu(monkeypatch)
    said = asyncio.run(run_episodes(TwoStages().pool[:10], ScriptedPolicy(1.0), horizon=6, prompt_style="brief"))
    base = make_model(tmp_path / "model", [to_chat(t) for t in said])
    metrics: dict[int, Mapping[str, float]] = {}

    def progress(step: int, total: int, numbers: Mapping[str, float]) -> None:
        metrics[step] = numbers

    def stage(name: str, init: Path, first: int, last: int) -> StageResult:
        job = make_job(
            tmp_path / name, init, stage=name, first_step=first, last_step=last, validation=[], reference=base,
            algorithm=AlgorithmConfig(
                batch=2, group=4, lr=3e-2, kl_coef=0.01, lora=LORA,
                max_prompt_tokens=128, max_tokens=48, max_response_tokens=384,
            ),
            cluster=cluster(python=forked).model_copy(
                update={"overrides": (*CPU, "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=8")}
            ),
        )  # fmt: skip
        return in_log(tmp_path, lambda log, _: run_rl(job, TwoStages(), log, progress))

    first = stage("rl-1", base, 1, 2)
    second = stage("rl-2", first.checkpoint, 3, 3)
    before = load_file(base / "model.safetensors")
    for result in (first, second):
        after = load_file(result.checkpoint / "model.safetensors")
        assert after.keys() == before.keys(), "an ordinary model of the same kind"
        changed = {name for name in after if not torch.equal(after[name], before[name])}
        assert len(changed) == 7
        assert all("_proj." in name for name in changed)
        shards = actor(result, "model")
        whole = {name: tensor.full_tensor() for name, tensor in shards.items()}
        assert all(torch.equal(whole[f"base_model.model.{name}"], before[name]) for name in before.keys() - changed)
        assert all(torch.equal(whole[f"base_model.model.{wrapped(name)}"], before[name]) for name in changed), (
            "what lies below the adapters is the first stage's start, in every stage"
        )
        assert all(torch.equal(tensor, after[name]) for name, tensor in folded(whole, 2.0).items())
        moments = actor(result, "optim")["state"]
        assert len(moments) == 7 * 2, "only adapters have moments"
    assert next(iter(actor(second, "optim")["state"].values()))["step"] == 3, "one optimiser over both stages"
    assert metrics[1]["policy/kl_reference/mean"] == pytest.approx(0.0, abs=1e-6)
    distance = metrics[3]["policy/kl_reference/mean"]
    assert distance > 1e-3, "it is measured to the model below the adapters"
    # The engine's weights are bfloat16, which alone makes 1e-4: it is the adapted model that speaks, not what lies below.
    assert metrics[3]["verl/rollout_corr/k3_kl"] < distance / 4


def actor(result: StageResult, what: str) -> dict[str, Any]:
    import torch

    folder = owner(result.checkpoint)
    assert folder is not None
    # verl's own shards: this test wrote them.
    loaded: dict[str, Any] = torch.load(folder / "actor" / f"{what}_world_size_1_rank_0.pt", weights_only=False)
    return loaded


def wrapped(name: str) -> str:
    return name.replace("_proj.", "_proj.base_layer.")
