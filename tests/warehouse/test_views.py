from __future__ import annotations

import csv
import random
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import metrics
from tests.warehouse.makers import play
from userrl_core.gyms import tasks
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import CheckpointRecord, RolloutContext, Task, Trajectory, Turn
from userrl_core.rollout import run_episodes
from userrl_core.training.waits import waits
from warehouse import TurnLog, Warehouse, open_warehouse, reference


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Warehouse, list[Trajectory]]:
    """An evaluation of three gyms, five tasks each, four attempts each, with a few that could not be scored."""
    root, draw, done = tmp_path_factory.mktemp("warehouse"), random.Random(3), []
    with TurnLog.open(root, "r1", run_fields={"name": "mine", "shaping": "equalized", "score": "r2g"}) as log:
        for gym in ("travel", "turtle", "function"):
            for task in range(5):
                for attempt in range(4):
                    rewards: list[float | None] = [draw.choice([0.0, 0.5, 1.0]) for _ in range(draw.randint(1, 6))]
                    if draw.random() < 0.15:
                        rewards[-1] = None
                    done.append(
                        play(
                            log,
                            rewards,
                            gym=gym,
                            task=f"t{task}",
                            attempt=attempt,
                            split="test",
                            stage="evaluate",
                            step=9,
                            phase="evaluate",
                            score=draw.choice([0.0, 0.5, 1.0]),
                        )
                    )
        for step in range(1, 4):
            for attempt, score in enumerate([0.0, 1.0]):
                play(log, [score], step=step, attempt=attempt, score=score, calls=2)
            for attempt in range(3):
                play(log, [float(step == 2)], step=step, task="t2", attempt=attempt, score=float(step == 2))
            play(log, [0.5], step=step, task="alone", score=0.5)
        best = [
            play(log, [0.1 * n, 1.0], stage="distill", phase="distill", task=f"d{n}", score=n / 10) for n in range(6)
        ]
        log.demonstrations([t.traj_id or 0 for t in best[:1:-1]])
        log.checkpoint(CheckpointRecord("c0", "x", "sft", 0, "aa"))
        log.checkpoint(CheckpointRecord("c1", "y", "rl-1", 9, "bb", "c0"))
        log.stage("evaluate", "finished")
    return open_warehouse(root), done


def rows(warehouse: Warehouse, name: str, **params: Any) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = warehouse.query(name, **params).pl().to_dicts()
    return answer


def admitted(done: list[Trajectory], gym: str | None = None) -> list[Trajectory]:
    return [t for t in done if t.admitted and gym in (None, t.task.gym)]


def test_gym_scores_and_averages_are_those_of_the_records(played: tuple[Warehouse, list[Trajectory]]) -> None:
    warehouse, done = played
    scores = {row["gym"]: row for row in rows(warehouse, "gym_scores", run="latest")}
    for gym in ("travel", "turtle", "function"):
        mine = [t.score for t in admitted(done, gym)]
        assert scores[gym]["n"] == len(mine)
        assert scores[gym]["rejected"] == 20 - len(mine)
        assert scores[gym]["score"] == pytest.approx(metrics.mean(mine))
    [average] = rows(warehouse, "micro_average")
    assert average["micro_average"] == pytest.approx(metrics.mean([t.score for t in admitted(done)]))
    assert average["n"] == len(admitted(done))


def test_effective_turns_and_time_weighting_are_those_of_the_metrics(
    played: tuple[Warehouse, list[Trajectory]],
) -> None:
    warehouse, done = played
    for name in ("effective_turns", "time_weighted"):
        for row in rows(warehouse, name):
            values = [getattr(metrics, name)(t.rewards) for t in admitted(done, row["gym"])]
            assert row[name] == pytest.approx(metrics.mean(values))
            assert row["n"] == len(values)


def test_turns_that_earned_one_and_four_fifths_are_counted_as_the_released_evaluation_counts_them(
    played: tuple[Warehouse, list[Trajectory]],
) -> None:
    warehouse, done = played
    for row in rows(warehouse, "reward_counts"):
        of_gym = admitted(done, row["gym"])
        assert row["avg_number_of_1"] == pytest.approx(
            metrics.mean([metrics.number_of(1.0, t.rewards) for t in of_gym])
        )
        assert row["avg_number_of_08"] == pytest.approx(
            metrics.mean([metrics.number_of(0.8, t.rewards) for t in of_gym])
        )
        assert row["n"] == len(of_gym)


@pytest.mark.parametrize(
    "text",
    [
        "from reward_counts",
        'select * from "Reward_Counts"',
        "from query_table('reward_' || 'counts')",
        "select 1 from information_schema.tables where table_name = 'reward_counts'",
        "select 1 from duckdb_views() where view_name = 'reward_counts'",
    ],
)
def test_a_shipped_query_is_there_at_its_first_use(tmp_path: Path, text: str) -> None:
    with TurnLog.open(tmp_path, "r1", run_fields={"recipe": "mine"}) as log:
        play(log, [0.5, 1.0], score=1.0, phase="evaluate")
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql("select sum(reward) from turns").fetchall() == [(1.5,)]
        assert len(warehouse.sql(text).fetchall()) == 1
        assert len(warehouse.rows(text)) == 1


def test_a_scratch_view_may_use_a_shipped_query(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        play(log, [0.5, 1.0], score=1.0, phase="evaluate")
    with open_warehouse(tmp_path, read_only=False) as warehouse:
        warehouse.sql("create view mine as from reward_counts")
        assert len(warehouse.sql("from mine").fetchall()) == 1


def test_choices_of_two_trips_are_counted(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r") as log:
        play(log, [0.2, 1.0, 0.8, 0.8], phase="evaluate", task="a")
        play(log, [0.0, 1.0, 0.6], phase="evaluate", task="b")
        play(log, [1.0], phase="train", task="c")
    with open_warehouse(tmp_path) as warehouse:
        [row] = rows(warehouse, "reward_counts")
    assert (row["gym"], row["n"], row["avg_number_of_1"], row["avg_number_of_08"]) == ("travel", 2, 1.0, 1.0)


def test_attempts_at_the_tasks_of_a_tier_are_counted_apart(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r") as log:
        for tier, scores in (("easy", [1.0, 0.5]), ("hard", [0.0, 0.25])):
            for attempt, score in enumerate(scores):
                reason: Any = "success" if score == 1.0 else "gave_up"
                where: dict[str, Any] = {"task": tier, "tier": tier, "attempt": attempt, "stop_reason": reason}
                play(log, [score], score=score, phase="evaluate", **where)
    with open_warehouse(tmp_path) as warehouse:
        found = {(row["gym"], row["tier"]): row for row in rows(warehouse, "at_k", by_tier=True) if row["k"] == 2}
    shown = {key: (row["pass_at_k"], row["earned_at_k"], row["mean_score"]) for key, row in found.items()}
    assert shown == {
        ("travel", "easy"): (1.0, 1.0, 0.75),
        ("travel", "hard"): (0.0, 1.0, 0.125),
        (None, None): (0.5, 1.0, 0.4375),
    }


def test_pass_hat_k_is_that_of_the_metrics(played: tuple[Warehouse, list[Trajectory]]) -> None:
    warehouse, done = played
    estimates = rows(warehouse, "pass_hat_k", threshold=1.0)
    assert {row["k"] for row in estimates} == {1, 2, 3, 4}
    for row in estimates:
        by_task: dict[str, list[bool]] = {}
        for t in admitted(done, row["gym"]):
            by_task.setdefault(t.task.id, []).append((t.score or 0) >= 1.0)
        tried = [task for task in by_task.values() if len(task) >= row["k"]]
        assert row["tasks"] == len(tried)
        assert row["pass_hat_k"] == pytest.approx(metrics.pass_hat_k(tried, row["k"]))


def test_k_attempts_are_those_of_the_metrics(played: tuple[Warehouse, list[Trajectory]]) -> None:
    warehouse, done = played
    estimates = rows(warehouse, "at_k")
    assert {row["k"] for row in estimates} == {1, 2, 3, 4}
    assert {row["gym"] for row in estimates} == {"travel", "turtle", "function", None}
    for row in estimates:
        by_task: dict[str, list[Trajectory]] = {}
        for t in admitted(done, row["gym"]):
            by_task.setdefault(t.task.key, []).append(t)
        tried = [task for task in by_task.values() if len(task) >= row["k"]]
        success = [[t.stop_reason == "success" for t in task] for task in tried]
        scores = [[t.score or 0.0 for t in task] for task in tried]
        assert row["tasks"] == len(tried)
        assert row["pass_at_k"] == pytest.approx(metrics.pass_at_k(success, row["k"]))
        assert row["pass_hat_k"] == pytest.approx(metrics.pass_hat_k(success, row["k"]))
        assert row["best_at_k"] == pytest.approx(metrics.best_at_k(scores, row["k"]))
        assert row["mean_score"] == pytest.approx(metrics.mean([sum(task) / len(task) for task in scores]))


def test_sixty_four_attempts_are_those_of_the_metrics(tmp_path: Path) -> None:
    draw, scores = random.Random(5), []
    with TurnLog.open(tmp_path, "r") as log:
        for task in range(2):
            scores.append([draw.choice([0.0, 0.25, 1.0]) for _ in range(64)])
            for attempt, score in enumerate(scores[-1]):
                reason: Any = "success" if score == 1.0 else "gave_up"
                where: dict[str, Any] = {"phase": "evaluate", "task": f"t{task}", "attempt": attempt}
                play(log, [score], score=score, stop_reason=reason, **where)
    with open_warehouse(tmp_path) as warehouse:
        found = {row["k"]: row for row in rows(warehouse, "at_k") if row["gym"] == "travel"}
    assert list(found) == [*range(1, 9), 16, 32, 64]
    for k, row in found.items():
        success = [[score == 1.0 for score in task] for task in scores]
        assert row["pass_at_k"] == pytest.approx(metrics.pass_at_k(success, k), abs=1e-9)
        assert row["pass_hat_k"] == pytest.approx(metrics.pass_hat_k(success, k), abs=1e-9)
        assert row["best_at_k"] == pytest.approx(metrics.best_at_k(scores, k), abs=1e-9)


def test_learning_curve_and_groups_count_what_was_played(played: tuple[Warehouse, list[Trajectory]]) -> None:
    warehouse, _ = played
    curve = [(row["step"], row["trajectories"], row["score"]) for row in rows(warehouse, "learning_curve")]
    assert curve == [(1, 6, 1.5 / 6), (2, 6, 4.5 / 6), (3, 6, 1.5 / 6)]
    assert {row["gym"] for row in rows(warehouse, "learning_curve")} == {"travel"}
    groups = rows(warehouse, "group_statistics", run="mine")
    columns = ("groups", "too_small", "all_good", "all_bad", "mixed")
    assert [tuple(row[c] for c in columns) for row in groups] == [(3, 1, 0, 1, 1), (3, 1, 1, 0, 1), (3, 1, 0, 1, 1)]


def test_the_learning_curve_has_a_row_for_every_gym_on_request(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r") as log:
        for gym, score in (("travel", 1.0), ("wish", 0.5)):
            play(log, [score], gym=gym, score=score)
    with open_warehouse(tmp_path) as warehouse:
        together = [(row["gym"], row["score"]) for row in rows(warehouse, "learning_curve")]
        apart = [(row["gym"], row["score"]) for row in rows(warehouse, "learning_curve", by_gym=True)]
        one = [(row["gym"], row["score"]) for row in rows(warehouse, "learning_curve", in_gym="wish")]
    assert (together, apart, one) == ([(None, 0.75)], [("travel", 1.0), ("wish", 0.5)], [("wish", 0.5)])


def test_a_greedy_conversation_is_no_member_of_the_group_that_is_compared_with_it(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r") as log:
        for attempt in range(2):
            play(log, [0.5], attempt=attempt)
        play(log, [1.0], phase="baseline")
    columns = ("groups", "too_small", "all_good", "mixed")
    with open_warehouse(tmp_path) as warehouse:
        found = {
            phase: [tuple(row[c] for c in columns) for row in rows(warehouse, "group_statistics", in_phase=phase)]
            for phase in ("train", None)
        }
        [point] = rows(warehouse, "learning_curve")
    assert found == {"train": [(1, 0, 1, 0)], None: [(2, 1, 1, 0)]}
    assert (point["trajectories"], point["return_sum"]) == (2, 0.5)


def test_top_demonstrations_cost_and_status(played: tuple[Warehouse, list[Trajectory]]) -> None:
    warehouse, _ = played
    best = rows(warehouse, "top_demonstrations", per_gym=3)
    assert [(row["rank"], row["task_id"]) for row in best] == [(1, "d5"), (2, "d4"), (3, "d3")]
    [cost] = rows(warehouse, "cost")
    assert (cost["calls"], cost["prompt_tokens"], cost["dollars"]) == (12, 1200, pytest.approx(0.012))
    [status] = rows(warehouse, "run_status")
    assert (status["stage"], status["status"], status["trajectories"], status["superseded"]) == (
        "evaluate",
        "finished",
        84,
        0,
    )
    assert len(rows(warehouse, "stragglers", most=7)) == 7


def test_the_published_table_stands_beside_a_run(played: tuple[Warehouse, list[Trajectory]]) -> None:
    warehouse, _ = played
    beside = [row for row in rows(warehouse, "beside_published", model="Qwen3-8B") if row["gym"] == "travel"]
    assert [(row["turn_shaping"], row["published"]) for row in beside] == [("equalized", 0.573)]
    assert {row["gym"] for row in rows(warehouse, "beside_published")} == {
        "travel",
        "turtle",
        "function",
        "micro_average",
    }


NOT_RECORDED = (
    "not known to agree: tasks, task versions, user prompts, user behaviour, judge, gym settings, agent prompt, agent tool, "
    "temperature, user sampling, max tokens, context limit, format errors, top p"
)


def test_what_was_played_otherwise_than_published_is_never_subtracted(
    played: tuple[Warehouse, list[Trajectory]],
) -> None:
    beside = rows(played[0], "beside_published")
    assert all(row["difference"] is None and not row["comparable"] for row in beside)
    travel = next(row for row in beside if row["gym"] == "travel")
    deviations = (
        "tasks are ours; 5 of 471 test tasks; user rule; horizon 8; 4 attempts; 4 conversations without a score"
    )
    assert travel["why_not"] == f"{deviations}; {NOT_RECORDED}"
    assert (travel["data"], travel["user_model"], travel["horizon"], travel["attempts"]) == ("ours", "rule", 8, 4)
    average = next(row for row in beside if row["gym"] == "micro_average")
    assert average["gyms"] == "3 of 8: function, travel, turtle"
    assert average["why_not"].startswith("3 of the paper's gyms; function: tasks are ours")
    assert len(travel["benchmark_version"]) == 8


def test_nothing_is_subtracted_where_settings_were_not_recorded(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1", run_fields={"shaping": "equalized", "score": "r2g"}) as log:
        for n in range(48):
            task = Task("turtle", f"t{n}", "test", {"n": n}, "published:userrl")
            t = Trajectory(task, 0, 16, 1, RolloutContext("evaluate", 0, "evaluate", "model"), user="gpt-4o")
            log.begin(t)
            t.turns.append(Turn(1, "action", "", "", "", "", 0.5))
            log.turn(t, t.turns[-1])
            t.score, t.stop_reason = 0.25, "success"
            log.end(t)
    with open_warehouse(tmp_path) as warehouse:
        beside = rows(warehouse, "beside_published", of_model="Qwen3-8B")
    turtle = [row for row in beside if row["gym"] == "turtle" and row["section"] == "trained"]
    assert [(row["score"], row["published"], row["why_not"]) for row in turtle] == [(0.25, 0.1854, NOT_RECORDED)]
    assert beside[0]["why_not"] == NOT_RECORDED, "rows without a known deviation come first"
    assert {(row["difference"], row["comparable"]) for row in beside} == {(None, False)}


def as_published(gym: str, table: str) -> dict[str, str]:
    path = Path(reference.__file__).with_name("protocols.csv")
    row = next(r for r in csv.DictReader(path.open()) if (r["published_in"], r["gym"]) == (table, gym))
    return {key: value for key, value in row.items() if key != "published_in"}


def beside(
    tmp_path: Path, gym: str, table: str, suite: str, changed: Mapping[str, str], score: float = 0.25, rejected: int = 0
) -> list[dict[str, Any]]:
    """A run whose stored protocol is a published one with changes, beside that table."""
    fields = {"shaping": "equalized", "score": "r2g", "recipe_json": {"suite": suite}}
    published = as_published(gym, table)
    source, split, count, _ = published["tasks"].split()
    with TurnLog.open(tmp_path, "r1", run_fields=fields) as log:
        log.protocols([{**published, **changed, "policy": "model", "checkpoint": None, "protocol_hash": "h"}])
        for n in range(int(count)):
            task = Task(gym, f"t{n}", split, {"n": n}, source)
            attempts = range(int(published["attempts"]))
            for attempt in attempts:
                context = RolloutContext("evaluate", 0, "evaluate", "model")
                user = changed.get("user_model", published["user_model"])
                t = Trajectory(task, attempt, int(published["horizon"]), 1, context, user=user)
                log.begin(t)
                t.turns.append(Turn(1, "action", "", "", "", "", score))
                log.turn(t, t.turns[-1])
                t.score, t.stop_reason = score, "success" if score >= 1 else "horizon"
                if n < rejected:
                    t.admitted, t.reject_reason, t.score = False, "user: down", None
                log.end(t)
    with open_warehouse(tmp_path) as warehouse:
        return rows(warehouse, "beside_published")


def test_a_difference_is_computed_where_every_setting_is_the_published_one(tmp_path: Path) -> None:
    turtle = beside(tmp_path, "turtle", "UserRL table 3", "userrl-table3:released+prompts", {})
    trained = [
        row
        for row in turtle
        if row["section"] == "trained" and row["published_model"] == "Qwen3-8B" and row["gym"] == "turtle"
    ]
    assert [(row["comparable"], row["why_not"], round(row["difference"], 4)) for row in trained] == [(True, "", 0.0646)]
    average = next(row for row in turtle if row["gym"] == "micro_average")
    assert not average["comparable"], "one gym of eight"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"user_model": "gpt-4o-mini"}, "user gpt-4o-mini"),
        ({"user_prompts": "ours 00000000"}, "user prompts ours 00000000 (published: released 1688d988)"),
        ({"temperature": "0.7"}, "temperature 0.7 (published: 0.0)"),
        ({"gym_settings": "{}"}, "settings of the gym"),
        ({"task_versions": "0"}, "versions of the tasks"),
        ({"agent_tool": "native auto"}, "agent tool native auto (published: interact auto 271dc749)"),
    ],
)
def test_what_differs_is_named_and_nothing_is_subtracted(tmp_path: Path, changed: Mapping[str, str], why: str) -> None:
    turtle = beside(tmp_path, "turtle", "UserRL table 3", "userrl-table3", changed)
    assert {(row["comparable"], row["difference"], row["why_not"]) for row in turtle if row["gym"] == "turtle"} == {
        (False, None, why)
    }


def test_conversations_without_a_score_forbid_a_difference(tmp_path: Path) -> None:
    turtle = beside(tmp_path, "turtle", "UserRL table 3", "userrl-table3", {}, rejected=2)
    assert {(row["comparable"], row["why_not"]) for row in turtle if row["gym"] == "turtle"} == {
        (False, "2 conversations without a score")
    }


def test_a_run_of_tarls_suite_stands_beside_pass_hat_k_of_its_table(tmp_path: Path) -> None:
    tau = beside(tmp_path, "tau", "TARL tables 1 and 2, airline", "tarl-airline", {"user_prompts": "ours 1"}, score=1.0)
    pass_4 = [row for row in tau if row["metric"] == "pass^4" and row["published_model"] == "GPT-4.1"]
    assert [(row["score"], row["published"], row["published_in"]) for row in pass_4] == [
        (1.0, 0.24, "TARL tables 1 and 2, airline")
    ]
    assert pass_4[0]["why_not"].startswith("user prompts ours 1 (published: released ")
    assert "not known to agree: agent prompt, agent tool, temperature" in pass_4[0]["why_not"]


def test_every_table_of_the_four_papers_has_a_protocol_for_each_of_its_gyms(
    played: tuple[Warehouse, list[Trajectory]],
) -> None:
    warehouse, _ = played
    tables = {(row["published_in"], row["gym"]) for row in rows(warehouse, "published_scores")}
    protocols = {(row["published_in"], row["gym"]) for row in rows(warehouse, "published_protocols")}
    without = {gym for _, gym in tables - protocols}
    assert without == {"micro_average", "webarena"}, "an average has none, and no WebArena was driven"


def test_the_per_gym_figures_give_the_fifteen_published_micro_averages(
    played: tuple[Warehouse, list[Trajectory]],
) -> None:
    averages = rows(played[0], "published_micro_average")
    assert len(averages) == 15
    assert max(abs(row["difference"]) for row in averages) < 1e-4


def test_a_score_leads_back_to_run_checkpoint_demonstrations_and_task(
    played: tuple[Warehouse, list[Trajectory]],
) -> None:
    warehouse, done = played
    lineages = {row["traj_id"]: row for row in rows(warehouse, "lineage", run="r1")}
    row = lineages[done[0].traj_id or 0]
    assert (row["checkpoint"], row["sha256"], row["checkpoints"]) == ("c1", "bb", ["c1", "c0"])
    assert (row["demonstrations"], row["demonstration_score"]) == (4, pytest.approx(0.35))
    assert len(row["task_version"]) == 16


def test_turns_know_how_their_trajectory_ended(played: tuple[Warehouse, list[Trajectory]]) -> None:
    warehouse, done = played
    counted = warehouse.sql(
        "SELECT count(*), count(reject_reason) FROM turn_details WHERE phase = 'evaluate'"
    ).fetchall()
    rejected = [t for t in done if not t.admitted]
    assert counted == [(sum(len(t.turns) for t in done), sum(len(t.turns) for t in rejected))]


def test_every_query_is_a_view_as_well_unless_it_needs_a_parameter(played: tuple[Warehouse, list[Trajectory]]) -> None:
    warehouse, _ = played
    for name, query in warehouse.queries().items():
        assert len(query.doc) > 20
        if None not in query.params.values():
            assert warehouse.sql(f"FROM {name}").columns == warehouse.query(name).columns


def test_userbenchs_auxiliary_metrics(tmp_path: Path) -> None:
    aspect = {"preferences": [{"id": "p1"}, {"id": "p2"}]}
    task = Task("travel", "trip", "test", {"aspects": {"hotel": aspect, "flight": aspect}})
    infos: list[dict[str, Any]] = [
        {"utterance": "held", "preference": "p1", "elicited": "active"},
        {"utterance": "too_vague", "preference": "p2", "elicited": "passive"},
        {"search": "match"},
        {"search": "wrong"},
        {"search": "failed"},
        {"choices": {"H1": "correct", "F3": "best", "F4": "wrong"}},
    ]
    with TurnLog.open(tmp_path, "r1") as log:
        log.tasks([task])
        t = Trajectory(task, 0, 8, 1, RolloutContext("evaluate", 0, "evaluate", "model"))
        log.begin(t)
        for number, info in enumerate(infos, 1):
            t.turns.append(Turn(number, "action", "", "", "", "", 0.0, info=info))
            log.turn(t, t.turns[-1])
        t.score, t.stop_reason = 0.9, "success"
        log.end(t)
    with open_warehouse(tmp_path) as warehouse:
        [row] = rows(warehouse, "userbench")
    assert (row["n"], row["score"]) == (1, 0.9)
    assert (row["best_exist"], row["correct_exist"]) == (0.5, 1.0)
    assert (row["valid_search"], row["valid_action"]) == (0.5, 0.5)
    assert (row["elicited"], row["active"], row["passive"]) == (0.5, 0.25, 0.25)


async def test_wish_outcomes_and_tier_scores_are_those_of_the_conversations(tmp_path: Path) -> None:
    chosen = [task for size in (1, 3) for task in list(tasks("wish", "test", sizes=[size]))[:6]]
    with TurnLog.open(tmp_path, "r1") as log:
        played = await run_episodes(
            chosen,
            ScriptedPolicy(0.6),
            horizon=6,
            sink=log,
            user=("rule", {"manner": "vague"}),
            context=RolloutContext(stage="evaluate", phase="evaluate", policy="p"),
        )
    told = [max((turn.info["told"] / turn.info["wished"] for turn in t.turns), default=0.0) for t in played]
    answered = [t.stop_reason != "horizon" for t in played]
    assert 0 < sum(answered) < len(played)
    with open_warehouse(tmp_path) as warehouse:
        [row] = rows(warehouse, "wish_outcomes")
        tiers = {row["tier"]: row for row in rows(warehouse, "tier_scores")}
    assert (row["n"], row["told"]) == (12, pytest.approx(metrics.mean(told)))
    assert row["answered_early"] == metrics.mean([float(a and s < 1) for a, s in zip(answered, told, strict=True)])
    assert row["never_answered"] == metrics.mean([float(not a) for a in answered])
    for size in (1, 3):
        scores = [t.score for t in played if t.task.tier == f"size-{size}"]
        assert (tiers[f"size-{size}"]["n"], tiers[f"size-{size}"]["score"]) == (6, pytest.approx(metrics.mean(scores)))


async def test_the_two_verdicts_of_tau_are_counted_and_conversations_where_they_differ_are_named(
    tmp_path: Path,
) -> None:
    pool = tasks("tau", "test", domain="outfitter", tier="tiny")[:12]
    with TurnLog.open(tmp_path, "r1") as log:
        played = await run_episodes(
            pool,
            ScriptedPolicy(0.8),
            horizon=8,
            sink=log,
            context=RolloutContext(stage="evaluate", phase="evaluate", policy="p"),
        )
    right = [t for t in played if t.score == 1.0]
    assert 0 < len(right) < len(played)
    right[0].turns[-1].info["writes_right"] = False
    with TurnLog.open(tmp_path, "r2") as log:
        log.begin(right[0])
        for turn in right[0].turns:
            log.turn(right[0], turn)
        log.end(right[0])
    with open_warehouse(tmp_path) as warehouse:
        first, second = rows(warehouse, "tau_verdicts")
    assert (first["n"], first["score"]) == (12, pytest.approx(len(right) / 12))
    assert (first["writes_right"], first["database_right"]) == (len(right), len(right))
    assert (first["disagreements"], first["apart"]) == (0, None)
    assert (second["writes_right"], second["database_right"], second["disagreements"]) == (0, 1, 1)
    assert len(second["apart"]) == 1


async def test_the_timing_of_choices_preferences_and_replies_are_those_of_the_metrics(tmp_path: Path) -> None:
    chosen = list(tasks("travel", "test")[:12])
    with TurnLog.open(tmp_path, "r1") as log:
        log.tasks(chosen)
        played = await run_episodes(
            chosen,
            ScriptedPolicy(0.7),
            horizon=12,
            n=2,
            sink=log,
            context=RolloutContext(stage="evaluate", phase="evaluate", policy="p"),
        )
    with open_warehouse(tmp_path) as warehouse:
        [choice] = rows(warehouse, "first_choice")
        [reply] = rows(warehouse, "replies")
        aspects = {row["aspect"]: row for row in rows(warehouse, "aspect_preferences")}
        compositions = {row["composition"]: row for row in rows(warehouse, "composition_scores")}
    made = [([turn.choice for turn in t.turns], t.rewards) for t in played]
    index = [metrics.first_choice(choices, rewards) for choices, rewards in made]
    assert 0 < index.count(0) < len(index)
    assert choice["first_index"] == pytest.approx(metrics.mean(index))
    assert choice["first_index_found"] == pytest.approx(metrics.mean([i for i in index if i]))
    assert choice["weighted_score"] == pytest.approx(metrics.mean([metrics.weighted_score(*pair) for pair in made]))
    assert choice["found"] == pytest.approx(metrics.mean([float(bool(i)) for i in index]))
    assert reply["waits"] == metrics.mean([float(sum(waits(turn.message) for turn in t.turns)) for t in played])
    for name, row in compositions.items():
        own = [t for t in played if t.task.payload["composition"] == name]
        assert (row["n"], row["preferences"]) == (len(own), sum(map(int, name)))
        assert row["score"] == pytest.approx(metrics.mean([t.score for t in own]))
        means = [metrics.mean([t.score for t in own if t.task.id == key]) for key in {t.task.id for t in own}]
        error = statistics.stdev(means) / len(means) ** 0.5 if len(means) > 1 else None
        assert row["standard_error"] == pytest.approx(error)
    assert any(row["standard_error"] for row in compositions.values())
    assert sum(row["n"] for row in compositions.values()) == len(played)
    shares: dict[str, list[tuple[int, dict[str, float]]]] = {}
    for t in played:
        held = {p["id"]: name for name, part in t.task.payload["aspects"].items() for p in part["preferences"]}
        for name, share in metrics.preferences_by_aspect([turn.info for turn in t.turns], held).items():
            shares.setdefault(name, []).append((list(held.values()).count(name), share))
    assert set(aspects) == set(shares)
    for name, found in shares.items():
        preferences = sum(count for count, _ in found)
        assert aspects[name]["preferences"] == preferences
        for way in ("elicited", "active", "passive"):
            expected = sum(count * share[way] for count, share in found) / preferences
            assert aspects[name][way] == pytest.approx(expected)


@pytest.mark.parametrize("gym", ["errand", "wish"])
async def test_one_evaluation_at_a_generous_horizon_gives_the_score_at_every_shorter_one(
    gym: str, tmp_path: Path
) -> None:
    user = ("rule", {"manner": "vague"}) if gym == "wish" else "rule"
    chosen = list(tasks(gym, "test"))[:40]

    def play_at(horizon: int, log: TurnLog | None = None) -> Any:
        where = RolloutContext(stage="evaluate", phase="evaluate", policy="p")
        return run_episodes(
            chosen, ScriptedPolicy(0.7), horizon=horizon, sink=log, user=user, context=where, prompt_style="brief"
        )

    with TurnLog.open(tmp_path, "r1") as log:
        await play_at(20, log)
    with open_warehouse(tmp_path) as warehouse:
        by_turns = {row["turns_allowed"]: row for row in rows(warehouse, "score_by_turns") if row["tier"] is None}
    assert sorted(by_turns) == list(range(1, 21))
    assert by_turns[20]["solved"] > by_turns[6]["solved"] > 0
    for horizon in range(1, 21):
        there = metrics.mean([t.score for t in await play_at(horizon)])
        assert (by_turns[horizon]["n"], by_turns[horizon]["solved"]) == (40, pytest.approx(there))


def test_a_gym_without_tiers_has_each_number_of_turns_once(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        play(log, [1.0], gym="errand", task="t1", tier="", score=1.0, stop_reason="success", phase="evaluate")
        play(log, [1.0], gym="wish", task="t1", tier="easy", score=1.0, stop_reason="success", phase="evaluate")
    with open_warehouse(tmp_path) as warehouse:
        found = [(row["gym"], row["tier"]) for row in rows(warehouse, "score_by_turns") if row["turns_allowed"] == 1]
    assert found == [("errand", None), ("wish", None), ("wish", "easy")]


def test_the_training_log_adds_up_what_steps_cost_along_each_branch(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        for stage, step, tokens in (("rl-1", 1, 10.0), ("rl-1", 2, 20.0), ("rl-2-a", 3, 3.0), ("rl-3-b", 3, 5.0)):
            costs = {"tokens/all/sum": tokens, "rollout/attempts/count": 4.0, "seconds/cpu/sum": 0.5}
            log.metrics(costs | {"rollout/entropy/mean": 0.25}, stage=stage, step=step)
        log.metrics({"validate/attempts/count": 7.0}, stage="rl-1", step=2)
    with open_warehouse(tmp_path) as warehouse:
        found = rows(warehouse, "training_log", run="r1")
    assert [(row["stage"], row["step"], row["all_tokens_so_far"], row["episodes_so_far"]) for row in found] == [
        ("rl-1", 1, 10.0, 4.0), ("rl-1", 2, 30.0, 8.0), ("rl-2-a", 3, 33.0, 12.0), ("rl-3-b", 3, 35.0, 12.0),
    ]  # fmt: skip
    assert (found[1]["validation_episodes"], found[1]["cpu_seconds_so_far"], found[1]["entropy"]) == (7.0, 1.0, 0.25)


def test_forgetting_is_the_fall_from_a_gyms_best_validation_to_its_last(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        for stage, step, score in (("rl-1", 0, 0.25), ("rl-1", 4, 1.0), ("rl-2-a", 8, 0.5), ("rl-3-b", 8, 0.75)):
            play(log, [score], gym="wish", phase="validate", stage=stage, step=step, score=score)
    with open_warehouse(tmp_path) as warehouse:
        found = rows(warehouse, "forgetting")
    assert [tuple(row.values()) for row in found] == [
        ("r1", "a", "wish", 1.0, 4, 0.5, 8, 0.5), ("r1", "b", "wish", 1.0, 4, 0.75, 8, 0.25),
    ]  # fmt: skip


def test_what_was_said_by_step_is_counted_by_choice(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        play(log, [0.0, 1.0], step=1, text="Which area?")
        play(log, [0.0, 1.0, 0.0], step=1, attempt=1, text="high")
        play(log, [1.0], step=2)
        play(log, [1.0], step=2, phase="validate")
    with open_warehouse(tmp_path) as warehouse:
        rows = warehouse.sql("SELECT step, choice, n, turn_share, commonest FROM reply_choices(run := 'r1')").fetchall()
    assert rows == [(1, "action", 5, 1.0, "high"), (2, "action", 1, 1.0, "hello")]


def test_the_curriculum_is_told_by_step_and_tier(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        for attempt, won in enumerate((True, False, True, None)):
            stop = "error" if won is None else "success" if won else "horizon"
            score = None if won is None else float(won)
            play(log, [score], gym="errand", task="t1", tier="depth 1", attempt=attempt, score=score, stop_reason=stop)
        for task in ("t2", "t3", "t4"):
            play(log, [0.0], gym="errand", task=task, tier="depth 2", score=0.0, stop_reason="horizon")
        play(log, [1.0], gym="wish", step=2)
        log.metrics(
            {"sampler/errand.depth 1/pass_rate": 0.6, "sampler/errand.depth 2/pass_rate": 0.25}, stage="rl-1", step=1
        )
    with open_warehouse(tmp_path) as warehouse:
        rows = warehouse.sql(
            "SELECT step, gym, tier, tasks, trajectories, round(success, 3), draw_share, estimate FROM curriculum(run := 'r1')"
        ).fetchall()
    assert rows == [
        (1, "errand", "depth 1", 1, 3, 0.667, 0.25, 0.6),
        (1, "errand", "depth 2", 3, 3, 0.0, 0.75, 0.25),
        (2, "wish", "", 1, 1, 1.0, 1.0, None),
    ]
