"""``userrl audit credit`` and ``userrl branch`` with a small model: what is printed, stored and refused."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import psutil
import pytest

import userrl
from flows.cli.looking.branch import branch
from flows.cli.measuring.audit import credit
from tests.makers import raises
from tests.userrl.evaluation.demonstrated import demonstrated
from tests.userrl_core.training.toys import TINY, chats
from tests.waits import runs
from userrl.branching.apart import PROGRAM, branch_apart
from userrl.branching.branch import BranchRequest
from userrl.run.run import find
from userrl_core.training.local.model import build_model
from userrl_core.training.local.state import save_model
from userrl_core.training.local.text.tokenizer import render, train_tokenizer
from warehouse import open_warehouse


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, Path]:
    """A home with an evaluation of the demonstrator at travel, the run's id, and a checkpoint of an untrained model in it."""
    home = tmp_path_factory.mktemp("home")
    run = demonstrated(home, ["travel"], suite=None, recipe="equalized-r2g", profile="laptop-quick")
    folder = home / "runs" / run / "stages" / "sft" / "checkpoints" / "step-000001"
    folder.mkdir(parents=True)
    tokenizer = train_tokenizer(render(chats(20)), TINY.vocab_size)
    save_model(build_model(TINY, tokenizer, 0), tokenizer, folder)
    return home, run, folder


def test_other_ways_on_from_a_stored_turn_stand_beside_it(
    evaluated: tuple[Path, str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, _, folder = evaluated
    monkeypatch.setenv("USERRL_HOME", str(home))
    with open_warehouse(home / "warehouse") as warehouse:
        asked = "select traj_id, turns from trajectories where turns > 2 order by traj_id limit 1"
        ((traj_id, turns),) = warehouse.sql(asked).fetchall()
    branch(traj_id, turn=2, k=3, policy=str(folder), as_json=True)
    ways = json.loads(capsys.readouterr().out)["ways"]
    assert [len(way["turns"]) > 0 for way in ways] == [True] * 3
    branch(traj_id, turn=1, k=2, edit="answer nothing of the kind", policy=str(folder))
    shown = capsys.readouterr().out
    assert shown.count("1. answer: nothing") == 2
    assert "stored (" in shown
    with raises("argument.out_of_range", f"from 1 to {turns}"):
        branch(traj_id, turn=99, policy=str(folder))
    with raises("run.no_such_trajectory"):
        branch(7, turn=1)
    with raises("run.no_such_trajectory"):
        branch(10**400, turn=1)


def test_an_audit_of_credit_is_printed_and_stored_as_a_run_of_its_own(
    evaluated: tuple[Path, str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, run, folder = evaluated
    monkeypatch.setenv("USERRL_HOME", str(home))
    credit([str(folder)], groups=2, group=2, k=1, horizon=2)
    shown, told = capsys.readouterr()
    assert told.startswith("continued prefixes 0 of ")  # stderr is no terminal here
    assert "split-half reliability of true advantages, with 1 continuations" in shown
    assert "r2g/r2g/centred" in shown
    assert "No rule can be told apart from another: that takes 30 tasks" in shown
    credit([str(folder)], groups=2, group=2, k=1, horizon=2, as_json=True)
    (found,) = json.loads(capsys.readouterr().out)
    assert found["identity"] < 1e-9
    assert found["stored_as"].startswith(f"{run}-audit-credit-")
    with open_warehouse(home / "warehouse") as warehouse:
        stored = "select value from metrics where run_id = $run and name = 'audit/sum.r2g.r2g.paper.token_mean/rms'"
        ((value,),) = warehouse.sql(stored, run=found["stored_as"]).fetchall()
    assert value == pytest.approx(found["rules"]["sum"]["r2g/r2g/paper token_mean"]["rms"])
    kinds = {key for key in found["worth"]["sum"] if key.startswith("kind_")}
    assert kinds
    assert kinds <= found["rules"]["sum"]["r2g/r2g/paper token_mean"].keys()
    with raises("run.no_checkpoint"):
        credit([find(run).id])
    with raises("argument.unknown_value", "--goal"):
        credit([str(folder)], goal="reward")


def test_an_audit_of_credit_from_python_is_a_table_of_measures(
    evaluated: tuple[Path, str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, run, folder = evaluated
    monkeypatch.setenv("USERRL_HOME", str(home))
    audit = userrl.audit_credit(str(folder), groups=2, group=2, k=1, horizon=2, progress=False)
    assert audit.run.startswith(f"{run}-audit-credit-")
    table = audit.to_polars()
    assert set(table["goal"]) == {"sum", "r2g", "score"}
    rules = audit.as_json()["rules"]["sum"]
    row = table.row(by_predicate=(pl.col("goal") == "sum") & (pl.col("rule") == "r2g/r2g/paper token_mean"), named=True)
    assert row["rms"] == rules["r2g/r2g/paper token_mean"]["rms"]
    assert str(audit) == audit.table("sum", "trajectory_mean")
    assert capsys.readouterr() == ("", "")


PAGE_PROCESS = """
import asyncio, json, sys
import flows.page.server
from userrl.branching.apart import branch_apart
from userrl.branching.branch import BranchRequest
ways = asyncio.run(branch_apart(BranchRequest.model_validate_json(sys.argv[1]), 300))
loaded = sorted({"torch", "transformers", "flows.cli.main", "typer"} & set(sys.modules))
print(json.dumps({"ways": [way.model_dump(mode="json") for way in ways], "loaded": loaded}))
"""


def conversation(home: Path) -> int:
    with open_warehouse(home / "warehouse") as warehouse:
        asked = "select traj_id from trajectories where turns > 2 order by traj_id limit 1"
        return int(warehouse.sql(asked).fetchall()[0][0])


def test_the_process_of_the_page_gets_the_same_ways_on_and_loads_no_model(
    evaluated: tuple[Path, str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, _, folder = evaluated
    monkeypatch.setenv("USERRL_HOME", str(home))
    request = BranchRequest(trajectory=conversation(home), turn=2, k=2, policy=str(folder))
    command = [sys.executable, "-c", PAGE_PROCESS, request.model_dump_json()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    here = userrl.branch(request.trajectory, 2, k=2, policy=str(folder))
    assert json.loads(done.stdout) == {"ways": here.as_json()["ways"], "loaded": []}
    assert here.to_polars()["way"].unique(maintain_order=True).to_list() == [1, 2]


def test_a_refusal_and_a_time_limit_of_the_process_that_plays_on_are_one_sentence(
    evaluated: tuple[Path, str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, _, folder = evaluated
    monkeypatch.setenv("USERRL_HOME", str(home))
    with raises("run.no_such_trajectory"):
        asyncio.run(branch_apart(BranchRequest(trajectory=7, turn=1), 300))
    request = BranchRequest(trajectory=conversation(home), turn=1, k=64, policy=str(folder))
    with raises("branch.too_slow", "0.2", "--turn"):
        asyncio.run(branch_apart(request, 0.2))
    assert not [process for process in psutil.Process().children(recursive=True) if runs(process, PROGRAM)]
