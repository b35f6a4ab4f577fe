"""What a stage leaves for Weights & Biases, offline, read back from its own file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

STAGE = """
import os
import signal
import sys
from pathlib import Path
from curricula import load
from userrl.run.job import StageJob, StageOptions
from userrl.worker.sinks import open_sink
from tests.warehouse.makers import play
from userrl_core.records import CheckpointRecord

home = Path(sys.argv[1])
job = StageJob(kind="rl", stage="rl-1", run_id="r1", folder=home / "runs/r1/stages/rl-1", warehouse=home / "warehouse",
               recipe=load("equalized-r2g", profile="laptop-quick"), seed=3, backend="local", options=StageOptions(wandb="offline"))
(home / "step-5").mkdir(parents=True, exist_ok=True)
(home / "step-5/model.safetensors").write_bytes(b"weights")
sink = open_sink(job)
for n in range(100):
    play(sink, [0.25, None if sys.argv[2] == "kill" else 1.0], task=f"t{n}", text="hello there")
sink.metrics({"reward/all/mean": 0.5}, stage="rl-1", step=1)
sink.checkpoint(CheckpointRecord("c5", str(home / "step-5"), "rl-1", 5, "abc"))
if sys.argv[2] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
sink.close()
"""
READ = """
import json, sys
from pathlib import Path
from wandb.proto.wandb_internal_pb2 import Record

def records(data, at=7, block=32768):  # LevelDB's log: after a head of 7 bytes, blocks of (checksum, length, type, part)
    whole = b""
    while at + 7 <= len(data):
        if block - at % block < 7:
            at += block - at % block
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            record = Record()
            record.ParseFromString(whole)
            whole = b""
            yield record

kinds = {}
for record in records(Path(sys.argv[1]).read_bytes()):
    kinds.setdefault(record.WhichOneof("record_type"), []).append(record)
run = kinds["run"][0].run
artifacts = [record.request.log_artifact.artifact for record in kinds.get("request", []) if record.request.HasField("log_artifact")]
artifacts += [record.artifact for record in kinds.get("artifact", [])]
references = [e.ref for a in artifacts if a.type == "checkpoint" for e in a.manifest.contents if e.ref]
config = {item.key: json.loads(item.value_json) for item in run.config.update}
print(json.dumps({"group": run.run_group, "name": run.display_name, "tags": list(run.tags), "config": config, "notes": run.notes,
                  "axes": {m.metric.glob_name or m.metric.name: m.metric.step_metric for m in kinds.get("metric", [])},
                  "references": references, "types": sorted({a.type for a in artifacts}),
                  "values": [{i.key or "/".join(i.nested_key): i.value_json for i in r.history.item} for r in kinds["history"]]}))
"""


@pytest.mark.slow
def test_a_stage_tells_weights_and_biases_its_group_config_conversations_and_checkpoints(tmp_path: Path) -> None:
    environment = {**os.environ, "USERRL_HOME": str(tmp_path), "WANDB_MODE": "offline"}
    subprocess.run([sys.executable, "-c", STAGE, str(tmp_path), "close"], env=environment, check=True)
    (written,) = tmp_path.glob("wandb/**/*.wandb")
    done = subprocess.run([sys.executable, "-c", READ, str(written)], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    report = (tmp_path / "runs/r1/report.md").as_uri()
    assert (told["group"], told["name"], told["notes"]) == ("r1", "r1/rl-1", f"Report: {report}")
    assert told["tags"] == ["recipe:equalized-r2g", "profile:laptop-quick", "seed:3"]
    assert (told["config"]["recipe"]["credit"]["shaping"], told["config"]["report"]) == ("equalized", report)
    assert told["references"] == [(tmp_path / "step-5/model.safetensors").as_uri()]
    assert any(json.loads(row.get("reward/all/mean", "0")) == 0.5 for row in told["values"])
    assert told["axes"] == {"*": "step"}
    *_, table = sorted(tmp_path.glob("wandb/**/media/table/conversations/*.table.json"))
    rows = json.loads(table.read_text())
    assert rows["columns"][5:] == ["score", "rewards", "ended", "admitted", "reject_reason", "conversation"]
    assert len(rows["data"]) == 64
    assert rows["data"][0][6:10] == ["0.25, 1", "success", True, None]
    assert "hello there" in rows["data"][0][10]


@pytest.mark.slow
def test_a_killed_stage_keeps_its_conversations_and_its_next_start_is_a_run_of_its_own(tmp_path: Path) -> None:
    environment = {**os.environ, "USERRL_HOME": str(tmp_path), "WANDB_MODE": "offline"}
    killed = subprocess.run([sys.executable, "-c", STAGE, str(tmp_path), "kill"], env=environment)
    assert killed.returncode == -signal.SIGKILL
    (table,) = tmp_path.glob("wandb/**/media/table/conversations/*.table.json")
    rows = json.loads(table.read_text())["data"]
    assert len(rows) == 64
    assert rows[0][6:10] == ["0.25, null", "success", False, "user_error"]
    (first,) = tmp_path.glob("wandb/**/*.wandb")
    subprocess.run([sys.executable, "-c", STAGE, str(tmp_path), "close"], env=environment, check=True)
    (second,) = set(tmp_path.glob("wandb/**/*.wandb")) - {first}
    done = subprocess.run([sys.executable, "-c", READ, str(second)], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    assert (told["group"], told["name"], told["config"]["start"]) == ("r1", "r1/rl-1 start 2", 2)
