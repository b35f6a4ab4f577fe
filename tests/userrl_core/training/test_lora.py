"""LoRA: what is trained, what a checkpoint holds, and that it goes on to the last bit."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.makers import raises
from tests.userrl_core.training.toys import TINY, ListCurriculum, RecordingSink, chats, rl_job, sft_job, travel
from userrl_core.training.config import AlgorithmConfig, LoraSettings, SftConfig
from userrl_core.training.jobs import StageResult
from userrl_core.training.local.checkpoint import read_state
from userrl_core.training.local.loop import train_rl
from userrl_core.training.local.lora import Base, adapt, folded, load_adapter, without_adapters
from userrl_core.training.local.model import build_model, load_model
from userrl_core.training.local.optimizer import adamw, trained
from userrl_core.training.local.sft import train_sft
from userrl_core.training.local.state import load_checkpoint
from userrl_core.training.local.text.tokenizer import render, train_tokenizer

LORA = LoraSettings(rank=4, alpha=8)
IDS = torch.tensor([[5, 17, 300, 42, 8, 9]])
PER_RANK = 2 * (2 * (32 + 32) + 2 * (32 + 16) + 3 * (32 + 64))
"""Two blocks: queries and output, keys and values, three matrices of the feed-forward part; in + out of each."""


class Interrupted(Exception):
    pass


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> StageResult:
    return train_sft(sft_job(tmp_path_factory.mktemp("cold"), sft=SftConfig(steps=40, lr=5e-3, batch=16)))


def model() -> Any:
    return build_model(TINY, train_tokenizer(render(chats(5)), TINY.vocab_size), 0)


def adapted(settings: LoraSettings = LORA) -> Any:
    """With adapters that say something: B is no longer zero."""
    changed = model()
    adapt(changed, settings, 1)
    torch.manual_seed(2)
    with torch.no_grad():
        for name, parameter in trained(changed).items():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    return changed


@torch.no_grad()
def furthest(one: Any, other: Any) -> float:
    return float((one(IDS).logits - other(IDS).logits).abs().max())


def train(
    folder: Path, init: Path, first: int = 1, last: int = 2, stop: int = 0, name: str = "rl", **settings: Any
) -> StageResult:
    def progress(step: int, total: int, metrics: Mapping[str, float]) -> None:
        if step == stop:
            raise Interrupted

    algorithm: dict[str, Any] = {"group": 4, "batch": 3, "lr": 5e-3, "max_tokens": 24, "max_response_tokens": 160}
    job = rl_job(
        folder, init, out_dir=folder / name, first_step=first, last_step=last,
        algorithm=AlgorithmConfig(**algorithm | {"lora": LORA} | settings.pop("algorithm", {})), **settings,
    )  # fmt: skip
    return train_rl(job, ListCurriculum(travel(count=10)), RecordingSink(), progress)


def files(result: StageResult) -> dict[str, str]:
    return read_state(result.checkpoint).files


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        (LORA, 4 * PER_RANK),
        (LoraSettings(rank=1), PER_RANK),
        (LoraSettings(rank=2, targets=("q_proj", "v_proj")), 2 * 2 * (64 + 48)),
    ],
)
def test_only_the_adapters_are_trained(settings: LoraSettings, count: int) -> None:
    changed = model()
    adapt(changed, settings, 0)
    assert sum(p.numel() for p in trained(changed).values()) == count
    assert all(".lora_" in name for name in trained(changed))
    groups = adamw(changed, 1e-3, (0.9, 0.95), 0.0).param_groups
    assert sum(p.numel() for group in groups for p in group["params"]) == count


def test_new_adapters_change_nothing_and_are_the_same_for_the_same_seed() -> None:
    base, one, two, other = model(), model(), model(), model()
    for changed, seed in ((one, 3), (two, 3), (other, 4)):
        adapt(changed, LORA, seed)
    assert torch.equal(one(IDS).logits, base(IDS).logits)
    pairs = list(zip(trained(one).values(), trained(two).values(), trained(other).values(), strict=True))
    assert all(torch.equal(a, b) for a, b, _ in pairs)
    assert not all(torch.equal(a, c) for a, _, c in pairs)


def test_folded_weights_say_what_the_adapted_model_says_and_without_adapters_it_is_its_base() -> None:
    changed, base, whole = adapted(), model(), model()
    whole.load_state_dict(folded(changed.state_dict(), 2.0))
    assert furthest(whole, changed) < 1e-5
    assert furthest(base, changed) > 0.1
    with without_adapters(changed):
        assert torch.equal(changed(IDS).logits, base(IDS).logits)
    assert not torch.equal(changed(IDS).logits, base(IDS).logits)
    assert len(trained(changed)) == 2 * 7 * 2, "switched on again, they are trained again"


def test_sixteen_bit_weights_are_folded_with_one_rounding() -> None:
    changed = adapted().to(torch.bfloat16)
    layer = changed.model.layers[0].self_attn.q_proj
    a, b = layer.lora_A["default"].weight.float(), layer.lora_B["default"].weight.float()
    weight = folded(changed.state_dict(), 2.0)["model.layers.0.self_attn.q_proj.weight"]
    assert torch.equal(weight, (layer.base_layer.weight.float() + 2.0 * b @ a).to(torch.bfloat16))


def test_layers_that_the_model_does_not_have_are_refused() -> None:
    small = torch.nn.Sequential(torch.nn.Linear(2, 2))
    with raises("model.unsupported", "lora.targets"):
        adapt(small, LoraSettings(targets=("q_proj",)), 0)


def test_a_checkpoint_is_an_ordinary_model_with_its_adapters_beside(tmp_path: Path, start: StageResult) -> None:
    before = load_file(start.checkpoint / "model.safetensors")
    end = train(tmp_path, start.checkpoint)
    after = load_file(end.checkpoint / "model.safetensors")
    assert after.keys() == before.keys()
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert len(changed) == 2 * 7
    assert all("_proj." in name for name in changed)
    assert read_state(start.checkpoint).sha256 == start.sha256, "the base lies where it lay"
    moments = load_file(end.checkpoint / "trainer" / "optimizer.safetensors")
    assert len(moments) == 2 * 7 * 2 * 3
    assert all(".lora_" in name for name in moments)
    assert sum(t.numel() for name, t in moments.items() if name.endswith("exp_avg")) == 4 * PER_RANK

    plain, _ = load_checkpoint(end.checkpoint, TINY, "cpu")
    below = AutoModelForCausalLM.from_pretrained(start.checkpoint)
    by_peft = PeftModel.from_pretrained(below, str(end.checkpoint / "trainer" / "adapter"))
    assert furthest(plain, by_peft) < 1e-5


@pytest.mark.parametrize("more", [{}, {"name": "ppo", "critic_lr": 1e-3}])
def test_a_run_that_was_interrupted_ends_with_the_same_bytes(
    tmp_path: Path, start: StageResult, more: dict[str, Any]
) -> None:
    whole = train(tmp_path / "whole", start.checkpoint, algorithm=more)
    with pytest.raises(Interrupted):
        train(tmp_path / "cut", start.checkpoint, stop=1, algorithm=more)
    again = train(tmp_path / "cut", start.checkpoint, algorithm=more)
    assert files(again) == files(whole), "adapters, optimiser, generators and history included"


def test_the_next_stage_goes_on_with_the_adapters_as_one_run_over_both(tmp_path: Path, start: StageResult) -> None:
    whole = train(tmp_path, start.checkpoint, last=4, name="whole")
    first = train(tmp_path, start.checkpoint, last=2, name="rl-1")
    second = train(tmp_path, first.checkpoint, first=3, last=4, name="rl-2")
    assert second.sha256 == whole.sha256
    assert files(second) == files(whole)


def test_the_distance_is_measured_to_the_model_below_the_adapters(tmp_path: Path, start: StageResult) -> None:
    copy = tmp_path / "elsewhere" / start.checkpoint.name
    shutil.copytree(start.checkpoint, copy)
    kl = {"algorithm": {"kl_coef": 0.1, "inner_epochs": 2}}
    own = train(tmp_path, start.checkpoint, name="own", reference=start.checkpoint, **kl)
    other = train(tmp_path, start.checkpoint, name="other", reference=copy, **kl)
    assert own.sha256 == other.sha256
    assert own.metrics["policy/kl_reference/mean"] == other.metrics["policy/kl_reference/mean"] > 0


def test_adapters_without_their_base_are_refused_and_move_with_it(tmp_path: Path, start: StageResult) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    shutil.copytree(start.checkpoint, old / "cold" / start.checkpoint.name)
    first = train(old, old / "cold" / start.checkpoint.name, name="rl-1")
    old.rename(new)
    moved = new / first.checkpoint.relative_to(old)
    assert train(new, moved, first=3, last=3, name="rl-2").step == 3
    shutil.rmtree(new / "cold")
    with raises("checkpoint.other_settings"):
        train(new, moved, first=3, last=3, name="rl-3")


def test_adapters_of_another_rank_and_weights_without_adapters_are_refused(tmp_path: Path, start: StageResult) -> None:
    first = train(tmp_path, start.checkpoint, name="rl-1")
    with raises("checkpoint.other_settings"):
        train(tmp_path, first.checkpoint, 3, 3, name="rank", algorithm={"lora": LoraSettings(rank=8)})
    with raises("checkpoint.other_settings"):
        train(tmp_path, first.checkpoint, 3, 3, name="full", algorithm={"lora": None})
    full = train(tmp_path, start.checkpoint, name="full-1", algorithm={"lora": None})
    with raises("checkpoint.other_settings"):
        train(tmp_path, full.checkpoint, 3, 3, name="lora")


def test_adapters_of_more_layers_than_the_model_adapts_are_refused(tmp_path: Path, start: StageResult) -> None:
    wide, narrow = load_model(start.checkpoint, TINY), load_model(start.checkpoint, TINY)
    adapt(wide, LORA, 0)
    Base.at(start.checkpoint, LORA).save(wide, tmp_path / "adapter")
    adapt(narrow, LORA.model_copy(update={"targets": ("q_proj",)}), 0)
    with raises("checkpoint.other_settings", "layers.0.mlp.down_proj"):
        load_adapter(narrow, tmp_path / "adapter")


def test_the_cold_start_trains_adapters_of_a_checkpoint_and_resumes(tmp_path: Path, start: StageResult) -> None:
    named = TINY.model_copy(update={"path": str(start.checkpoint)})
    sft = SftConfig(steps=4, lr=5e-3, batch=8, lora=LORA)

    def run(name: str, stop: int = 0) -> StageResult:
        def progress(step: int, total: int, metrics: Mapping[str, float]) -> None:
            if step == stop:
                raise Interrupted

        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        return train_sft(sft_job(folder, sft=sft, model=named, checkpoint_every=2), progress=progress)

    whole = run("whole")
    with pytest.raises(Interrupted):
        run("cut", stop=3)
    assert run("cut").sha256 == whole.sha256 != start.sha256
    base = load_model(start.checkpoint, TINY)
    adapt(base, LORA, 0)
    load_adapter(base, whole.checkpoint / "trainer" / "adapter")
    plain, _ = load_checkpoint(whole.checkpoint, TINY, "cpu")
    assert furthest(plain, base) < 1e-5
    assert train(tmp_path, whole.checkpoint).step == 2, "whose base is the cold start with its adapters folded in"


def test_a_model_from_scratch_has_nothing_to_adapt(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="adapters need an existing model"):
        sft_job(tmp_path, sft=SftConfig(steps=2, lora=LORA))


@pytest.mark.parametrize(
    "values", [{"rank": 0}, {"rank": 513}, {"alpha": 0}, {"targets": []}, {"targets": ["lm_head"]}, {"dropout": 0.1}]
)
def test_settings_beyond_their_bounds_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        LoraSettings(**values)


def test_adapters_have_the_same_gradients_with_gradient_checkpointing() -> None:
    def gradients(checkpointed: bool) -> list[torch.Tensor]:
        changed = adapted()
        if checkpointed:
            changed.gradient_checkpointing_enable()  # as `load_model` does
        changed.train()(IDS).logits.square().sum().backward()
        return [parameter.grad for parameter in trained(changed).values()]

    plain = gradients(False)
    assert all(bool(gradient.abs().sum() > 0) for gradient in plain)
    for one, other in zip(plain, gradients(True), strict=True):
        torch.testing.assert_close(other, one)
