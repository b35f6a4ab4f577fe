"""The sweep driver against a launcher whose runs write a real warehouse: resume, retry, repeats, pruning, budget."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.trial import TrialState

from sweeps.launcher import StartedTrial, Status
from sweeps.objective import Point, points
from sweeps.results import draw, importance, table, winner
from sweeps.study import counted, exhausted, open_study
from tests.sweeps.launching import Interrupted, WritingLauncher, make_space, make_sweep, peak_at_08, write_attempt
from userrl_core.errors import ConfigError
from userrl_core.records import RolloutContext
from userrl_core.seeding import content_hash
from warehouse import open_warehouse
from warehouse.write.turn_log import TurnLog

TWO_GAMMAS = {"gamma": {"key": "credit.gamma", "options": [0.6, 0.8]}}


def test_a_grid_sweep_runs_every_configuration_once_and_confirms_the_best_on_fresh_seeds(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08)
    sweep = make_sweep(make_space(), tmp_path, launcher)
    sweep.run()
    assert sorted(t.params["gamma"] for t in counted(sweep.study)) == [0.6, 0.7, 0.8, 0.9]
    assert len({run for run, seed in launcher.started if seed == 1}) == 4
    best = winner(sweep.space, sweep.study)
    assert best.overrides == {"credit.gamma": 0.8}
    assert best.fresh == [1.0, 1.0]
    assert "2 fresh seeds" in best.claim


def test_a_sweep_killed_half_way_repeats_no_finished_trial_when_it_is_run_again(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08)
    launcher.die_after = 3
    with pytest.raises(Interrupted):
        make_sweep(make_space(), tmp_path, launcher).run()
    launcher.die_after = None
    again = make_sweep(make_space(), tmp_path, launcher)
    finished = {t.user_attrs["run_id"] for t in again.study.trials if t.state == TrialState.COMPLETE}
    before = len(launcher.started)
    again.run()
    restarted = [run for run, seed in launcher.started[before:] if seed == 1]
    assert not finished & set(restarted)
    assert sorted(t.params["gamma"] for t in counted(again.study)) == [0.6, 0.7, 0.8, 0.9]


def test_a_failed_run_is_started_again_and_told_its_value_once(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08)
    launcher.fail_first = {content_hash([{"credit.gamma": 0.7}, 1])}
    sweep = make_sweep(make_space(), tmp_path, launcher)
    sweep.run()
    trial = next(t for t in sweep.study.trials if t.params["gamma"] == 0.7)
    assert (trial.state, trial.user_attrs["attempts"]) == (TrialState.COMPLETE, 2)


def test_a_run_that_always_fails_is_marked_failed_and_has_no_score(tmp_path: Path) -> None:
    class Failing(WritingLauncher):
        def status(self, handle: str) -> Status:
            return "failed"

    launcher = Failing(tmp_path / "warehouse", peak_at_08)
    space = make_space(parameters={"gamma": {"key": "credit.gamma", "options": [0.6]}}, retries=2)
    sweep = make_sweep(space, tmp_path, launcher)
    sweep.run()
    trial = sweep.study.trials[0]
    assert (trial.state, trial.values, trial.user_attrs["attempts"]) == (TrialState.FAIL, None, 3)


def test_identical_configurations_are_not_run_twice(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08)
    space = make_space(
        parameters={"gamma": {"key": "credit.gamma", "options": [0.6, 0.8]}},
        sampler={"name": "random"},
        budget={"trials": 6},
        confirm={"top": 1, "seeds": []},
    )
    sweep = make_sweep(space, tmp_path, launcher, parallel=1)
    sweep.run()
    assert len(launcher.started) == 2
    assert len(counted(sweep.study)) == 2


def test_a_trial_that_lags_at_the_same_point_is_cancelled_and_pruned(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", lambda o: float(o["credit.gamma"]), steps=4)
    space = make_space(
        parameters={"gamma": {"key": "credit.gamma", "options": [0.9, 0.8, 0.1]}},
        pruning={"min_trials": 2, "percentile": 50},
        confirm={"top": 1, "seeds": []},
    )
    sweep = make_sweep(space, tmp_path, launcher, parallel=1)
    sweep.run()
    trial = next(t for t in sweep.study.trials if t.params["gamma"] == 0.1)
    assert trial.state == TrialState.PRUNED
    assert "horizon 4, step 1" in trial.user_attrs["pruned"]
    assert launcher.cancelled == [trial.user_attrs["handle"]]


def test_a_spent_budget_cancels_what_runs_and_tells_it_no_value(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08, steps=50)
    clock = iter([0.0] + [3600.0 * i for i in range(1, 200)])
    space = make_space(budget={"trials": 4, "hours": 2.0}, confirm={"top": 1, "seeds": []})
    sweep = make_sweep(space, tmp_path, launcher, now=lambda: next(clock))
    sweep.run()
    stopped = [t for t in sweep.study.trials if "stopped" in t.user_attrs]
    assert len(stopped) == 2
    assert all(t.values is None and "2 hours" in t.user_attrs["stopped"] for t in stopped)
    assert len(launcher.cancelled) == 2


def test_importance_names_the_parameter_that_mattered_and_the_pictures_are_pngs(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08)
    space = make_space(
        parameters={
            "gamma": {"key": "credit.gamma", "options": [0.6, 0.8]},
            "betas": {"key": "algorithm.betas", "options": [[0.9, 0.95], [0.9, 0.99]]},
        },
        confirm={"top": 1, "seeds": []},
    )
    sweep = make_sweep(space, tmp_path, launcher)
    sweep.run()
    shares = importance(sweep.study)
    assert shares["gamma"] > 0.9
    drawn = draw(sweep.space, sweep.study, tmp_path / "pictures")
    assert {p.stem for p in drawn} == {"parallel", "slice", "importance"}
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in drawn)
    assert [row["state"] for row in table(sweep.space, sweep.study, at_work=True)] == ["complete"] * 4


@pytest.mark.parametrize(
    ("rows", "shares"),
    [
        ([(1, 0), (2, 0)], set()),
        ([(1, 0), (2, 0), (3, 0)], set()),
        ([(1, 0), (2, 0), (3, 0), (4, 0)], {"a"}),
        ([(1, 0), (2, 1), (3, 0), (4, 1)], {"a", "b"}),
        ([(1, 0)] * 6, set()),
    ],
)
def test_importance_is_given_for_varied_parameters_and_enough_trials(
    rows: list[tuple[int, int]], shares: set[str]
) -> None:
    study = optuna.create_study()
    whole, pair = IntDistribution(0, 9), CategoricalDistribution([0, 1])
    for number, (a, b) in enumerate(rows):
        params, distributions = {"a": a, "b": b}, {"a": whole, "b": pair}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=float(number)))
    assert importance(study).keys() == shares


def test_a_trial_that_never_started_waits_when_the_budget_is_spent(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08, steps=1)
    sweep = make_sweep(make_space(budget={"trials": 2}, confirm={"seeds": []}), tmp_path, launcher)
    sweep.run()
    asked = sweep.study.ask()  # by a driver that died before its run began
    sweep.space.suggest(asked)
    make_sweep(sweep.space, tmp_path, launcher).run()
    assert len(launcher.started) == len(counted(sweep.study)) == 2
    again = make_sweep(make_space(budget={"trials": 3}, confirm={"seeds": []}), tmp_path, launcher)
    again.run()
    assert len(launcher.started) == 3
    assert {t.params["gamma"] for t in counted(again.study)} == {0.6, 0.7, 0.9}


def test_drivers_that_die_again_and_again_use_up_no_retry(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08, steps=4)
    space = make_space(retries=0, confirm={"seeds": []}, parameters=TWO_GAMMAS)
    for _ in range(3):

        def killed(_: float) -> None:
            if any(launcher.progress.values()):
                raise Interrupted

        with pytest.raises(Interrupted):
            make_sweep(space, tmp_path, launcher, sleep=killed).run()
        launcher.fail_first = set(launcher.progress)
    sweep = make_sweep(space, tmp_path, launcher)
    sweep.run()
    assert [t.state for t in sweep.study.trials] == [TrialState.COMPLETE] * 2
    assert len(set(launcher.labels)) == len(launcher.labels) == 8


def test_a_grid_half_queued_by_a_killed_process_is_queued_to_its_end(tmp_path: Path) -> None:
    space = make_space()
    random = space.model_copy(update={"sampler": space.sampler.model_copy(update={"name": "random"})})
    study = open_study(random, tmp_path)
    study.enqueue_trial({"gamma": 0.6})
    study.enqueue_trial({"gamma": 0.7})
    study = open_study(space, tmp_path)
    asked = [study.ask() for _ in range(4)]
    assert [space.suggest(trial)["credit.gamma"] for trial in asked] == [0.6, 0.7, 0.8, 0.9]
    assert exhausted(space, study)


def test_whoever_only_looks_at_a_sweep_that_begins_queues_nothing_beside_it(tmp_path: Path) -> None:
    assert open_study(make_space(), tmp_path, queue=False).trials == []
    assert len(open_study(make_space(), tmp_path).trials) == 4
    assert len(open_study(make_space(), tmp_path, queue=False).trials) == 4


def test_a_configuration_that_the_recipe_refuses_is_a_failed_trial_with_the_sentence(tmp_path: Path) -> None:
    class Refusing(WritingLauncher):
        def start(self, overrides: Mapping[str, Any], *, seed: int, label: str, display_name: str) -> StartedTrial:
            if overrides["credit.gamma"] == 0.7:
                raise ConfigError("credit.bad_setting", "Gamma 0.7 is refused.")
            return super().start(overrides, seed=seed, label=label, display_name=display_name)

    sweep = make_sweep(make_space(confirm={"seeds": []}), tmp_path, Refusing(tmp_path / "warehouse", peak_at_08))
    sweep.run()
    states = {t.params["gamma"]: (t.state, t.user_attrs.get("failed")) for t in sweep.study.trials}
    assert states[0.7] == (TrialState.FAIL, "Gamma 0.7 is refused.")
    assert [states[g][0] for g in (0.6, 0.8, 0.9)] == [TrialState.COMPLETE] * 3


def test_every_trial_stands_in_the_warehouse_with_its_state_values_parameters_and_run(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08)
    sweep = make_sweep(make_space(), tmp_path, launcher)
    sweep.run()
    with open_warehouse(tmp_path / "warehouse") as warehouse:
        found = warehouse.sql(
            "select study, number, state, value, fields->'$.values[0]', params->>'$.gamma', run_id from trials order by 2"
        ).fetchall()
    assert found == [
        ("gammas", t.number, "complete", t.values[0], str(t.values[0]), str(t.params["gamma"]), t.user_attrs["run_id"])
        for t in sweep.study.trials
    ]


def test_a_confirmation_that_is_killed_goes_on_with_the_seeds_that_are_left(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08)
    launcher.die_after = 5
    with pytest.raises(Interrupted):
        make_sweep(make_space(), tmp_path, launcher, parallel=1).run()
    launcher.die_after = None
    sweep = make_sweep(make_space(), tmp_path, launcher, parallel=1)
    sweep.run()
    assert [seed for _, seed in launcher.started if seed != 1] == [101, 102]
    assert winner(sweep.space, sweep.study).fresh == [1.0, 1.0]


def test_a_failed_confirmation_is_started_again_and_given_up_after_its_retries(tmp_path: Path) -> None:
    class Failing(WritingLauncher):
        def status(self, handle: str) -> Status:
            return "failed" if (handle, 101) in self.started else super().status(handle)

    launcher = Failing(tmp_path / "warehouse", peak_at_08)
    sweep = make_sweep(make_space(retries=1), tmp_path, launcher)
    sweep.run()
    assert [seed for _, seed in launcher.started].count(101) == 2
    assert {row["seed"]: row["values"] for row in sweep.study.user_attrs["confirmed"]} == {101: None, 102: [1.0]}
    assert winner(sweep.space, sweep.study).claim.endswith(": 1.000 over 1 of 2 fresh seeds, 1 failed")


def confirmed(folder: Path, *values: list[float | None]) -> str:
    """The claim of a sweep of two trials, 0.7 and 0.65 on their own seed. values: each trial's on the fresh seeds 101 to 103."""
    space = make_space(parameters=TWO_GAMMAS, confirm={"top": 2, "seeds": [101, 102, 103]})
    study = open_study(space, folder, queue=False)
    for gamma, value in ((0.6, 0.7), (0.8, 0.65)):
        attrs, options = {"overrides": {"credit.gamma": gamma}}, {"gamma": CategoricalDistribution([0.6, 0.8])}
        study.add_trial(
            optuna.trial.create_trial(params={"gamma": gamma}, distributions=options, value=value, user_attrs=attrs)
        )
    rows = [
        {"trial": trial, "seed": seed, "values": None if value is None else [value]}
        for trial, of_trial in enumerate(values)
        for seed, value in zip((101, 102, 103), of_trial, strict=False)
    ]
    study.set_user_attr("confirmed", rows)
    return winner(space, study).claim


ALL_SEEDS: list[float | None] = [0.60, 0.62, 0.64]


@pytest.mark.parametrize("fewer", [[0.9, None, None], [0.9], [None, None, None], []])
def test_a_mean_over_fewer_fresh_seeds_ranks_after_one_over_all(tmp_path: Path, fewer: list[float | None]) -> None:
    assert confirmed(tmp_path, ALL_SEEDS, fewer) == "trial 0: 0.620 over 3 fresh seeds (standard deviation 0.020)"


def test_the_claim_says_which_fresh_seeds_failed_and_between_how_many_means_it_was_chosen(tmp_path: Path) -> None:
    assert confirmed(tmp_path / "a", ALL_SEEDS, [0.8, 0.7, 0.6]) == (
        "trial 1: 0.700 over 3 fresh seeds (standard deviation 0.100); the best mean of 2 confirmed trials"
    )
    assert confirmed(tmp_path / "b", [], [0.9, None, None]) == "trial 1: 0.900 over 1 of 3 fresh seeds, 2 failed"
    assert confirmed(tmp_path / "c", [None, None, None]) == (
        "trial 0: 0.700 on its own seed; not yet confirmed on fresh seeds (3 of 3 failed)"
    )
    assert confirmed(tmp_path / "d") == "trial 0: 0.700 on its own seed; not yet confirmed on fresh seeds"


def test_a_validation_is_placed_by_the_horizon_that_its_stage_trains_at(tmp_path: Path) -> None:
    log = TurnLog.open(tmp_path, "r")
    for phase, stage, step, horizon in (
        ("validate", "rl-1", 0, 6),
        ("train", "rl-1", 1, 4),
        ("validate", "rl-1", 1, 6),
        ("train", "rl-2", 2, 5),
        ("validate", "rl-2", 2, 6),
    ):
        write_attempt(log, RolloutContext(stage, step, phase, "local"), horizon=horizon, score=0.5)
        if phase == "validate":
            log.metrics({"validate/score/mean": 0.5}, stage=stage, step=step)
    # Under way: its first attempt is no score yet.
    write_attempt(log, RolloutContext("rl-2", 3, "validate", "local"), horizon=6, score=0.0)
    log.close()
    assert points(tmp_path, ["r", "unknown"]) == {
        "r": [Point("rl-1", 4, 6, 0, 0.5), Point("rl-1", 4, 6, 1, 0.5), Point("rl-2", 5, 6, 2, 0.5)]
    }
