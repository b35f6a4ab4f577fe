"""A sweep's page: the winner's claim, what mattered, every trial."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest

from sweeps.space import load_space
from sweeps.study import open_study
from tests.sweeps.rig import small_space
from userrl.trials.document import sweep_document


def test_a_sweep_s_page_claims_what_its_fresh_seeds_say(tmp_path: Path) -> None:
    space = load_space(str(small_space(tmp_path, overrides={"evaluate.tasks": 4})))
    study = open_study(space, tmp_path, queue=False)
    options = optuna.distributions.CategoricalDistribution([0.6, 0.7, 0.8, 0.9])
    for gamma, value in ((0.6, 0.3), (0.8, 0.9), (0.9, 0.5)):
        attrs = {"overrides": {"evaluate.tasks": 4, "credit.gamma": gamma}, "run_id": f"r{gamma}", "stderr": [0.05]}
        study.add_trial(
            optuna.trial.create_trial(
                params={"gamma": gamma}, distributions={"gamma": options}, value=value, user_attrs=attrs
            )
        )
    assert "Fresh seeds have not been run yet" in sweep_document(space, study, at_work=False).text()
    fresh = [{"trial": 1, "seed": seed, "values": [value]} for seed, value in ((101, 0.7), (102, 0.8))]
    study.set_user_attr("confirmed", fresh)
    text = sweep_document(space, study, at_work=False).text()
    assert "trial 1: 0.750 over 2 fresh seeds (standard deviation 0.071)" in text
    assert "fresh seeds: 0.750 [0.115, 1.385]" in text
    assert "credit.gamma = 0.8" in text
    assert "evaluate.tasks" not in text
    rows = [line for line in text.splitlines() if line.startswith("| ") and "r0." in line]
    assert [row.split("|")[3].strip() for row in rows] == ["0.300 ± 0.050", "0.900 ± 0.050", "0.500 ± 0.050"]
    assert sweep_document(space, study, at_work=False).html().count("<svg") == 2
    study.set_user_attr("confirmed", [{"trial": 1, "seed": 101, "values": None}])
    text = sweep_document(space, study, at_work=False).text()
    assert "trial 1: 0.900 on its own seed; not yet confirmed on fresh seeds (1 of 1 failed)" in text
    assert "No fresh seed has a value." in text
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert ["1", "101", "", "failed"] in cells
    study.set_user_attr("confirmed", [{"trial": trial, "seed": 101, "values": [0.5]} for trial in (1, 2)])
    space = space.model_copy(update={"confirm": space.confirm.model_copy(update={"top": 2})})
    text = sweep_document(space, study, at_work=False).text()
    assert "The best of 2 trials' means over fresh seeds is biased by this second selection." in text


def test_a_sweep_without_a_finished_trial_says_so(tmp_path: Path) -> None:
    space = load_space(str(small_space(tmp_path)))
    assert (
        "No trial has finished yet."
        in sweep_document(space, open_study(space, tmp_path, queue=False), at_work=False).text()
    )


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
