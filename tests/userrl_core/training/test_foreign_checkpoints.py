"""A checkpoint from elsewhere: what is wrong with it is said in one sentence with its path, before torch reads it."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.llama import gguf_file
from tests.makers import raises
from tests.places import ROOT
from tests.userrl_core.training.toys import TINY, chats
from userrl_core.errors import CheckpointError, TrainingError
from userrl_core.training.chat_template import refuse_endless, within
from userrl_core.training.local.convert import convert
from userrl_core.training.local.model import build_model, check_elsewhere, load_model
from userrl_core.training.local.state import save_model
from userrl_core.training.local.text.chat import ChatFormat
from userrl_core.training.local.text.tokenizer import load_tokenizer, render, train_tokenizer
from userrl_core.training.model_files import check_stored, hash_of
from userrl_core.training.shapes import shape_of

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
LORA = "model.layers.0.self_attn.q_proj.lora_A.default.weight"
LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
Damage = Callable[[Path], Any]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    tokenizer = train_tokenizer(render(chats(20)), TINY.vocab_size)
    save_model(build_model(TINY, tokenizer, 0), tokenizer, folder)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "model")


def cut(name: str, size: int) -> Damage:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def text(name: str, value: str) -> Damage:
    return lambda folder: (folder / name).write_text(value)


def changed(name: str, **fields: Any) -> Damage:
    return lambda folder: (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | fields))


def without_a_tensor(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    del tensors["model.norm.weight"]
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def with_tensors(*names: str) -> Damage:
    def add(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS) | {name: torch.ones(4, 32) for name in names}
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})

    return add


def poisoned(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    tensors["model.norm.weight"][0] = float("nan")
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def flipped(folder: Path, name: str = WEIGHTS) -> None:
    """Flip the last bit of a file, which leaves weights that can be read."""
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def stored_by_a_run(folder: Path) -> None:
    hashes = {file.name: hash_of([file]) for file in folder.iterdir()} | {"trainer/optimizer.safetensors": "0" * 64}
    (folder / "state.json").write_text(json.dumps({"files": hashes}))


def stored_by_a_fetch(folder: Path) -> None:
    (folder / "model.json").write_text(json.dumps({"sha256": hash_of([folder / WEIGHTS])}))


def stored_by_verl(folder: Path) -> None:
    (folder.parent / "userrl.json").write_text(json.dumps({"sha256": hash_of([folder / WEIGHTS])}))


def indexed(*files: str) -> Damage:
    def index(folder: Path) -> None:
        (folder / WEIGHTS).unlink()
        torch.save({"model.norm.weight": torch.ones(32)}, folder / "pytorch_model.bin")
        (folder / INDEX).write_text(
            json.dumps({"metadata": {}, "weight_map": dict.fromkeys(["model.norm.weight"], files[0])})
        )

    return index


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (cut(WEIGHTS, 100), "The weights in {}/model.safetensors are damaged"),
        (cut(WEIGHTS, 5000), "The weights in {}/model.safetensors are damaged"),
        (changed("config.json", hidden_size=64), "No model can be loaded from {}: its weights do not have the shapes"),
        (changed("config.json", hidden_size="big"), "No model can be loaded from {}: Validation error for field 'hidden_size'"),
        (changed("config.json", num_attention_heads=0), "No model can be loaded from {}: integer division"),
        (changed("config.json", hidden_act="nosuch"), "No model can be loaded from {}: 'nosuch'"),
        (changed("config.json", transformers_weights="adapter_model.bin"), "{}/config.json names its own file of weights"),
        (text("config.json", '{"a":'), "{}/config.json cannot be read"),
        (text("config.json", "[" * 100_000), "{}/config.json cannot be read"),
        (text("config.json", "[1]"), "{}/config.json contains no JSON object"),
        (text("state.json", "{}"), "{}/state.json names no files"),
        (changed("config.json", rms_norm_eps=float("nan")), "{}/config.json cannot be read (no JSON: one of its values is NaN)"),
        (changed("config.json", rms_norm_eps=-1e3), "The logits of {} are not finite"),
        (without_a_tensor, "The weights in {} lack model.norm.weight"),
        (with_tensors("model.layers.9.mlp.up_proj.weight"), "The weights in {} have model.layers.9.mlp.up_proj.weight, which"),
        (with_tensors(LORA), "The weights in {} have model.layers.0.self_attn.q_proj.lora_A"),
        (poisoned, "The weights in {} are not all finite numbers (model.norm.weight)"),
        (indexed("pytorch_model.bin"), "{}/model.safetensors.index.json names 'pytorch_model.bin'"),
        (indexed("../other.safetensors"), "{}/model.safetensors.index.json names '../other.safetensors'"),
        (indexed("b.safetensors"), "{} has no b.safetensors"),
        (text(INDEX, "{}"), "{}/model.safetensors.index.json names no files of weights"),
    ],
)  # fmt: skip
def test_a_model_that_cannot_be_loaded_is_one_sentence_with_its_path(
    folder: Path, damage: Damage, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(folder)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("torch read a pickle"))
    with pytest.raises(CheckpointError) as refused:
        load_model(folder, TINY)
    assert str(refused.value).startswith(sentence.format(folder))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (cut("tokenizer.json", 500), "No tokenizer can be loaded from {}"),
        (text("tokenizer.json", "{}"), "No tokenizer can be loaded from {}"),
        (text("tokenizer_config.json", "[1]"), "No tokenizer can be loaded from {}"),
        (changed("tokenizer_config.json", tokenizer_class=3), "No tokenizer can be loaded from {}"),
        (text("chat_template.jinja", "{% for %}"), "The chat template of {} cannot be rendered"),
        (text("chat_template.jinja", "{{ messages.foo.bar }}"), "The chat template of {} cannot be rendered"),
        (text("chat_template.jinja", "{{ 'a' * 10**11 }}"), "The chat template of {} does not finish"),
        (text("chat_template.jinja", LOOP.replace("{% endfor %}", "x{% endfor %}")), "The chat template of {} does not finish"),
    ],
)  # fmt: skip
def test_a_tokenizer_that_cannot_be_loaded_is_one_sentence_with_its_path(
    folder: Path, damage: Damage, sentence: str
) -> None:
    damage(folder)
    with raises("checkpoint.bad_tokenizer") as refused:
        load_tokenizer(folder)
    assert str(refused.value).startswith(sentence.format(folder))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("stored", [stored_by_a_run, stored_by_a_fetch, stored_by_verl])
@pytest.mark.parametrize("load", [lambda folder: load_model(folder, TINY), check_elsewhere, check_stored])
def test_weights_that_do_not_match_their_stored_hash_are_loaded_by_nobody(
    folder: Path, stored: Damage, load: Callable[[Path], Any]
) -> None:
    stored(folder)
    load(folder)
    flipped(folder)
    with raises("checkpoint.damaged", "hash"):
        load(folder)


def test_a_tokenizer_of_a_run_that_was_edited_is_refused_with_its_model(folder: Path) -> None:
    stored_by_a_run(folder)
    flipped(folder, "tokenizer.json")
    with raises("checkpoint.damaged", "tokenizer.json does not match its hash"):
        load_model(folder, TINY)


def test_models_are_loaded_by_the_function_that_checks_their_hashes() -> None:
    """The others read a GGUF file to convert it, ask whether a folder loads at all, or write a line for a model card."""
    readers = {
        path.relative_to(ROOT).as_posix()
        for room in ("userrl_core", "userrl", "flows", "packages")
        for path in (ROOT / room).rglob("*.py")
        if "AutoModelForCausalLM.from_pretrained(" in path.read_text()
    }
    reports = {"userrl/reports/checkpoints.py", "packages/userrl-sharing/userrl_sharing/model_card.py"}
    assert readers == {"userrl_core/training/local/model.py", "userrl_core/training/local/convert.py", *reports}


def test_an_attention_that_config_json_names_does_not_win_over_ours(folder: Path) -> None:
    changed("config.json", _attn_implementation="kernels-community/flash-attn")(folder)
    assert load_model(folder, TINY).config._attn_implementation == "sdpa"
    with raises("checkpoint.unsafe", "'kernels-community/flash-attn'"):
        check_elsewhere(folder)


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (poisoned, "checkpoint.not_finite"),
        (cut(WEIGHTS, 5000), "checkpoint.damaged"),
        (indexed("pytorch_model.bin"), "checkpoint.unsafe"),
        (text("chat_template.jinja", "{{ 'a' * 10**11 }}"), "checkpoint.bad_tokenizer"),
    ],
)
def test_what_another_process_is_to_load_is_checked_before_it_starts(folder: Path, damage: Damage, code: str) -> None:
    check_elsewhere(folder)
    damage(folder)
    with raises(code):
        check_elsewhere(folder)


def test_an_output_layer_stored_beside_the_embedding_is_no_foreign_weight(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    save_file(
        tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}, folder / WEIGHTS, {"format": "pt"}
    )
    load_model(folder, TINY)
    check_elsewhere(folder)


def test_a_gguf_file_with_fewer_or_more_weights_than_its_model_is_refused(tmp_path: Path) -> None:
    with raises("checkpoint.damaged", "fewer.gguf lack model.layers.1."):
        convert(gguf_file(tmp_path / "fewer.gguf", layers=1), tmp_path / "model")
    with raises("checkpoint.damaged", "more.gguf has", "the file has"):
        convert(gguf_file(tmp_path / "more.gguf", extra="blk.0.attn_q_norm.weight"), tmp_path / "model")
    assert not (tmp_path / "model").exists()
    convert(gguf_file(tmp_path / "factors.gguf", extra="rope_freqs.weight"), tmp_path / "model")


@pytest.mark.parametrize("value", ['{"a":', "[1]", '{"num_attention_heads": 0, "hidden_size": 8}'])
def test_the_shape_of_a_bad_config_is_one_sentence(tmp_path: Path, value: str) -> None:
    (tmp_path / "config.json").write_text(value)
    with raises("checkpoint.damaged"):
        shape_of(tmp_path)


def test_a_template_that_loops_without_a_word_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("userrl_core.training.chat_template.SECONDS", 1)
    with raises("checkpoint.bad_tokenizer", "within 1 s"):
        refuse_endless(LOOP, "theirs")


def test_a_template_that_loops_on_long_conversations_alone_ends_with_a_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").write_text(f"{{% if messages | length > 6 %}}{LOOP}{{% endif %}}{template}")
    monkeypatch.setattr("userrl_core.training.local.text.tokenizer.SECONDS", 0.2)
    chat_format = ChatFormat(load_tokenizer(folder))
    assert chat_format.opening([{"role": "user", "content": "Hi."}])
    endings: list[str] = []

    def open_a_long_one() -> None:
        with raises("checkpoint.bad_tokenizer") as ended:
            chat_format.opening([{"role": "user", "content": "Hi."}] * 7)
        endings.append(str(ended.value))

    threads = [threading.Thread(target=open_a_long_one) for _ in range(3)]
    for thread in threads:
        thread.start()
    open_a_long_one()
    for thread in threads:
        thread.join()
    assert len(endings) == 4
    assert endings[0].startswith(
        f"The chat template of {folder} did not finish within 0.2 s on a conversation of 7 messages"
    )


def test_a_limit_leaves_nothing_behind_what_ends_in_time() -> None:
    assert within(30.0, TrainingError("process.stalled", "late"), lambda: 22) == 22
    with pytest.raises(KeyError):
        within(30.0, TrainingError("process.stalled", "late"), lambda: {}["x"])
