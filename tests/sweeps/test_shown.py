"""What a person sees of a sweep: trials by their parameters, no more of them than there are, and what became of each."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
import yaml
from typer.testing import CliRunner

from flows.cli.training.sweep import app
from sweeps.launcher import Status
from sweeps.results import table
from sweeps.study import open_study, planned, progress
from tests.sweeps.launching import Interrupted, WritingLauncher, make_space, make_sweep, peak_at_08
from userrl.trials.document import sweep_document, trials_document
from userrl_core.json_files import write_json


def test_trials_are_named_after_their_parameters_and_a_rerun_after_its_seed(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08)
    make_sweep(make_space(), tmp_path, launcher).run()
    trials = [f"gamma={value}" for value in (0.6, 0.7, 0.8, 0.9)]
    assert launcher.shown == [*trials, "gamma=0.8, fresh seed 101", "gamma=0.8, fresh seed 102"]


def test_optuna_knows_what_the_objectives_are_called_also_in_a_study_begun_without(tmp_path: Path) -> None:
    objectives = [
        {"query": "validation_score", "direction": "maximize"},
        {"query": "turns_played", "direction": "minimize"},
    ]
    space = make_space(objectives=objectives)
    assert open_study(space, tmp_path, queue=False).metric_names is None
    open_study(space, tmp_path)
    assert open_study(space, tmp_path, queue=False).metric_names == ["validation_score", "turns_played"]


def test_a_grid_has_no_more_trials_than_points_and_a_smaller_budget_hides_the_rest(tmp_path: Path) -> None:
    large, small = make_space(budget={"trials": 12}), make_space(budget={"trials": 3})
    assert (planned(large), planned(small)) == (4, 3)
    study = open_study(large, tmp_path)
    assert [row["params"] for row in table(large, study, at_work=True)] == [{"gamma": g} for g in (0.6, 0.7, 0.8, 0.9)]
    assert len(table(small, study, at_work=True)) == 3
    assert "0 of 4 trials done" in sweep_document(large, study, at_work=True).markdown()


def test_the_page_shows_trials_while_they_run_and_links_their_flow_runs(tmp_path: Path) -> None:
    pages: list[str] = []
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08)
    sweep = make_sweep(make_space(confirm={"seeds": []}), tmp_path, launcher)
    sweep.show = lambda: pages.append(
        trials_document(sweep.space, sweep.study, lambda handle: f"http://server/{handle}").markdown()
    )
    sweep.run()
    assert pages[0].count("| running |") == 2
    assert any(" so far |" in shown for shown in pages)
    row = next(line for line in pages[-1].splitlines() if line.startswith("| 0 |"))
    run = sweep.study.trials[0].user_attrs["run_id"]
    assert row == f"| 0 | complete | 0.800 ± 0.000 | 0.6 | [{run}](http://server/{run}) |  |"
    done = sweep_document(sweep.space, sweep.study, at_work=False)
    assert "- trial 2: 1.000 on its own seed" in done.markdown()
    assert f"| {run} |" in " ".join(done.text().split())


def test_a_trial_that_a_person_cancelled_is_cancelled_and_not_started_again(tmp_path: Path) -> None:
    class Cancelled(WritingLauncher):
        def status(self, handle: str) -> Status:
            return "cancelled" if self.overrides[handle]["credit.gamma"] == 0.7 else super().status(handle)

    launcher = Cancelled(tmp_path / "warehouse", peak_at_08)
    sweep = make_sweep(make_space(confirm={"seeds": []}), tmp_path, launcher)
    sweep.run()
    rows = {row["params"]["gamma"]: row for row in table(sweep.space, sweep.study, at_work=True)}
    assert [rows[g]["state"] for g in (0.6, 0.7, 0.8, 0.9)] == ["complete", "cancelled", "complete", "complete"]
    assert rows[0.7]["note"] == "its run was cancelled by hand"
    assert launcher.shown.count("gamma=0.7") == 1


def test_what_no_driver_works_on_is_cancelled_in_the_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08)
    launcher.die_after = 3
    sweep = make_sweep(make_space(), tmp_path, launcher)
    with pytest.raises(Interrupted):
        sweep.run()
    write_json(tmp_path / "sweeps" / "gammas" / "space.json", {"space": sweep.space.model_dump(mode="json")})
    told = CliRunner().invoke(app, ["status", "gammas"]).output.splitlines()
    assert told[0] == "gammas: 2 of 4 trials done, recipe equalized-r2g, profile laptop"
    assert told[1] == "the sweep is not running; start it again to continue"
    assert [line.split()[1] for line in told[2:6]] == ["complete", "complete", "cancelled", "cancelled"]
    assert told[-1] == "next: userrl sweep best gammas"


def test_the_status_counts_no_repeat_and_names_no_best_before_a_trial_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    options = {"gamma": {"key": "credit.gamma", "options": [0.7, 0.7, 0.8]}}
    sweep = make_sweep(make_space(parameters=options), tmp_path, WritingLauncher(tmp_path / "warehouse", peak_at_08))
    write_json(tmp_path / "sweeps" / "gammas" / "space.json", {"space": sweep.space.model_dump(mode="json")})
    told = CliRunner().invoke(app, ["status", "gammas"]).output.splitlines()
    assert told[0] == "gammas: 0 of 3 trials done, recipe equalized-r2g, profile laptop"
    assert not any("sweep best" in line for line in told)
    for gamma, state, attrs in (
        (0.7, "complete", {}),
        (0.7, "complete", {"duplicate_of": 0}),
        (0.7, "fail", {"duplicate_of": 0}),
        (0.8, "fail", {"failed": "x"}),
    ):
        trial = optuna.trial.create_trial(
            state=optuna.trial.TrialState[state.upper()],
            value=1.0 if state == "complete" else None,
            user_attrs={"overrides": {"credit.gamma": gamma}, **attrs},
        )
        sweep.study.add_trial(trial)
    told = CliRunner().invoke(app, ["status", "gammas"]).output.splitlines()
    assert told[0] == "gammas: 2 of 3 trials done, recipe equalized-r2g, profile laptop"
    states = [line.split()[1] for line in told if line.split()[0].isdigit()]
    assert [state for state in states if state != "waiting"] == ["complete", "repeat", "repeat", "fail"]


INTERRUPTED = """
import sys
import duckdb
import userrl
from flows.cli.main import main

def sweep(*given, **named):
    connection = duckdb.connect()
    relation = connection.sql("select 1")
    raise KeyboardInterrupt

userrl.sweep = sweep
sys.argv = ["userrl", "sweep", "run", "gamma"]
main()
"""


def test_after_ctrl_c_one_line_says_how_to_go_on_and_duckdb_says_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "\nstopped; its trials leave checkpoints. Run it again to go on\n"


BACKGROUND = """
import os, signal, sys
import userrl
from flows.cli.main import main

def sweep(*given, **named):
    try:
        os.kill(os.getpid(), signal.{signal})
    except BaseException as error:
        raise RuntimeError("Query interrupted") from error  # as DuckDB makes of it

userrl.sweep = sweep
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a script's & does
sys.argv = ["userrl", "sweep", "run", "gamma"]
main()
"""


@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_to_a_sweep_in_the_background_ends_in_a_sentence(number: str, status: int) -> None:
    program = BACKGROUND.replace("{signal}", number)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr == "\nstopped; its trials leave checkpoints. Run it again to go on\n"


IMPORTING = """
import builtins, os, signal, sys
real = builtins.__import__

def hooked(name, *rest):
    if name == "typer":
        os.kill(os.getpid(), signal.SIGINT)
    return real(name, *rest)

builtins.__import__ = hooked
import flows.cli.main
"""


def test_ctrl_c_while_a_command_is_imported_is_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "\nstopped\n")


def test_the_best_is_named_by_its_recipe_and_the_trials_never_exceed_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    sweep = make_sweep(make_space(), tmp_path, WritingLauncher(tmp_path / "warehouse", peak_at_08))
    sweep.run()
    write_json(tmp_path / "sweeps" / "gammas" / "space.json", {"space": sweep.space.model_dump(mode="json")})
    told = CliRunner().invoke(app, ["best", "gammas"]).output
    assert told.startswith("# equalized-r2g with credit.gamma=0.8; trial 2: ")
    assert yaml.safe_load(told)["name"] == "equalized-r2g-gammas"
    fewer = sweep.space.model_copy(update={"budget": sweep.space.budget.model_copy(update={"trials": 3})})
    assert progress(fewer, sweep.study) == "4 of 4 trials"
