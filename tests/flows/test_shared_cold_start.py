"""Runs of a home that share a cold start: the same weights, trained once."""

from __future__ import annotations

from pathlib import Path

from tests.flows.small import OVERRIDES, result, start
from userrl_core.json_files import read_json
from warehouse import open_warehouse

SMALL = {**OVERRIDES, "demonstrations.episodes": 40, "demonstrations.top_k": 30, "cold_start.steps": 20}


def cold_start(home: Path, credit: str) -> tuple[str, Path]:
    """Return the weights' hash and the checkpoint of a run's cold start."""
    overrides = {**SMALL, "credit.shaping": credit}
    report, _ = result(start(home, overrides=overrides, until="sft", share_cold_start=True))
    written = read_json(home / "runs" / report["run"] / "stages" / "sft" / "result.json") or {}
    return written["value"]["sha256"], Path(written["value"]["checkpoint"])


def inode(checkpoint: Path) -> int:
    return (checkpoint / "model.safetensors").stat().st_ino


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
