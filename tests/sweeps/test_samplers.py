"""Each sampler runs a small study to its end; the journal opens in optuna-dashboard."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from sweeps.study import counted, open_study, ranked
from tests.ports import free_port
from tests.sweeps.launching import WritingLauncher, make_space, make_sweep

TWO_NUMBERS = {
    "gamma": {"kind": "range", "key": "credit.gamma", "low": 0.5, "high": 1.0},
    "lr": {"kind": "range", "key": "algorithm.lr", "low": 1.0e-5, "high": 1.0e-3, "log": True},
}


def score(overrides: Mapping[str, Any]) -> float:
    return 1.0 - abs(float(overrides["credit.gamma"]) - 0.8)


@pytest.mark.parametrize("name", ["tpe", "cmaes", "gp", "qmc", "nsga2", "random"])
def test_a_sampler_runs_a_study_of_numbers_to_its_end(name: str, tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", score, steps=1)
    space = make_space(
        parameters=TWO_NUMBERS,
        sampler={"name": name, "startup": 3},
        budget={"trials": 5},
        confirm={"seeds": []},
    )
    sweep = make_sweep(space, tmp_path, launcher)
    sweep.run()
    assert [t.state for t in counted(sweep.study)] == [TrialState.COMPLETE] * 5
    best = ranked(sweep.study)[0]
    assert best.values[0] == max(t.values[0] for t in sweep.study.trials)
    assert all(0.5 <= t.params["gamma"] <= 1.0 and 1e-5 <= t.params["lr"] <= 1e-3 for t in sweep.study.trials)


@pytest.mark.parametrize("name", ["tpe", "cmaes", "gp", "qmc", "nsga2", "random"])
def test_a_resumed_sampler_proposes_nothing_again(name: str, tmp_path: Path) -> None:
    space = make_space(parameters=TWO_NUMBERS, sampler={"name": name, "startup": 3})
    for _ in range(3):
        study = open_study(space, tmp_path)
        for _ in range(2):
            trial = study.ask()
            trial.set_user_attr("overrides", dict(space.suggest(trial)))
            study.tell(trial, trial.params["gamma"])
    params = [tuple(trial.params.items()) for trial in study.trials]
    assert len(set(params)) == len(params) == 6


def test_a_sweep_in_one_go_proposes_what_it_always_did(tmp_path: Path) -> None:
    space = make_space(parameters=TWO_NUMBERS, sampler={"name": "random", "seed": 3})
    first = open_study(space, tmp_path).ask()
    space.suggest(first)
    plain = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=3)).ask()
    assert first.params["gamma"] == plain.suggest_float("gamma", 0.5, 1.0)


def test_two_objectives_and_a_constraint_leave_a_front_of_feasible_trials(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", score, steps=1, price=0.5)
    space = make_space(
        parameters=TWO_NUMBERS,
        sampler={"name": "nsga2"},
        objectives=[{"query": "validation_score"}, {"query": "effective_turns", "direction": "minimize"}],
        constraints=[{"query": "cost", "at_most": 0.6}],
        budget={"trials": 3},
        confirm={"seeds": []},
    )
    sweep = make_sweep(space, tmp_path, launcher)
    sweep.run()
    assert all(t.user_attrs["violations"] == [pytest.approx(-0.1)] for t in counted(sweep.study))
    assert {t.number for t in sweep.study.best_trials} == {ranked(sweep.study)[0].number}
    infeasible = make_sweep(
        space.model_copy(
            update={"name": "dear", "constraints": [space.constraints[0].model_copy(update={"at_most": 0})]}
        ),
        tmp_path,
        launcher,
    )
    infeasible.run()
    assert ranked(infeasible.study) == []


def test_the_journal_opens_in_optuna_dashboard(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", score, steps=1)
    make_sweep(make_space(confirm={"seeds": []}), tmp_path, launcher).run()
    port = free_port()
    program = Path(sys.executable).with_name("optuna-dashboard")
    journal = tmp_path / "sweeps" / "gammas" / "journal.log"
    dashboard = subprocess.Popen([str(program), str(journal), "--host", "127.0.0.1", "--port", str(port)])
    try:
        studies = ask(f"http://127.0.0.1:{port}/api/studies")["study_summaries"]
        assert [study["study_name"] for study in studies] == ["gammas"]
        detail = ask(f"http://127.0.0.1:{port}/api/studies/{studies[0]['study_id']}")
        assert [trial["state"] for trial in detail["trials"]] == ["Complete"] * 4
    finally:
        dashboard.terminate()
        dashboard.wait()


def ask(url: str) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + 120
    while True:
        try:
            with opener.open(url, timeout=10) as answer:
                return json.load(answer)
        except OSError:
            assert time.monotonic() < deadline, f"{url} does not answer"
            time.sleep(0.2)
