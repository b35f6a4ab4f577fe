"""Facts that pages take from the warehouse: opening words, published figures, tokens, colours of credit."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from nicegui import Client
from nicegui.page import page

from flows.page.ask import Question
from flows.page.charts import BAD, COLORS, GOOD, turn_bars
from flows.page.conversation.token_probabilities import token_rows
from flows.page.published import evaluated_gyms
from flows.page.runs import run_rows
from flows.page.trajectories import newest_evaluation
from tests.warehouse.makers import play
from userrl.reports.wording import opening_words, sentences_of
from warehouse import TurnLog, open_warehouse
from warehouse.files.runs import find_run
from warehouse.query.browse import Filter, count, spread_groups


def messages(*texts: str) -> str:
    return json.dumps([{"role": "system", "content": "You help."}, *({"role": "user", "content": t} for t in texts)])


def test_a_task_is_named_by_the_first_words_of_its_user() -> None:
    assert opening_words(messages("I need\na hotel.", "And a car."), "t1") == "I need a hotel."
    assert opening_words(messages("one two three"), "t1", longest=9) == "one two …"
    assert opening_words(messages("one two three"), "t1", longest=7) == "one two …"
    assert opening_words(messages("x" * 99), "t1", longest=5) == "xxxxx …"
    assert [opening_words(stored, "t1") for stored in (messages(), None, "[]")] == ["t1"] * 3


def test_the_later_of_two_questions_gets_the_place_of_the_answer(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        play(log, [1.0])

    async def asked() -> list[str]:
        with open_warehouse(tmp_path) as warehouse, Client(page("/"), request=None):
            question = Question(warehouse, "SELECT 11 AS first")
            await question.build()
            earlier = asyncio.ensure_future(question._ask())
            await asyncio.sleep(0)
            question._box.set_value("SELECT 22 AS later, 33 AS too")
            await asyncio.gather(earlier, question._ask())
            return [str(element.props.get("columns", "")) for element in question._place.descendants()]

    tables = [columns for columns in asyncio.run(asked()) if columns]
    assert len(tables) == 1
    assert "later" in tables[0]


def test_a_task_is_told_in_sentences() -> None:
    task = {
        "wished": {"hat": "red", "coat": "blue"},
        "order": ["fig", "gum"],
        "min_turns": 4,
        "asks": [{"a": 1}, {"b": True}],
    }
    assert sentences_of(task | {"database": None}) == [
        "Wished: hat red; coat blue.",
        "Order: fig, gum.",
        "Min turns: 4.",
        "Asks: a 1 | b yes.",
    ]


def test_a_list_opens_on_the_newest_evaluation_of_a_trained_model_and_has_no_mean_over_unlike_scores(
    tmp_path: Path,
) -> None:
    for created, run in enumerate(("r1", "r2", "r3")):
        with TurnLog.open(tmp_path, run, run_fields={"name": run, "created": created}) as log:
            play(log, [1.0], score=0.25)
            for policy in ("SFT", "longer") if run != "r3" else ():
                play(log, [1.0], policy=policy, phase="evaluate", score=0.5)
                play(log, [1.0], policy=policy, phase="evaluate", score=1.0, task="t2")
    with open_warehouse(tmp_path) as warehouse:
        newest = newest_evaluation(warehouse)
        assert newest == {"run": "r2", "phase": "evaluate", "policy": "longer"}
        assert count(warehouse, Filter.read(newest)) == {"trajectories": 2, "score": 0.75}
        assert count(warehouse, Filter.read({"run": "r2"})) == {"trajectories": 5, "score": None}


def test_newer_audits_and_evaluations_follow_the_trained_runs_and_are_never_the_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    names = ("first", "second", "audit-credit-0123456789", "evaluate-second")
    for created, name in enumerate(names):
        with TurnLog.open(tmp_path / "warehouse", f"r-{name}", run_fields={"name": name, "created": created}):
            pass
    with open_warehouse(tmp_path / "warehouse") as warehouse:
        listed = [row["run"] for row in run_rows(warehouse)]
    assert listed == ["r-second", "r-first", "r-evaluate-second", "r-audit-credit-0123456789"]
    assert find_run(tmp_path / "warehouse", "latest")["run_id"] == "r-second"


def test_each_gym_and_stage_has_its_widest_group_alone(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        for stage, gym, step, low in (
            ("rl-1", "travel", 1, 0.5), ("rl-1", "travel", 2, 0.0), ("rl-1", "travel", 3, 0.5),
            ("rl-1", "tau", 3, 0.25), ("rl-2", "travel", 4, 0.0), ("rl-2", "travel", 5, 0.0),
        ):  # fmt: skip
            for attempt, score in enumerate((low, 1.0)):
                play(log, [score], stage=stage, gym=gym, step=step, attempt=attempt, score=score)
        log.flush()
        with open_warehouse(tmp_path) as warehouse:
            groups = spread_groups(warehouse, "r1")
    assert [(row["stage"], row["gym"], row["step"], row["apart"]) for row in groups] == [
        ("rl-2", "travel", 5, 1.0),
        ("rl-1", "travel", 2, 1.0),
        ("rl-1", "tau", 3, 0.75),
    ]
    assert all(json.loads(row["messages"]) for row in groups)


def test_gyms_with_published_figures_are_told_from_others(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        for gym in ("errand", "travel", "wish"):
            play(log, [1.0], gym=gym, phase="evaluate")
        play(log, [1.0], gym="turtle")
        log.flush()
        with open_warehouse(tmp_path) as warehouse:
            assert evaluated_gyms(warehouse, "r1") == (["travel"], ["errand", "wish"])


def test_tokens_have_their_probabilities_also_without_a_tokenizer() -> None:
    turn = {"token_ids": [7, 9], "logprobs": [0.0, -1.0]}
    rows = token_rows("no-such-run", turn)
    assert [(row["token"], row["token_id"], row["logprob"], row["probability"]) for row in rows] == [
        ("", 7, "0.000", "1.000"),
        ("", 9, "−1.000", "0.368"),
    ]


def test_the_legend_has_the_colours_of_the_bars() -> None:
    series = turn_bars([1, 2], {"reward": [0.5, None], "shaped": [1.0, 1.0], "advantage": [2.0, -1.0]})["series"]
    assert [(bars["name"], bars["itemStyle"]["color"], bars["data"]) for bars in series] == [
        ("Reward", COLORS[0], [0.5, None]),
        ("Shaped credit", COLORS[1], [1.0, 1.0]),
        ("Advantage, positive", GOOD, [2.0, None]),
        ("Advantage, negative", BAD, [None, -1.0]),
    ]
