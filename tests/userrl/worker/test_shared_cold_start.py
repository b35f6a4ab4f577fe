"""Runs of a home that share a cold start: the same weights, trained once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import curricula
from tests.flows.small import OVERRIDES, result, start
from userrl.run.job import StageJob, StageOptions
from userrl.run.results import TrainResult
from userrl.worker.shared_cold_start import index_file, link, shared
from userrl_core.json_files import read_json, write_json
from userrl_core.training.config import LoraSettings, ModelConfig, SftConfig
from userrl_core.training.jobs import SftJob
from userrl_core.training.local.checkpoint import write_checkpoint
from warehouse import open_warehouse

SMALL = {**OVERRIDES, "demonstrations.episodes": 24, "demonstrations.top_k": 16, "cold_start.steps": 4}


def cold_start(home: Path, credit: str) -> tuple[str, Path]:
    """Return the weights' hash and the checkpoint of a run's cold start."""
    overrides = {**SMALL, "credit.shaping": credit}
    report, _ = result(start(home, overrides=overrides, until="sft", share_cold_start=True))
    written = read_json(home / "runs" / report["run"] / "stages" / "sft" / "result.json") or {}
    return written["value"]["sha256"], Path(written["value"]["checkpoint"])


def inode(checkpoint: Path) -> int:
    return (checkpoint / "model.safetensors").stat().st_ino


@pytest.mark.usefixtures("prepared")
def test_runs_that_differ_in_credit_share_a_cold_start_unless_it_is_damaged(tmp_path: Path) -> None:
    weights, trained = cold_start(tmp_path, "r2g")
    shared, linked = cold_start(tmp_path, "naive")
    assert (shared, inode(linked)) == (weights, inode(trained))
    with open_warehouse(tmp_path / "warehouse") as warehouse:
        ((runs, hashes),) = warehouse.sql(
            "SELECT count(DISTINCT run_id), count(DISTINCT sha256) FROM checkpoints WHERE stage = 'sft'"
        ).fetchall()
    assert (runs, hashes) == (2, 1)

    damage(trained / "model.safetensors")  # and with it the link
    again, own = cold_start(tmp_path, "em")
    assert again == weights
    assert inode(own) != inode(trained)


def damage(file: Path) -> None:
    """Change the last byte in place."""
    changed = bytearray(file.read_bytes())
    changed[-1] ^= 1
    file.write_bytes(changed)


class Checkpoints:
    """A sink that keeps the names of checkpoints."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def checkpoint(self, record: Any) -> None:
        self.ids.append(record.id)


def job_of(home: Path, run: str) -> StageJob:
    return StageJob(
        kind="sft",
        stage="sft",
        run_id=run,
        folder=home / "runs" / run / "stages" / "sft",
        warehouse=home / "warehouse",
        recipe=curricula.load("equalized-r2g", "laptop-quick"),
        options=StageOptions(share_cold_start=True),
    )


def settings_of(job: StageJob, *, text: str = "hello", **changed: Any) -> SftJob:
    """The trainer's settings, with a file of one chat that has the run's own number and score."""
    chats = job.folder.parent / "distill" / "chats.jsonl"
    chats.parent.mkdir(parents=True, exist_ok=True)
    messages = [{"role": "user", "content": text}, {"role": "assistant", "content": "hi"}]
    chats.write_text(json.dumps({"messages": messages, "tools": [], "score": len(job.run_id), "traj_id": id(job)}))
    fields = {"model": ModelConfig(), "sft": SftConfig(), "chats": chats, "out_dir": job.folder, **changed}
    return SftJob(**fields)


def trained(job: StageJob, weights: str) -> TrainResult:
    """What a trainer leaves: a checkpoint, or the one that is there."""
    folder = job.folder / "checkpoints" / "step-000020"
    if not folder.exists():
        write_checkpoint(
            folder, lambda at: (at / "model.safetensors").write_text(weights) and None, stage="sft", step=20
        )
    state = read_json(folder / "state.json") or {}
    return TrainResult(checkpoint=folder, sha256=state["sha256"], step=20, metrics={"sft/loss/mean": 1.0})


def cold_start_of(job: StageJob, weights: str, sink: Any = None) -> TrainResult:
    return shared(job, settings_of(job), sink or Checkpoints(), lambda: trained(job, weights))


def test_whatever_decides_the_weights_is_in_the_key(tmp_path: Path) -> None:
    first, other = job_of(tmp_path, "first"), job_of(tmp_path, "the-other")
    assert index_file(first, settings_of(first)) == index_file(other, settings_of(other, keep_checkpoints=7))
    changes: list[dict[str, Any]] = [
        {}, {"seed": 1}, {"threads": 1}, {"text": "hey"}, {"sft": SftConfig(lr=0.5)}, {"model": ModelConfig(layers=3)}
    ]  # fmt: skip
    assert len({index_file(first, settings_of(first, **changed)) for changed in changes}) == len(changes)
    for alone in ({"init": tmp_path}, {"device": "cuda"}, {"model": ModelConfig(path="a/hub-name")}):
        assert index_file(first, settings_of(first, **alone)) is None
    adapted = {"model": ModelConfig(path=str(tmp_path)), "sft": SftConfig(lora=LoraSettings())}
    assert index_file(first, settings_of(first, **adapted)) is None


def test_the_second_run_has_the_checkpoint_and_the_cost_of_the_first(tmp_path: Path) -> None:
    sink = Checkpoints()
    first = cold_start_of(job_of(tmp_path, "first"), "weights")
    second = cold_start_of(job_of(tmp_path, "second"), "others", sink)
    assert (first.shared_from, second.shared_from, second.sha256) == (None, "first", first.sha256)
    assert (second.metrics, len(sink.ids)) == ({"sft/loss/mean": 1.0}, 1)
    (index,) = (tmp_path / "cold-starts").glob("*.json")
    written = read_json(index) or {}
    assert (second.seconds, second.cpu_seconds) == (written["seconds"], written["cpu_seconds"])


def test_a_run_that_was_interrupted_after_it_linked_a_cold_start_still_names_its_source(tmp_path: Path) -> None:
    first = cold_start_of(job_of(tmp_path, "first"), "weights")
    (index,) = (tmp_path / "cold-starts").glob("*.json")
    entry = read_json(index)
    second = job_of(tmp_path, "second")
    link(index, second, Checkpoints())  # type: ignore[arg-type]
    again = cold_start_of(second, "others")
    assert (again.shared_from, again.metrics, again.sha256) == ("first", first.metrics, first.sha256)
    assert read_json(index) == entry


def without_state(source: Path, index: Path) -> None:
    (source / "state.json").write_text("{")


def deleted(source: Path, index: Path) -> None:
    shutil.rmtree(source)


def other_weights(source: Path, index: Path) -> None:
    write_json(index, {**(read_json(index) or {}), "sha256": "0" * 64})


@pytest.mark.parametrize("harm", [without_state, deleted, other_weights])
def test_a_cold_start_that_is_of_no_use_is_trained_again_and_named_in_its_place(tmp_path: Path, harm: Any) -> None:
    first = cold_start_of(job_of(tmp_path, "first"), "weights")
    (index,) = (tmp_path / "cold-starts").glob("*.json")
    harm(first.checkpoint, index)
    second = cold_start_of(job_of(tmp_path, "second"), "weights")
    assert (second.shared_from, second.sha256) == (None, first.sha256)
    assert not list(second.checkpoint.parent.glob(".*"))
    assert cold_start_of(job_of(tmp_path, "third"), "others").shared_from == "second"


def test_a_job_with_a_checkpoint_of_its_own_continues_from_it(tmp_path: Path) -> None:
    cold_start_of(job_of(tmp_path, "first"), "weights")
    own = job_of(tmp_path, "own")
    kept = trained(own, "begun")
    (index,) = (tmp_path / "cold-starts").glob("*.json")
    link(index, own, sink := Checkpoints())  # type: ignore[arg-type]
    assert sink.ids == []
    assert cold_start_of(own, "others").sha256 == kept.sha256
