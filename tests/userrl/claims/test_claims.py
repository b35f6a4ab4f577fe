"""Claims: what is written down before an arm starts, what the arms are, and what their runs come to."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from curricula.claims import CHECKS, Claim, claim_names, load_arm, load_claim
from flows.cli.main import app
from sweeps.launcher import StartedTrial, Status
from tests.makers import raises
from tests.places import ROOT
from tests.warehouse.makers import play
from userrl.claims.code import measuring_code, registration, statements, training_code
from userrl.claims.document import claim_document
from userrl.claims.register import Register, as_registered, registered
from userrl.claims.report import claim_report
from userrl.claims.reproduction import asked, next_run, request_of, seeds_of, train_arms
from userrl.run.plan import plan_run
from userrl.run.request import ReproduceRequest, TrainRequest
from userrl.run.run import RunDescription, all_runs, delete
from userrl.run.run import claim as begin_run
from warehouse import open_warehouse
from warehouse.write.turn_log import TurnLog

TINY: Mapping[str, Any] = {
    "kind": "mechanism check",
    "paper": "ours",
    "text": "Scores by R2G and by mean, as small as it goes.",
    "tokens": 8000,
    "every": 2,
    "overrides": {
        "demonstrations.episodes": 200,
        "demonstrations.top_k": 150,
        "cold_start.steps": 40,
        "algorithm.batch": 4,
        "algorithm.batch_tokens": 1000,
        "evaluate.tasks": 20,
        "evaluate.validation_tasks": 8,
    },
    "arms": {"r2g": {"overrides": {"credit.score": "r2g"}}, "mean": {"overrides": {"credit.score": "mean"}}},
    "contrast": {"more": "r2g", "than": "mean"},
}


def written(folder: Path, **changed: Any) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump({**TINY, **changed}))
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "warehouse").mkdir(parents=True)
    return tmp_path / "home"


def ended(register: Register, arm: str, seed: int, run: str) -> None:
    """Note a run as a claim does it: when it starts and when it ends."""
    for state in ("started", "ended"):
        register.note(arm, seed, run=run, began=register.registered + 1, state=state)


@pytest.mark.parametrize("name", claim_names())
def test_every_arm_of_every_claim_is_planned_on_a_laptop(name: str, home: Path) -> None:
    claim = load_claim(name)
    recipes = [plan_run(request_of(claim, arm, claim.first_seed)).recipe for arm in claim.arms.values()]
    assert len({recipe.hash for recipe in recipes}) == len(recipes)
    budgets = [sum(stage.tokens or 0 for stage in recipe.stages) for recipe in recipes]
    assert all(recipe.total_steps == round(tokens / 4096) for recipe, tokens in zip(recipes, budgets, strict=True))
    assert claim.tokens in budgets
    assert all(recipe.evaluate.draw == "seed" and recipe.evaluate.last == 3 for recipe in recipes)
    cold_starts = {(recipe.cold_start.model_dump_json(), recipe.demonstrations.model_dump_json()) for recipe in recipes}
    assert len(cold_starts) == (1 if claim.same_cold_start else len(recipes))


def test_there_are_twelve_claims_of_the_papers_and_each_takes_a_line() -> None:
    said = CliRunner().invoke(app, ["reproduce", "--list"])
    assert said.exit_code == 0
    lines = said.stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(claim_names())
    assert sum(" claim " in line[28:46] for line in lines) == 12


def test_every_claim_has_the_hashes_that_it_had() -> None:
    with (ROOT / "data" / "claims" / "former.csv").open(newline="") as file:
        hashes = {row["claim"]: (row["hash"], row["registered"]) for row in csv.DictReader(file)}
    assert hashes == {claim.name: (claim.hash, claim.as_published.hash) for claim in map(load_claim, claim_names())}


def test_a_home_with_the_published_registration_continues_it(home: Path) -> None:
    claim = load_claim("r2g-above-sum")
    assert as_registered(claim).hash == claim.hash
    with registered(claim.as_published, changed_budget=False) as register:
        assert register.claim.overrides_of(claim.arms["r2g"]).get("evaluate.tasks", "unset") == "unset"
    assert as_registered(claim).hash == claim.as_published.hash == "eb7aae2cdcd7e5c6"
    assert claim.overrides_of(claim.arms["r2g"])["evaluate.tasks"] is None


def test_pinned_values_keep_a_claim_s_hash_and_recipes_when_the_profile_changes(tmp_path: Path) -> None:
    claim, arm = load_claim(written(tmp_path)), "r2g"
    former = claim.recipe_of(claim.arms[arm]).algorithm.lr
    assert claim.model_copy(update={"pinned": {"algorithm.lr": former}}).hash == claim.hash
    changed = claim.model_copy(update={"pinned": {"algorithm.lr": 2 * former}})
    assert changed.hash != claim.hash
    assert changed.recipe_of(claim.arms[arm]).algorithm.lr == 2 * former


def test_runs_of_other_code_are_listed_apart_and_in_no_verdict(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = load_claim(written(tmp_path))
    trained(home / "warehouse", "a", {("RL", 100): [1.0] * 4})
    with registered(claim, changed_budget=False) as register:
        register.note("r2g", 101, run="a", began=register.registered + 1, state="started")
        monkeypatch.setattr("userrl.claims.register.training_code", lambda: "other")
        ended(register, "r2g", 101, "a")
        for arm in ("r2g", "mean"):
            register.note(arm, 102, run=f"b-{arm}", began=register.registered + 1, state="started")
            register.note(arm, 102, run=f"b-{arm}", began=register.registered + 1, state="crashed")
    with open_warehouse(home / "warehouse") as warehouse:
        table = claim_report(warehouse, claim)
        (row,) = warehouse.rows("from claims()")
    assert (row["code"], row["measure"]) == (training_code(), measuring_code())
    assert row["registration"] == registration(claim.hash)
    assert [arm.measured.seeds for arm in table.arms] == [(101,)]
    assert {code: [arm.arm for arm in arms] for code, arms in table.other_code.items()} == {"other": ["mean", "r2g"]}
    assert "trained by other code (other)" in claim_document(table).markdown()


def test_the_code_hash_ignores_texts_and_sees_every_statement() -> None:
    source = b'''"""A module."""  # why

LIMIT = 3  # "three"
"""The limit."""


def area(side: float) -> str:
    """Return the area.

    side: in metres.
    """
    return f"# {side * side}"
'''
    bare = b'LIMIT = 3\ndef area(side: float) -> str:\n    return f"# {side * side}"'
    assert statements(source) == bare
    assert statements(source.replace(b"The limit", "Größer".encode())) == bare
    assert statements(source.replace(b"= 3", b"= 4")) != bare


def test_the_hash_is_of_everything_in_the_file_and_of_the_recipes(tmp_path: Path) -> None:
    claim = load_claim(written(tmp_path))
    assert claim.hash == load_claim(written(tmp_path)).hash
    assert claim.hash != load_claim(written(tmp_path, delta=0.1)).hash
    assert claim.hash != claim.with_tokens(4000).hash
    with raises("claim.bad_file"):
        load_claim(written(tmp_path, contrast={"more": "r2g", "than": "medium"}))
    with raises("recipe.unknown_key"):
        load_claim(written(tmp_path, metrik="score"))


def test_another_budget_scales_schedules_that_count_steps() -> None:
    shorter = load_claim("scaling-above-long").with_tokens(80_000)
    assert shorter.arms["scaling"].overrides["schedule"]["every"] == 5
    assert (shorter.tokens, shorter.every) == (80_000, 2)
    levels = shorter.recipe_of(shorter.arms["scaling"]).schedule.levels()
    assert [level.horizon for level in levels] == [6, 11, 16]
    mixed = load_claim("mixed-above-alone").with_tokens(80_000)
    assert [mixed.recipe_of(arm).stages[0].tokens for arm in mixed.arms.values()] == [80_000, 80_000, 160_000]


GROWING = {"kind": "scaling_inter", "start": 4, "increment": 2, "cap": 8}


@pytest.mark.parametrize("overrides", [{"stages": 3}, {"stages": [3]}, {"schedule": {**GROWING, "every": "x"}}])
def test_another_budget_leaves_values_of_another_shape_for_the_recipe_to_refuse(
    tmp_path: Path, overrides: dict[str, Any]
) -> None:
    claim = load_claim("scaling-above-long")
    arms = {name: arm.model_copy(update={"overrides": overrides}) for name, arm in claim.arms.items()}
    shorter = claim.model_copy(update={"arms": arms}).with_tokens(80_000)
    with raises("recipe.invalid_value", next(iter(overrides))):
        shorter.recipe_of(next(iter(shorter.arms.values())))


def test_a_claim_is_registered_once_and_what_is_changed_later_is_exploratory(tmp_path: Path, home: Path) -> None:
    first = load_claim(written(tmp_path))
    with registered(first.with_tokens(4000), changed_budget=True) as register:
        assert register.exploratory == "another budget than the claim's"
    with registered(first, changed_budget=False) as register:
        register.note("r2g", 101, run="r1", began=register.registered + 1, state="started")
        register.note("mean", 101, run="r2", began=register.registered - 1, state="ended")
        register.note("mine", 101, run="r3", began=register.registered + 1, state="ended", of_person=True)
        assert register.exploratory == ""
    with registered(first, changed_budget=False) as again:
        assert again.registered == pytest.approx(register.registered, abs=1.0)
        assert {place: row["state"] for place, row in again.rows.items()} == {
            ("r2g", 101): "started",
            ("mean", 101): "ended",
            ("mine", 101): "ended",
        }
    with registered(load_claim(written(tmp_path, delta=0.1)), changed_budget=False) as changed:
        assert changed.exploratory == "the claim, or a recipe of its arms, was changed after it was registered"
    with open_warehouse(home / "warehouse") as warehouse:
        registrations = warehouse.sql("select hash, exploratory <> '' from claims(of_claim := 'tiny')").fetchall()
        arms = dict(warehouse.sql("select arm, exploratory from claim_arms(of_claim := 'tiny')").fetchall())
    assert registrations == [(first.with_tokens(4000).hash, True), (first.hash, False), (changed.claim.hash, True)]
    assert arms == {
        "r2g": "",
        "mean": "the run began before the claim was registered",
        "mine": "an arm of one's own",
    }


class Flows:
    """A launcher whose flow runs end at once. As on Prefect's server, a label that was used gives its first flow run."""

    def __init__(self) -> None:
        self.labels: list[str] = []

    def launch(self, request: TrainRequest, run_id: str, *, label: str, display_name: str) -> StartedTrial:
        if label not in self.labels:
            self.labels.append(label)
            begin_run(run_id, RunDescription(recipe=request.recipe), fresh=False, flow_run=None).set_status("completed")
        return StartedTrial(label, run_id)

    def status(self, handle: str) -> Status:
        return "completed"

    def cancel(self, handle: str) -> None: ...


def test_a_deleted_run_of_a_claim_is_trained_again(tmp_path: Path, home: Path) -> None:
    tiny, flows = load_claim(written(tmp_path)), Flows()
    for label in (1, 2, 3):
        train_arms(tiny, [101], lambda *_: flows, lambda *_: None, parallel=2, poll_seconds=0.0)
        assert [text.rpartition("-")[2] for text in flows.labels] == [
            str(label) for label in range(1, label + 1) for _ in "ab"
        ]
        for run in all_runs():
            delete(run)


def test_a_machine_can_run_later_seeds_of_a_claim_but_none_before_its_first(tmp_path: Path) -> None:
    name = str(written(tmp_path))
    claim = load_claim(name)
    assert seeds_of(claim, ReproduceRequest(claim=name, seeds=3)) == range(101, 104)
    assert seeds_of(claim, ReproduceRequest(claim=name, seeds=2, first_seed=105)) == range(105, 107)
    with raises("argument.out_of_range", "begin at 101"):
        seeds_of(claim, ReproduceRequest(claim=name, seeds=2, first_seed=100))


def test_an_arm_of_ones_own_is_laid_over_what_all_arms_share(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("overrides: {credit.score: sum, schedule: {kind: fixed, turns: 10}}")
    claim, own = asked(ReproduceRequest(claim=str(written(tmp_path)), arm=str(file)))
    recipe = claim.recipe_of(own["mine"])
    assert (recipe.credit.score, recipe.schedule.horizon(1), recipe.evaluate.horizon) == ("sum", 10, 16)
    assert load_arm(str(file))[0] == "mine"
    file.rename(tmp_path / "r2g.yaml")
    with raises("claim.bad_file", "'r2g'"):
        asked(ReproduceRequest(claim=str(written(tmp_path)), arm=str(tmp_path / "r2g.yaml")))


def trained(warehouse: Path, run: str, scores: Mapping[tuple[str, int], list[float]]) -> None:
    """A run that was evaluated: scores by policy and step, a task each."""
    with TurnLog.open(warehouse, run, run_fields={"name": run}) as log:
        for step, score in ((10, 0.25), (20, 0.5), (100, 0.75)):
            for task in range(4):
                play(log, [score], task=f"v{task}", stage="rl-1", step=step, phase="validate", score=score)
            log.metrics({"seconds/cpu/sum": 2.0}, stage="rl-1", step=step)
        for (policy, step), own in scores.items():
            for task, score in enumerate(own):
                play(log, [0.0, score], task=f"t{task}", stage="evaluate", step=step, phase="evaluate", score=score,
                     policy=policy)  # fmt: skip


def test_the_endpoint_is_the_mean_of_the_last_three_evaluations_in_the_last_fifth(tmp_path: Path, home: Path) -> None:
    claim = load_claim(written(tmp_path))
    last = {("RL at step 80", 80): [0.0] * 4, ("RL at step 90", 90): [1.0, 1.0, 0.0, 0.0]}
    trained(home / "warehouse", "a", {("RL", 95): [1.0] * 4, **last, ("RL last step", 100): [1.0, 0.0, 0.0, 0.0]})
    trained(home / "warehouse", "b", {("SFT", 0): [1.0] * 4, ("RL", 100): [1.0, 1.0, 1.0, 0.0], **last})
    with registered(claim, changed_budget=False) as register:
        for seed in (101, 102):
            ended(register, "r2g", seed, "a")
            ended(register, "mean", seed, "b")
        register.note("r2g", 103, run="gone", began=register.registered + 1, state="crashed")
        ended(register, "mean", 103, "b")
        register.note("r2g", 104, run="a", began=register.registered + 1, state="started")
    with open_warehouse(home / "warehouse") as warehouse:
        table = claim_report(warehouse, claim)
        rows = {row["arm"]: row for row in warehouse.rows("from claim_arms() where seed = 101")}
    # Steps 90, 95 and 100 of a: step 80 is no part of the last fifth of 100 steps. Steps 90 and 100 of b.
    assert (rows["r2g"]["score"], rows["r2g"]["evaluations"]) == (pytest.approx((0.5 + 1.0 + 0.25) / 3), 3)
    assert (rows["mean"]["score"], rows["mean"]["evaluations"]) == (pytest.approx((0.5 + 0.75) / 2), 2)
    assert (rows["r2g"]["best"], rows["mean"]["best"]) == (1.0, 0.75)
    assert (rows["r2g"]["early"], rows["r2g"]["cpu_seconds"]) == (0.5, 6.0)
    assert (rows["r2g"]["time_weighted"], rows["mean"]["time_weighted"]) == (0.125, 0.375)
    assert (rows["r2g"]["ending"], rows["mean"]["ending"]) == ("held", "held")
    crashed = next(arm for arm in table.arms if arm.measured.crashed)
    assert (crashed.arm, crashed.measured.seeds, crashed.measured.crashed) == ("r2g", (101, 102, 103), 1)
    assert crashed.measured.collapsed.estimate == pytest.approx(1 / 3)
    assert table.values[103] == {"r2g": 0.0, "mean": pytest.approx(0.625)}
    assert 104 not in table.values
    assert str(table.verdict) == "undecided (3 of 8 seeds)"
    assert (
        "Fewer than three evaluations in the last fifth of the budget at seeds 101, 102, 103; "
        "their score is the mean of these evaluations." in table.says
    )
    assert "**Undecided (3 of 8 seeds), in miniature, on errand.**" in claim_document(table).markdown()


def test_a_check_with_the_language_model_is_not_called_miniature(tmp_path: Path) -> None:
    check = load_claim("unpaid-search.language-model")
    with TurnLog.open(tmp_path, "r1"), open_warehouse(tmp_path) as warehouse:
        shown = claim_document(claim_report(warehouse, check)).markdown()
    assert "**Undecided (0 of 8 seeds), with a pretrained model of 135 M parameters, on wish.**" in shown


def test_a_check_is_the_two_arms_with_one_thing_changed(tmp_path: Path) -> None:
    claim = load_claim("turn-shaping-matters-less")
    checks = {which: load_claim(f"turn-shaping-matters-less.{which}") for which in CHECKS}
    assert all(list(check.arms) == ["em-r2g", "equalized-mean"] for check in checks.values())
    assert len({check.hash for check in (claim, *checks.values())}) == 7
    rates = {name: check.recipe_of(check.arms["em-r2g"]).algorithm.lr for name, check in checks.items()}
    own = {"second-family": 0.001, "terminal-reward": 0.001, "follow-up": 0.001, "language-model": 2e-5}
    assert rates == {"half-rate": 0.0005, "double-rate": 0.002, **own}
    assert checks["terminal-reward"].overrides["gyms.errand.config.reward"] == "terminal"
    assert (checks["second-family"].mix, checks["follow-up"].first_seed) == ({"wish": 1.0}, 201)
    pretrained = checks["language-model"].recipe_of(checks["language-model"].arms["em-r2g"])
    assert (pretrained.model.path, pretrained.stages[0].tokens) == ("smollm2-135m", 100_000)
    assert pretrained.model.dtype == "bfloat16"  # on every machine, so that the check has one hash
    assert (pretrained.evaluate.tasks, pretrained.evaluate.every, pretrained.evaluate.horizon) == (90, 2, 16)
    assert load_claim(f"{written(tmp_path)}.half-rate").name == "tiny.half-rate"
    with raises("claim.bad_check", "'elicitation-pay'"):
        load_claim("elicitation-pay.second-family")
    with raises("claim.bad_check", "'mixed-above-alone'"):
        load_claim("mixed-above-alone.second-family")
    with raises("claim.bad_check", "'elicitation-pay'"):
        load_claim("elicitation-pay.terminal-reward")
    for name in ("unpaid-search", "naive-collapses", "elicitation-pay", "short-plateaus", "long-leads-early"):
        check = load_claim(f"{name}.language-model")
        assert [check.recipe_of(arm).model.path for arm in check.arms.values()] == ["smollm2-135m"] * 2
    for name in ("late-decay", "judge-above-none", "cold-start-size", "best-horizon"):
        with raises("claim.bad_check", f"'{name}'"):
            load_claim(f"{name}.language-model")
    with raises("claim.bad_check"):
        load_claim("short-plateaus.half-rate.follow-up")
    with raises("file.unknown_name", "'r2g-above-sum.other'"):
        load_claim("r2g-above-sum.other")


def test_a_second_arm_waits_until_the_first_one_of_its_seed_is_over_while_other_seeds_wait() -> None:
    waiting = deque((seed, arm) for seed in (101, 102, 103) for arm in ("paid", "unpaid"))
    assert next_run(waiting, set()) == (101, "paid")
    assert next_run(waiting, {101}) == (102, "paid")
    assert next_run(waiting, {102}) == (101, "unpaid")
    assert next_run(waiting, {101}) == (102, "unpaid")
    assert next_run(waiting, {102}) == (103, "paid")
    assert next_run(waiting, {103}) == (103, "unpaid")  # no other seed is left
    assert not waiting


def test_a_sign_that_turns_at_another_rate_is_said_in_the_verdict(tmp_path: Path, home: Path) -> None:
    path = written(tmp_path)
    trained(home / "warehouse", "good", {("RL", 100): [1.0] * 4})
    trained(home / "warehouse", "bad", {("RL", 100): [0.0] * 4})
    for name, better, seeds in (
        (path, "r2g", 8),
        (f"{path}.half-rate", "mean", 6),
        (f"{path}.double-rate", "r2g", 6),
        (f"{path}.second-family", "r2g", 8),
        (f"{path}.terminal-reward", "mean", 8),
        (f"{path}.follow-up", "mean", 8),
        (f"{path}.language-model", "r2g", 8),
    ):
        claim = load_claim(name)
        with registered(claim, changed_budget=False) as register:
            for seed in range(claim.first_seed, claim.first_seed + seeds):
                for arm in claim.arms:
                    run = "good" if arm == better else "bad"
                    ended(register, arm, seed, run)
    with open_warehouse(home / "warehouse") as warehouse:
        table = claim_report(warehouse, load_claim(path))
    assert {which: str(found) for which, found in table.checks.items()} == {
        "half-rate": "undecided (6 of 8 seeds)",
        "double-rate": "undecided (6 of 8 seeds)",
        "second-family": "reproduced",
        "terminal-reward": "the reverse",
        "follow-up": "the reverse",
        "language-model": "reproduced",
    }
    said = claim_document(table).markdown()
    assert (
        "**Reproduced, in miniature, on errand and wish and with a pretrained model of 135 million parameters, "
        "but its sign changes at half the learning rate.**" in said
    )
    assert "At half the learning rate, 6 seeds: collapsed 0 of 6 against 0 of 6, −1.000 [−1.000, −1.000] (99%)." in said
    assert "collapsed 0 of 8 against 0 of 8, −1.000 [−1.000, −1.000] (99%): the reverse." in said
    assert "`r2g` by seed: 1.000 1.000 1.000" in said
    assert table.as_json()["checks"]["second-family"] == {
        "verdict": "reproduced",
        "seeds": 8,
        "difference": [1.0, 1.0, 1.0],
    }


def test_processor_time_to_a_score_that_was_reached(tmp_path: Path, home: Path) -> None:
    claim: Claim = load_claim(written(tmp_path, metric="cpu_seconds", target=0.5))
    trained(home / "warehouse", "a", {("RL", 100): [1.0] * 4})
    with registered(claim, changed_budget=False) as register:
        ended(register, "r2g", 101, "a")
    with open_warehouse(home / "warehouse") as warehouse:
        (row,) = warehouse.rows("from claim_arms()")
    assert (row["reached_step"], row["cpu_seconds"]) == (20, 4.0)


def test_an_own_arm_is_marked_under_another_budget_too(tmp_path: Path, home: Path) -> None:
    claim = load_claim(written(tmp_path)).with_tokens(4000)
    trained(home / "warehouse", "a", {("RL", 100): [1.0] * 4})
    with registered(claim, changed_budget=True) as register:
        for arm, own in (("r2g", False), ("mine", True)):
            register.note(arm, 101, run="a", began=register.registered + 1, state="ended", of_person=own)
    with open_warehouse(home / "warehouse") as warehouse:
        table = claim_report(warehouse, claim, register.exploratory)
    assert {row.arm: row.exploratory for row in table.arms} == {"r2g": "", "mine": "an arm of one's own"}
    said = claim_document(table).markdown()
    assert "| `mine`\\* |" in said
    assert "Exploratory: another budget than the claim's." in said
