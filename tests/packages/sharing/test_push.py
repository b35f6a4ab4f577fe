"""``userrl push``: the folder, its card, and the requests of huggingface_hub's own client to a server on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from curricula import load
from tests.makers import raises
from tests.packages.sharing.hub_server import hub_server
from tests.userrl_core.training.checkpoints.makers import QUOTED, RUN
from tests.warehouse.makers import make_task
from userrl.reports.checkpoints import listed_checkpoints
from userrl.reports.run_report import read_report
from userrl.run.run import find
from userrl_core.json_files import with_checksum, write_json
from userrl_core.records import RolloutContext, Trajectory
from userrl_sharing.hub import PreparedUpload, prepare, upload
from userrl_sharing.model_card import model_card
from warehouse import TurnLog

TOKEN = "hf_" + "a1B2" * 8


def push(home: Path, *given: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a separate process: huggingface_hub reads its settings when it is imported."""
    command = [sys.executable, "-m", "flows.cli.main", "push", *given]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    own = {
        "USERRL_HOME": str(home),
        "HF_HUB_CACHE": str(home / "cache"),
        "HF_HUB_DISABLE_XET": "1",
    }  # Xet needs its own store
    env = {**kept, **own, **environment}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=100)


def test_a_checkpoint_reaches_the_hub_with_its_card_and_loads_from_what_arrived(home: Path, tmp_path: Path) -> None:
    with hub_server(TOKEN) as hub:
        done = push(home, "latest", "--to", "me/model", HF_ENDPOINT=hub.address, HF_TOKEN=TOKEN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"pushed {hub.address}/me/model/commit/1"
    assert TOKEN not in done.stdout + done.stderr
    assert (hub.repository["name"], hub.repository["organization"]) == ("model", "me")
    assert hub.repository.get("visibility", hub.repository.get("private")) in ("private", True)
    folder = home / "hub" / "me--model"
    assert hub.files == {file.name: file.read_bytes() for file in folder.iterdir()}
    assert "state.json" not in hub.files
    for name, content in hub.files.items():
        (tmp_path / "arrived").mkdir(exist_ok=True)
        (tmp_path / "arrived" / name).write_bytes(content)
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "arrived").num_parameters() > 0
    assert AutoTokenizer.from_pretrained(tmp_path / "arrived").chat_template


def test_a_refused_token_and_a_missing_one_are_said_after_the_folder_is_written(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hub_server("another") as hub:
        done = push(home, "latest", "--to", "me/model", HF_ENDPOINT=hub.address, HF_TOKEN=TOKEN)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "refused the token" in done.stderr
    assert "[hub.failed]" in done.stderr
    assert TOKEN not in done.stdout + done.stderr
    monkeypatch.delenv("HF_TOKEN", raising=False)
    prepared = prepare(RUN, "me/model")
    with raises("hub.no_token", "HF_TOKEN", str(prepared.folder)):
        upload(prepared, public=False)
    assert (prepared.folder / "README.md").is_file()


def test_the_card_has_the_report_s_scores_and_neither_paths_nor_conversations(home: Path) -> None:
    card = (prepare(RUN, "me/model").folder / "README.md").read_text()
    _, front, text = card.split("---\n", 2)
    assert yaml.safe_load(front)["library_name"] == "transformers"
    assert "| travel | 0.250 ± 0.125 | 0.750 ± 0.125 |" in text
    assert "step 2 of rl-1, mean validation score 0.750" in text
    assert 'from_pretrained("me/model")' in text
    assert str(home) not in card
    assert QUOTED not in card
    assert "Cold start: 10 demonstrations of scripted." in text
    sft = home / "runs" / RUN / "stages" / "sft" / "checkpoints" / "step-000060"
    before_rl = (prepare(str(sft), "me/model").folder / "README.md").read_text()
    assert "not the scores of this checkpoint" in before_rl
    assert "This checkpoint is from before RL." in before_rl
    assert "RL with at most" not in before_rl


@pytest.mark.parametrize(
    ("stage", "horizons"),
    [("rl-1", "6"), ("rl-2-short", "6, 6"), ("rl-3-longer", "6, 10"), ("rl-4-longer", "6, 10, 16")],
)
def test_the_card_of_a_branch_has_the_horizons_of_its_own_stages(home: Path, stage: str, horizons: str) -> None:
    fork = load("horizon-fork", profile="laptop").resolved()
    checkpoint = listed_checkpoints(find(RUN))[0][1].model_copy(update={"stage": stage})
    card = model_card(read_report(find(RUN)), checkpoint, fork, repo="me/model", origins=())
    assert f"by stage: {horizons}.\n" in card


def test_the_card_of_a_recipe_that_cannot_be_read_says_nothing_of_its_stages(home: Path) -> None:
    checkpoint = listed_checkpoints(find(RUN))[0][1]
    card = model_card(read_report(find(RUN)), checkpoint, {"stages": "of old"}, repo="me/model", origins=())
    assert "RL with at most" not in card
    assert "before RL" not in card


def test_a_server_that_cannot_be_reached_is_told_from_a_refused_token(home: Path) -> None:
    done = push(home, "latest", "--to", "me/model", HF_ENDPOINT="http://127.0.0.1:9", HF_TOKEN=TOKEN)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "Check HF_ENDPOINT and the network" in done.stderr


def test_a_run_with_imported_and_people_s_conversations_says_so_and_quotes_none(home: Path) -> None:
    described = asdict(find(RUN).info)
    described["resolved"]["cold_start"]["data"] = "/secret/place/chats.jsonl"
    write_json(home / "runs" / RUN / "run.json", with_checksum(described))
    with TurnLog.open(home / "warehouse", RUN) as log:
        spoken = Trajectory(make_task(), 0, 8, 1, context=RolloutContext("rl-1", 1, "train", "human"), group="g")
        log.begin(spoken)
        spoken.admitted, spoken.score, spoken.stop_reason = True, 1.0, "success"
        log.end(spoken)
    prepared = prepare(RUN, "me/model")
    assert prepared.origins == ("imported conversations for its cold start", "conversations of people")
    written = "".join(
        file.read_text() for file in prepared.folder.iterdir() if file.suffix in (".md", ".json", ".jinja")
    )
    assert "This card quotes none of them." in written
    assert "/secret/place" not in written
    assert QUOTED not in (prepared.folder / "README.md").read_text()


def test_what_cannot_be_pushed_is_refused_before_anything_is_written(home: Path, tmp_path: Path) -> None:
    with raises("argument.malformed", "OWNER/NAME"):
        prepare(RUN, "../../elsewhere")
    with raises("checkpoint.not_of_a_run", "Name a run"):
        prepare(str(tmp_path), "me/model")
    weights = home / "runs" / RUN / "stages" / "rl-1" / "checkpoints" / "step-000002" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    with raises("checkpoint.damaged", "does not match its hash"):
        prepare(RUN, "me/model")
    assert not (home / "hub").exists()


def test_a_token_that_no_header_takes_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret\nline")
    prepared = PreparedUpload("a/b", tmp_path, None, (), False)  # type: ignore[arg-type]
    with raises("hub.no_token", "contains a character") as error:
        upload(prepared, public=False)
    assert "secret" not in str(error.value)
