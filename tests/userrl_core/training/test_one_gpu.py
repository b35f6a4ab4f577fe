"""What the local backend needs of one GPU, and that a run that does not fit is refused with the way out."""

from __future__ import annotations

from typing import Any

import curricula
from tests.makers import raises
from userrl.run.estimate import gpu_needs
from userrl_core.training.config import AlgorithmConfig, LoraSettings, ModelConfig, SftConfig
from userrl_core.training.one_gpu import check_one_gpu, check_rl
from userrl_core.training.shapes import SHAPES, ModelShape


def needs(model: str = "Qwen3-4B", card: float = 80.0, dtype: Any = "bfloat16", **algorithm: Any) -> dict[str, str]:
    """A dry run's rows, with conversations of 1,152 + 8,192 tokens, a micro-batch of 1 and no cold start."""
    settings = ModelConfig(path=f"Qwen/{model}", dtype=dtype, gradient_checkpointing=True)
    rl = AlgorithmConfig(**{"micro_batch": 1, **algorithm})
    return dict(check_one_gpu(settings, rl, SftConfig(enabled=False), card))


def test_checkpoints_of_up_to_four_billion_weights_train_on_one_card_of_80_gb() -> None:
    update = {name: needs(name)["update, in all"] for name in ("Qwen3-0.6B", "Qwen3-1.7B", "Qwen2.5-3B", "Qwen3-4B")}
    assert update == {
        "Qwen3-0.6B": "15.5 of 80 GB",
        "Qwen3-1.7B": "35.2 of 80 GB",
        "Qwen2.5-3B": "58.0 of 80 GB",
        "Qwen3-4B": "73.8 of 80 GB",
    }
    with raises("hardware.too_little_memory", "143", "80"):
        needs("Qwen3-8B")


def test_a_trained_parameter_takes_16_bytes_in_either_format_and_a_frozen_one_its_own() -> None:
    weights, adapters = SHAPES["Qwen3-4B"].parameters, SHAPES["Qwen3-4B"].adapters(LoraSettings())
    for dtype, width in (("bfloat16", 2), ("float32", 4)):
        assert needs(dtype=dtype)["weights, gradients, AdamW"] == f"{16 * weights / 1e9:.1f} GB"
        adapted = needs(dtype=dtype, lora=LoraSettings())
        assert adapted["weights, gradients, AdamW"] == f"{(width * weights + 16 * adapters) / 1e9:.1f} GB"


def test_a_reference_model_lies_beside_only_where_the_distance_counts_and_all_weights_are_trained() -> None:
    assert needs()["reference model"] == "0.0 GB"
    assert needs(card=141.0, kl_coef=0.01)["reference model"] == "8.0 GB"
    assert needs(kl_coef=0.01, lora=LoraSettings())["reference model"] == "0.0 GB"


def test_a_refusal_names_what_is_not_done_yet() -> None:
    with raises("hardware.too_little_memory") as refused:
        needs(dtype="float32", kl_coef=0.01, micro_batch=4)
    assert str(refused.value) == (
        "The update needs 118 GB on one GPU, which has 80 GB. Remedies: lower algorithm.micro_batch (4), set "
        "algorithm.kl_coef: 0, set model.dtype: bfloat16, train adapters (algorithm.lora), use a smaller model, or "
        "backend verl on more GPUs."
    )
    with raises("hardware.too_little_memory", "82 GB on one GPU", ": set algorithm.kl_coef: 0, train adapters"):
        needs(kl_coef=0.01)


def test_a_card_that_holds_the_update_but_no_cache_of_one_conversation_is_refused() -> None:
    every_head_has_keys = ModelShape(4096, 32, 32, 32, 128, 11008, 32000, tied=False)
    model = ModelConfig(path="folder", dtype="bfloat16", gradient_checkpointing=True)
    rl = AlgorithmConfig(micro_batch=1, lora=LoraSettings(), max_response_tokens=65_536)
    assert dict(check_rl(every_head_has_keys, model, rl, 80.0))["full conversations at once, in training"] == "1"
    with raises("hardware.too_little_memory", "14", "70", "66,688"):
        check_rl(every_head_has_keys, model, rl, 70.0)


def test_without_gradient_checkpointing_every_layer_keeps_its_activations() -> None:
    settings = ModelConfig(path="Qwen/Qwen3-0.6B", dtype="bfloat16")
    with raises("hardware.too_little_memory", "166", "model.gradient_checkpointing"):
        check_one_gpu(settings, AlgorithmConfig(micro_batch=8), SftConfig(enabled=False), 80.0)


def test_a_cold_start_is_counted_with_its_own_batch() -> None:
    settings = ModelConfig(path="Qwen/Qwen3-1.7B", dtype="bfloat16", gradient_checkpointing=True)
    rl = AlgorithmConfig(micro_batch=1)
    rows = dict(check_one_gpu(settings, rl, SftConfig(cutoff=8192, micro_batch=1), 80.0))
    assert rows["cold start, in all"] == "34.9 of 80 GB"
    with raises("hardware.too_little_memory", "180", "cold_start.micro_batch", "32"):
        check_one_gpu(settings, rl, SftConfig(cutoff=16384), 80.0)


def test_the_profile_for_one_gpu_fits_it_and_a_plan_shows_it() -> None:
    recipe = curricula.load("equalized-r2g", profile="h200-1", check=False)
    rows = dict(gpu_needs(recipe, "local", None))
    assert rows["update, in all"] == "25.6 of 141 GB"
    assert rows["full conversations at once, in evaluation"] == "74"
    doomed = curricula.load(
        "equalized-r2g",
        profile="h200-1",
        check=False,
        overrides={"model.path": "Qwen/Qwen3-8B", "hardware.gpu": "H100"},
    )
    with raises("hardware.too_little_memory"):
        gpu_needs(doomed, "local", None)


def test_a_model_whose_shape_is_not_known_is_not_refused() -> None:
    assert needs("Someone-9B") == {"memory": "not computed: the shape of the model is not known"}
