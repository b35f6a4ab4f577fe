"""A configuration that cannot fit is refused before a GPU is held."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import curricula
from tests.makers import raises
from userrl_core.training.config import AlgorithmConfig, Cluster, LoraSettings, ModelConfig
from userrl_core.training.shapes import SHAPES, shape_of
from userrl_core.training.verl.job import VerlJob
from userrl_core.training.verl.memory import Estimate, check_machine, check_memory, settle, settled


def make_job(model: str, **hardware: Any) -> VerlJob:
    return VerlJob(
        model=ModelConfig(path=model),
        out_dir=Path("out"),
        init=Path("sft"),
        algorithm=AlgorithmConfig(minibatches=8),
        last_step=10,
        cluster=Cluster(**hardware),
    )


def test_parameter_counts_are_the_published_ones() -> None:
    billions = {name: round(shape.parameters / 1e9, 2) for name, shape in SHAPES.items()}
    assert billions["Qwen3-0.6B"] == 0.60
    assert billions["Qwen3-4B"] == 4.02
    assert billions["Qwen3-8B"] == 8.19
    assert billions["Qwen3-32B"] == 32.76
    assert billions["Qwen2.5-3B"] == 3.09
    assert billions["Qwen2.5-7B"] == 7.62


def test_the_papers_machine_holds_the_papers_models() -> None:
    for model in ("Qwen/Qwen3-4B", "Qwen/Qwen3-8B"):
        found = check_memory(make_job(model, gpus=8, gpu_memory=141.0))
        assert found.update < found.card
        assert found.conversations > 16


def test_eight_billion_weights_on_one_card_are_refused_with_the_way_out() -> None:
    with raises("hardware.too_little_memory"):
        check_memory(make_job("Qwen/Qwen3-8B", gpus=1, gpu_memory=141.0))


def test_training_state_beside_a_greedy_engine_is_refused_until_it_is_offloaded() -> None:
    job = make_job("Qwen/Qwen3-8B", gpus=2, gpu_memory=141.0, engine_memory=0.7)
    with raises("hardware.too_little_memory"):
        check_memory(job)
    check_memory(make_job("Qwen/Qwen3-8B", gpus=2, gpu_memory=141.0, engine_memory=0.7, offload=True))


def test_an_engine_without_room_for_one_conversation_is_refused() -> None:
    with raises("hardware.too_little_memory"):
        check_memory(make_job("Qwen/Qwen3-32B", gpus=8, gpu_memory=141.0, engine_memory=0.45))


def test_a_folders_own_config_says_its_shape(tmp_path: Path) -> None:
    config = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 1000,
        "tie_word_embeddings": True,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    shape = shape_of(tmp_path)
    assert (shape.kv_heads, shape.head_dim, shape.tied) == (4, 16, True)
    assert shape.kv_bytes == 4 * 2 * 4 * 16


@pytest.mark.parametrize("content", ['{"hidden_size": 64}', '{"hidden_size": "much"}'])
def test_a_config_that_says_too_little_is_an_error_in_words(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with raises("checkpoint.damaged", "config.json"):
        shape_of(tmp_path)


def test_an_unknown_model_is_not_guessed() -> None:
    with raises("model.unsupported"):
        shape_of("Someone/Else-9B")
    assert shape_of("Qwen/Qwen3-4B-Instruct-2507") is SHAPES["Qwen3-4B"]


def test_a_dry_run_shows_what_a_profile_needs_and_refuses_a_doomed_one() -> None:
    def needs(**overrides: Any) -> dict[str, str]:
        recipe = curricula.load("equalized-r2g", profile="qwen3-8b", overrides=overrides, check=False)
        return dict(check_machine(recipe.model, recipe.hardware, recipe.algorithm, recipe.credit, recipe.cold_start))

    shown = needs()
    assert shown["parameters"] == "8.19 B"
    assert shown["update, in all"] == "40.7 of 141 GB"
    assert shown["cold start, in all"] == "71.1 of 141 GB on 4 GPUs"
    with raises("hardware.too_little_memory"):
        needs(**{"hardware.gpus": 1})
    with raises("hardware.too_little_memory", "299"):
        needs(**{"cold_start.cutoff": 131072})


def test_adapters_are_counted_by_rank_and_layer() -> None:
    shape = SHAPES["Qwen3-8B"]
    assert shape.adapters(None) == 0
    # Hidden 4096, queries 4096, keys 1024, feed-forward 12288, 36 layers.
    assert shape.adapters(LoraSettings(rank=16)) == 16 * 36 * (2 * 8192 + 2 * 5120 + 3 * 16384) == 43_646_976
    assert shape.adapters(LoraSettings(rank=8, targets=("q_proj", "v_proj"))) == 8 * 36 * (8192 + 5120)


def test_under_lora_only_adapters_have_gradients_and_moments_and_no_reference_is_held() -> None:
    def needs(lora: LoraSettings | None) -> Estimate:
        job = make_job("Qwen/Qwen3-8B", gpus=2, gpu_memory=141.0)
        algorithm = job.algorithm.model_copy(update={"lora": lora, "kl_coef": 0.01})
        return check_memory(job.model_copy(update={"algorithm": algorithm}))

    weights, adapters = SHAPES["Qwen3-8B"].parameters, 43_646_976
    full, adapted = needs(None), needs(LoraSettings(rank=16))
    assert full.state == 16 * weights / 2 / 1e9
    assert adapted.state == (4 * weights + 16 * adapters) / 2 / 1e9
    assert (full.reference, adapted.reference) == (4 * weights / 2 / 1e9, 0.0)
    assert full.rollout - full.engine == pytest.approx(12 * weights / 2 / 1e9 + full.reference + 2.5)
    assert adapted.rollout - adapted.engine == pytest.approx((4 * weights + 12 * adapters) / 2 / 1e9 + 2.5)


def test_eight_billion_weights_under_lora_fit_one_card_that_their_training_state_does_not() -> None:
    job = make_job("Qwen/Qwen3-8B", gpus=1, gpu_memory=141.0)
    with raises("hardware.too_little_memory"):
        check_memory(job)
    lora = job.algorithm.model_copy(update={"lora": LoraSettings()})
    assert check_memory(job.model_copy(update={"algorithm": lora})).update < 141.0


def test_ppos_critic_trains_all_of_its_weights_under_lora() -> None:
    weights, adapters = SHAPES["Qwen3-8B"].parameters, 43_646_976
    job = make_job("Qwen/Qwen3-8B", gpus=4, gpu_memory=141.0)
    ppo = AlgorithmConfig(name="ppo", minibatches=8, lora=LoraSettings())
    needed = check_memory(job.model_copy(update={"algorithm": ppo}))
    assert needed.state == (20 * weights + 16 * adapters) / 4 / 1e9
    assert needed.rollout - needed.engine == pytest.approx((16 * weights + 12 * adapters) / 4 / 1e9 + 2.5)


def test_auto_takes_what_the_card_holds_and_nothing_that_fits_is_refused_by_it() -> None:
    auto = {"engine_memory": "auto", "micro_tokens": "auto"}
    job = settle(make_job("Qwen/Qwen3-8B", gpus=8, gpu="H100", **auto))
    assert (job.cluster.engine_memory, job.cluster.micro_tokens) == (0.78, 26_215)
    wide = settle(make_job("Qwen/Qwen3-8B", gpus=8, gpu="H200", **auto))
    assert (wide.cluster.engine_memory, wide.cluster.micro_tokens) == (0.8, 4 * 9344)
    assert settle(wide) is wide
    for cluster in (job.cluster, wide.cluster):
        found = check_memory(make_job("Qwen/Qwen3-8B", **{**cluster.model_dump(), **auto}))
        assert found.engine_share == cluster.engine_memory
        assert max(found.update, found.rollout) < found.card
    with raises("hardware.too_little_memory"):
        check_memory(make_job("Qwen/Qwen3-8B", gpus=1, gpu="H100", **auto))


def test_a_plan_shows_what_auto_comes_to() -> None:
    recipe = curricula.load(
        "equalized-r2g",
        profile="qwen3-8b",
        check=False,
        overrides={"hardware.engine_memory": "auto", "hardware.micro_tokens": "auto"},
    )
    rows = dict(check_machine(recipe.model, recipe.hardware, recipe.algorithm, recipe.credit, recipe.cold_start))
    assert rows["hardware.engine_memory"] == "0.80"
    assert rows["hardware.micro_tokens"] == "37,376 in one forward pass"
    assert settled(recipe.model, recipe.hardware, recipe.algorithm).engine_memory == 0.8
