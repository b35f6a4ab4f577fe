"""``userrl train``: a recipe trained in a terminal, without a server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from curricula import recipe_names
from tests.flows.small import OVERRIDES, environment
from userrl_core.json_files import read_json


def userrl(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flows.cli.main", "train", *words]
    return subprocess.run(command, env=environment(home), capture_output=True, text=True, check=False, timeout=600)


def test_all_recipes_are_listed_one_a_line(tmp_path: Path) -> None:
    assert userrl(tmp_path, "--list").stdout.split() == sorted(recipe_names())


@pytest.mark.usefixtures("prepared")
def test_a_dry_run_shows_the_stages_and_leaves_nothing(tmp_path: Path) -> None:
    done = userrl(tmp_path, "equalized-r2g", "--profile", "laptop", "--dry-run")
    assert "distill -> sft -> rl-1" in done.stdout
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--hours", "nan"], "nan is not a finite number"),
        (["--hours", "0"], "budget.hours: input should be greater than 0"),
        (["--dollars", "0"], "budget.money: input should be greater than 0"),
        (["--until", "sft"], "only distill -> sft"),
        (["--until", "ppo"], "until is 'ppo'. The stages are distill, sft"),
    ],
)
def test_a_dry_run_reads_every_option_that_training_reads(tmp_path: Path, words: list[str], sentence: str) -> None:
    done = userrl(tmp_path, "equalized-r2g", "--profile", "laptop", "--dry-run", *words)
    assert sentence in done.stdout + done.stderr
    assert (done.returncode == 0) == (words == ["--until", "sft"])


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["equalised-r2g"], "equalized-r2g"),
        (["equalized-r2g", "--set", "credit.gama=0.9"], "gamma"),
        (["equalized-r2g", "--set", "credit.gamma"], "key=value"),
        ([], "userrl train --list"),
    ],
)
def test_a_wrong_call_is_one_sentence_that_helps(tmp_path: Path, words: list[str], sentence: str) -> None:
    done = userrl(tmp_path, *words)
    assert done.returncode == 1
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_a_run_is_trained_without_a_server_and_reused_when_asked_for_again(tmp_path: Path) -> None:
    words = [word for key, value in OVERRIDES.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    first = userrl(tmp_path, "equalized-r2g", "--profile", "laptop", "--until", "rl-1", *words)
    assert first.returncode == 0, first.stderr
    assert not (tmp_path / "prefect").exists()
    (run,) = (tmp_path / "runs").iterdir()
    assert read_json(run / "status.json")["state"] == "completed"
    results = {path: path.read_bytes() for path in run.glob("stages/*/result.json")}
    assert len(results) == 3
    again = userrl(tmp_path, "equalized-r2g", "--profile", "laptop", "--until", "rl-1", *words)
    assert "rl-1: reused" in again.stderr
    assert {path: path.read_bytes() for path in results} == results


@pytest.mark.slow
def test_weights_that_are_not_finite_end_the_run_at_the_first_step_in_one_sentence(tmp_path: Path) -> None:
    words = [word for key, value in OVERRIDES.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    done = userrl(tmp_path, "equalized-r2g", "--profile", "laptop", *words, "--set", "model.initializer_range=1.0e+38")
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stderr.splitlines()[-1] == (
        "error: Training stopped at step 1 of sft: sft/loss/mean is nan. Nothing of this step was saved. Start a new run with a "
        "lower learning rate (cold_start.lr). [training.diverged]"
    )
    assert not list(tmp_path.glob("runs/*/stages/sft/checkpoints/*"))
