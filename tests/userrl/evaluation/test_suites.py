"""Suites as they are played: what is missing is refused before anything is, and what was played is not played again."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import curricula
from curricula.suites import load_suite
from tests.flows.small import environment
from tests.makers import raises
from tests.mock_server import Answer, Body, MockServer, tool_call
from tests.published import published
from userrl.evaluation.grid import Axes, Grid, horizons
from userrl.evaluation.planned import PlannedEvaluation, plan_evaluation
from userrl.run.families import other_families
from userrl.run.fingerprint import settings
from userrl.run.job import ProgressWriter, StageJob
from userrl.run.request import EvaluateRequest
from userrl.run.results import EvaluateResult
from userrl.run.scores import score_rows
from userrl.run.suites import settings_of
from userrl.run.tasks import equal_shares
from userrl.run.tasks import test_tasks as tasks_played
from userrl.worker.evaluate import evaluate
from userrl_core.gyms.registry import names, unavailable
from userrl_core.json_files import write_json
from userrl_core.records import Trajectory
from warehouse import TurnLog, open_warehouse

PLAYED_HERE = {
    name for name in names() if name not in ("agentgym", "openenv", "verifiers", "webshop") and not unavailable(name)
}
"""Every gym but the one whose episodes a server plays, the one in a browser, and those that lack a package or Java."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, without keys and without published data."""
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "USERRL_PUBLISHED_DATA"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def plan(suite: str, **fields: Any) -> PlannedEvaluation:
    return plan_evaluation(EvaluateRequest(suite=suite, **{"checkpoint": "demonstrator", **fields}))


@pytest.mark.parametrize(
    ("suite", "fields", "code", "fact"),
    [
        ("userrl-table3", {}, "task.none_imported", "gym 'travel' has none in"),
        ("tarl-retail", {}, "task.none_imported", "gym 'tau' has none in"),
        ("userbench-multi:hard", {}, "task.none_imported", "or our own tasks with userbench-multi:ours"),
        ("userrl-table3:ours", {}, "model.no_key", "OPENAI_API_KEY"),
        ("userrl-native:ours", {"user": "rule"}, "argument.missing", "--base-url"),
        ("quick:hard", {}, "argument.unknown_value", "'hard'"),
    ],
)
def test_what_a_suite_lacks_is_refused_before_anything_is_played(
    suite: str, fields: dict[str, Any], code: str, fact: str, here: Path
) -> None:
    with raises(code, fact) as caught:
        plan(suite, **fields)
    assert "\n" not in str(caught.value)
    assert not (here / "warehouse").exists()
    assert not list(here.glob("runs/*"))


def test_quick_plays_two_hundred_tasks_over_every_gym(here: Path) -> None:
    planned = plan("quick")
    tasks = tasks_played(planned.plan.recipe, 0)
    assert len(tasks) == 200
    assert {task.gym for task in tasks} == PLAYED_HERE
    assert {task.source for task in tasks} <= {"ours", "minigrid", "scienceworld"}
    assert planned.plan.name == "evaluate-quick-demonstrator"


def test_the_desks_of_tarl_are_the_published_test_tasks_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USERRL_PUBLISHED_DATA", str(published("tau-bench").parent))
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    for domain, count in (("retail", 115), ("airline", 50)):
        planned = plan(f"tarl-{domain}", user="rule")
        tasks = tasks_played(planned.plan.recipe, 0)
        assert len(tasks) == count
        assert {task.tier for task in tasks} == {domain}
        assert planned.plan.recipe.evaluate.attempts == 4
        assert planned.plan.recipe.gyms["tau"].config["verifier"] == "writes"


def test_a_tier_of_userbench_on_our_own_scenarios_is_that_tier_alone_with_its_options(here: Path) -> None:
    planned = plan("userbench-single:w5n5+hard", user="rule", tasks=4)
    tasks = tasks_played(planned.plan.recipe, 0)
    assert [task.tier for task in tasks] == ["hard"] * 4
    assert {len(part["options"]) for task in tasks for part in task.payload["aspects"].values()} == {13}
    assert planned.plan.recipe.evaluate.horizon == 20


def test_a_served_model_gets_the_suites_tokens_protocol_and_tool_choice(here: Path) -> None:
    served = {"checkpoint": "latest", "model": "m", "base_url": "http://127.0.0.1:1/v1", "user": "rule"}
    [actor] = plan("userbench-single:ours", **served).actors
    assert actor.options["max_tokens"] == 2048
    assert actor.options["tool_choice"] == "required"
    through_tool, native = plan("userrl-native:ours", **served).actors
    assert (through_tool.label, through_tool.native) == ("m", False)
    assert (native.label, native.native) == ("m (native)", True)


def test_options_of_a_served_model_precede_the_suites(here: Path) -> None:
    options = {"base_url": "http://127.0.0.1:1/v1", "timeout": 300, "max_tokens": 64}
    [actor] = plan("agentgym-rl", model={"model": "m", **options}).actors
    assert (actor.label, actor.options) == ("m", options)


def test_the_address_of_a_served_model_may_be_given_beside_its_options(here: Path) -> None:
    given = {"model": {"model": "m", "timeout": 300}, "base_url": "http://127.0.0.1:1/v1"}
    [actor] = plan("agentgym-rl", **given).actors
    assert actor.options == {"base_url": "http://127.0.0.1:1/v1", "timeout": 300, "max_tokens": 512}


@pytest.mark.parametrize(
    ("options", "code", "fact"),
    [
        ({"timout": 1}, "recipe.unknown_key", "did you mean 'timeout'?"),
        ({"timeout": -1}, "recipe.invalid_value", "timeout"),
        ({"model": 3}, "recipe.invalid_value", "model"),
    ],
)
def test_an_unusable_option_of_a_served_model_is_refused(
    options: dict[str, Any], code: str, fact: str, here: Path
) -> None:
    with raises(code, fact):
        plan("agentgym-rl", model={"model": "m", **options})


def test_table_four_plays_nothing_that_table_three_has_played(here: Path) -> None:
    third, fourth = (plan(f"userrl-table{number}:ours", user="rule") for number in (3, 4))
    assert third.plan.run_id == fourth.plan.run_id


def test_a_suites_settings_leave_nothing_of_a_recipes_own_tiers() -> None:
    settings = settings_of(load_suite("userbench-single:w5n5"), pretrained=False)
    assert settings["gyms.travel"]["tasks"] == {"options": "w5n5"}
    assert settings["gyms.travel"]["published"] is None
    assert "algorithm.max_tokens" not in settings


@given(st.lists(st.integers(0, 60), min_size=1, max_size=8), st.integers(0, 300))
def test_shares_are_equal_as_far_as_there_are_tasks(counts: list[int], total: int) -> None:
    there = {f"gym-{number}": count for number, count in enumerate(counts)}
    shares = equal_shares(there, total)
    assert sum(shares.values()) == min(total, sum(there.values()))
    assert all(0 <= shares[name] <= there[name] for name in there)
    unbounded = [share for name, share in shares.items() if share < there[name]]
    if unbounded:
        assert max(shares.values()) - min(unbounded) <= 1


def test_horizons_are_a_list_or_a_doubling_span() -> None:
    assert horizons("4..32", None) == (4, 8, 16, 32)
    assert horizons("4..20", None) == (4, 8, 16, 20)
    assert horizons("4, 16", None) == (4, 16)
    assert horizons(None, "userbench-single:turns") == (10, 20, 30, 40)
    assert horizons(None, None) == ()
    with raises("argument.malformed", "--turns", "4,8,16", "4..32"):
        horizons("many", None)


def test_a_grid_is_the_product_of_who_plays_who_answers_and_how_long(here: Path) -> None:
    users: tuple[Any, ...] = ("rule", {"kind": "rule", "options": {"manner": "vague"}})
    grid = Grid(EvaluateRequest(suite="quick", gyms=["wish"]), Axes(("demonstrator",), users, (4, 8)))
    cells = list(grid.cells())
    assert [(cell.user, cell.request.horizon) for cell in cells] == [
        ("rule", 4),
        ("rule", 8),
        ("rule vague", 4),
        ("rule vague", 8),
    ]
    assert grid.single is None
    assert len({plan_evaluation(cell.request).plan.run_id for cell in cells}) == 4


def evaluate_until(job: StageJob, most: int | None, *, stores_protocols: bool = True) -> EvaluateResult | None:
    """One start of an evaluation in this process; cut off after so many conversations, as a kill cuts it off.

    stores_protocols: False for a start of a version that had no protocols.
    """

    class CutOff(BaseException):
        pass

    class Counting(TurnLog):
        ended = 0

        def end(self, trajectory: Trajectory) -> None:
            if self.ended == most:
                raise CutOff
            super().end(trajectory)
            self.ended += 1

        def protocols(self, rows: Iterable[Mapping[str, Any]]) -> None:
            if stores_protocols:
                super().protocols(rows)

    progress = ProgressWriter(job.progress_file)
    with Counting.open(job.warehouse, job.run_id) as log:
        try:
            return evaluate(job, log, progress)
        except CutOff:
            return None
        finally:
            progress.close()


def test_an_evaluation_that_was_cut_off_plays_only_what_is_missing(here: Path) -> None:
    planned = plan("quick", gyms=["function", "math"], attempts=2)
    with planned.plan.begin() as run:
        job = planned.job(run)
        job.write()
        assert evaluate_until(job, 50) is None
        assert evaluate_until(job, 30) is None
        result = evaluate_until(job, None)
        again = evaluate_until(job, None)
    assert result is not None
    assert again == result
    with open_warehouse(here / "warehouse") as warehouse:
        text = """select incarnation, count(*), count(distinct (gym, task_id, attempt)) from trajectories
                  group by all order by all"""
        starts = warehouse.sql(text).fetchall()
        [(different,)] = warehouse.sql("select count(distinct (gym, task_id, attempt)) from trajectories").fetchall()
        setting = warehouse.query("evaluation_setting", run=job.run_id).pl().to_dicts()
    assert {row["suite"] for row in setting} == {"quick"}
    assert [count for _, count, _ in starts[:2]] == [50, 30]
    assert sum(count for _, count, _ in starts) == different == 400
    assert sum(row.attempts for row in result.table["demonstrator"].values()) == 400
    [function, maths, every] = score_rows(job.run_id, planned.actors, ["function", "math"], ["best_at_k"])
    assert (function.gym, maths.gym, every.gym) == ("function", "math", "all")
    assert (every.trajectories, every.tasks, every.attempts, every.user) == (400, 200, 2, "rule")
    assert every.more == {"best@1": 1.0, "best@2": 1.0}
    last = json.loads(job.progress_file.read_text().splitlines()[-1])
    assert last["step"] == last["total"] == 400
    assert {"per_second", "left_seconds", "dollars"} <= last.keys()


def test_what_an_earlier_version_played_keeps_a_protocol_that_is_not_known(here: Path) -> None:
    planned = plan("quick", gyms=["function"], tasks=3)
    with planned.plan.begin() as run:
        job = planned.job(run)
        job.write()
        assert evaluate_until(job, 1, stores_protocols=False) is None
        assert evaluate_until(job, None) is not None
        assert evaluate_until(job, None) is not None
    with open_warehouse(here / "warehouse") as warehouse:
        [row] = warehouse.rows("FROM evaluation_protocols(run := $run)", run=job.run_id)
    assert (row["recorded"], row["user_model"], row["horizon"]) == (False, "rule", str(job.recipe.evaluate.horizon))
    assert (row["agent_prompt"], row["gym_settings"], row["protocol_hash"]) == (None, None, None)


def test_a_setting_that_changed_within_an_evaluation_is_not_known(here: Path) -> None:
    planned = plan("quick", gyms=["function"], tasks=3)
    stored = "SELECT * FROM protocols WHERE run_id = $run"
    with planned.plan.begin() as run:
        job = planned.job(run)
        job.write()
        assert evaluate_until(job, 1) is None
        with open_warehouse(here / "warehouse") as warehouse:
            [before] = warehouse.rows(stored, run=job.run_id)
        with TurnLog.open(job.warehouse, job.run_id) as log:
            log.protocols([{**before, "agent_prompt": "brief 0", "protocol_hash": "earlier"}])
        assert evaluate_until(job, None) is not None
    with open_warehouse(here / "warehouse") as warehouse:
        [after] = warehouse.rows(stored, run=job.run_id)
    assert {name for name in settings() if after[name] != before[name]} == {"agent_prompt"}
    assert (after["agent_prompt"], after["protocol_hash"]) == (None, None)


def test_gyms_that_were_trained_on_are_played_beside_what_was_played_and_resumed_like_it(here: Path) -> None:
    planned = plan("quick", gyms=["function"], tasks=3)
    with planned.plan.begin() as run:
        alone = planned.job(run)
        alone.write()
        first = evaluate_until(alone, None)
        trained = curricula.load("horizon-fork", "laptop")
        write_json(here / "made" / "run.json", {"id": "made", "created": 0.0, "resolved": trained.resolved()})
        beside = other_families(alone.recipe, str(here / "made" / "sft" / "checkpoint"))
        assert [family.evaluation_gyms for family in beside] == [("errand",), ("wish",)]
        job = alone.model_copy(update={"families": beside})
        assert evaluate_until(job, 4) is None
        result = evaluate_until(job, None)
        assert evaluate_until(alone, None) == first
    assert first is not None
    assert result is not None
    [table], [solved] = result.table.values(), result.solved.values()
    assert {gym: (row.attempts, len(solved[gym])) for gym, row in table.items()} == {
        "function": (3, alone.recipe.evaluate.horizon), "errand": (3, 16), "wish": (3, 16),
    }  # fmt: skip
    assert table["function"] == first.table["demonstrator"]["function"]
    assert result.tasks == 9
    for gym, row in table.items():
        assert solved[gym][-1] == row.score
    with open_warehouse(here / "warehouse") as warehouse:
        starts = warehouse.sql("select gym, count(*) from trajectories group by all order by all").fetchall()
        by_turns = warehouse.query("score_by_turns", run=alone.run_id).pl().to_dicts()
    assert starts == [("errand", 3), ("function", 3), ("wish", 3)]
    for gym in table:
        of_log = [row["solved"] for row in by_turns if (row["gym"], row["tier"]) == (gym, None)]
        assert solved[gym] == tuple(of_log)
    *rows, every = score_rows(alone.run_id, planned.actors, ["function", "errand"])
    assert [row.gym for row in rows] == ["errand", "function", "wish"]
    assert every.tasks == 6


def test_another_job_in_the_same_place_takes_nothing_of_it(here: Path) -> None:
    planned = plan("quick", gyms=["function"], tasks=3)
    with planned.plan.begin() as run:
        job = planned.job(run)
        job.write()
        assert evaluate_until(job, 2) is None
        [actor] = job.actors
        other = job.model_copy(update={"actors": (actor.model_copy(update={"step": 7}),)})
        assert evaluate_until(other, None) is not None
    with open_warehouse(here / "warehouse") as warehouse:
        count = "select step, count(*) from {} group by all order by all"
        assert warehouse.sql(count.format("trajectories")).fetchall() == [(7, 3)]
        assert warehouse.sql(count.format("trajectories_all")).fetchall() == [(0, 2), (7, 3)]


def userrl(home: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "flows.cli.main", *words]
    return subprocess.Popen(
        command,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
@pytest.mark.usefixtures("prepared")
def test_the_quick_suite_killed_half_way_plays_only_what_is_missing(here: Path) -> None:
    words = ("evaluate", "quick", "--demonstrator", "--attempts", "2", "--json")
    first = userrl(here, *words)
    while ended(here) < 100:
        assert first.poll() is None, "it ended before it could be killed"
        time.sleep(0.005)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    with open_warehouse(here / "warehouse") as warehouse:
        [(before,)] = warehouse.sql("select count(*) from trajectories").fetchall()
    assert 100 <= before < 400
    second = userrl(here, *words)
    said, complaints = second.communicate(timeout=300)
    assert second.returncode == 0, complaints
    rows = {row["gym"]: row for row in json.loads(said)["rows"]}
    assert set(rows) == {*PLAYED_HERE, "all"}
    assert rows["all"]["trajectories"] == 400
    with open_warehouse(here / "warehouse") as warehouse:
        text = "select count(*), count(distinct (gym, task_id, attempt)) from "
        assert warehouse.sql(f"{text} trajectories").fetchall() == [(400, 400)]
        # Those that were cut off are logged as rejected, and hidden.
        assert warehouse.sql(f"{text} trajectories_all where admitted").fetchall() == [(400, 400)]


@pytest.mark.slow
@pytest.mark.usefixtures("prepared")
def test_a_grid_of_horizons_and_attempts_is_one_table_and_one_plot_data(here: Path) -> None:
    words = (
        "evaluate",
        "quick",
        "--demonstrator",
        "--gym",
        "errand",
        "--tasks",
        "6",
        "--turns",
        "4..16",
        "--attempts",
        "4",
    )
    process = userrl(here, *words, "--out", str(here / "grid.csv"))
    said, complaints = process.communicate(timeout=300)
    assert process.returncode == 0, complaints
    assert said.count("| demonstrator |") == 3
    with (here / "grid.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["horizon"], row["k"]) for row in rows] == [(h, k) for h in ("4", "8", "16") for k in "1234"]
    assert {(row["attempts"], row["temperature"]) for row in rows} == {("4", "0.0")}
    best = {row["horizon"]: float(row["best_at_k"]) for row in rows if row["k"] == "4"}
    assert best["4"] < best["16"]
    drawn = (here / "grid.svg").read_text()
    assert {"score by horizon", "best of k attempts, 16 turns"} <= set(re.findall(r">([^<>]+)</text>", drawn))
    process = userrl(here, *words[:-4], "--horizon", "4", "--attempts", "4", "--out", str(here / "one.csv"))
    _, complaints = process.communicate(timeout=300)
    assert process.returncode == 0, complaints
    with (here / "one.csv").open() as file:
        assert list(csv.DictReader(file)) == [row for row in rows if row["horizon"] == "4"]


@pytest.mark.slow
@pytest.mark.usefixtures("prepared")
def test_a_served_evaluation_stops_at_its_budget_and_goes_on_when_it_is_raised(here: Path) -> None:
    def asker(body: Body) -> Answer:
        time.sleep(0.3)
        return Answer("", [tool_call("action", "Is it alive?", len(body["messages"]))], "tool_calls")

    words = ("evaluate", "quick", "--gym", "telepathy", "--tasks", "43", "--horizon", "12")
    with MockServer(asker) as server:
        served = (*words, "--model", "gpt-4o", "--base-url", server.base_url)
        stopped = userrl(here, *served, "--concurrency", "1", "--dollars", "0.0001")
        _, complaints = stopped.communicate(timeout=300)
        assert stopped.returncode == 1
        assert "The budget of $0.0001 is spent" in complaints
        assert "the stage continues where it stopped" in complaints
        assert server.most_in_flight == 1
        goes_on = userrl(here, *served, "--concurrency", "16", "--json")
        said, complaints = goes_on.communicate(timeout=300)
    assert goes_on.returncode == 0, complaints
    assert json.loads(said)["rows"][0]["trajectories"] == 43
    with open_warehouse(here / "warehouse") as warehouse:
        [(rows, different)] = warehouse.sql("select count(*), count(distinct task_id) from trajectories").fetchall()
    assert rows == different == 43


def ended(home: Path) -> int:
    """Conversations that ended, as the files have it."""
    logs = (path for path in home.glob("warehouse/runs/*/**/*.jsonl") if "trajectories" in path.name)
    return sum(path.read_bytes().count(b'"stop_reason"') for path in logs)
