"""``userrl audit grounded``: grounded and lucky success in the gyms that count what was told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from analysis.measure.grounded import Answered
from flows.cli.measuring.audit import grounded
from tests.makers import raises
from tests.userrl.evaluation.demonstrated import demonstrated
from userrl.audits.grounded import answered, audit_grounded
from userrl_core.gyms import tasks
from userrl_core.gyms.base import parse_config
from userrl_core.gyms.registry import gym_class
from userrl_core.interact import InteractCall, render_call
from userrl_core.records import Message, PolicyReply, Task
from userrl_core.rollout import run_episodes


class Plays:
    """A policy that makes given calls, one a turn."""

    name = "plays"

    def __init__(self, calls: Sequence[InteractCall]) -> None:
        self._calls = iter(calls)

    def session(self, gym: Any, seed: int) -> Plays:
        return self

    async def act(self, new: Sequence[Message]) -> PolicyReply:
        return PolicyReply(text=render_call(next(self._calls)))


async def played(task: Task, calls: Sequence[InteractCall]) -> Answered:
    (talk,) = await run_episodes([task], Plays(calls), horizon=len(calls))
    return answered(talk)


def gold(gym: str, **options: Any) -> tuple[Task, list[InteractCall]]:
    task = tasks(gym, "train", **options)[0]
    kind = gym_class(gym)
    return task, list(kind.gold(task, parse_config(kind, {})))


@pytest.mark.parametrize(
    ("gym", "options"),
    [("wish", {"sizes": [3]}), ("errand", {"depths": [2]}), ("travel", {"tier": "tiny"}), ("intention", {})],
)
async def test_the_reference_solution_is_grounded_and_is_the_oracle(gym: str, options: dict[str, Any]) -> None:
    task, calls = gold(gym, **options)
    found = await played(task, calls)
    assert (found.grounded, found.lucky, found.turn) == (True, False, len(calls))
    assert found.oracle_turns == len(calls)
    assert len(found.question_turns) == found.needed


@pytest.mark.parametrize(("gym", "options"), [("wish", {"sizes": [3]}), ("travel", {"tier": "tiny"})])
async def test_a_right_answer_without_a_question_is_lucky(gym: str, options: dict[str, Any]) -> None:
    task, calls = gold(gym, **options)
    found = await played(task, [call for call in calls if call.choice != "action"])
    assert (found.grounded, found.lucky, found.question_turns) == (False, True, ())


async def test_a_raw_thing_that_was_fetched_unasked_is_lucky() -> None:
    task, calls = gold("errand", depths=[2])
    last = task.payload["chain"][-1]
    found = await played(task, [call for call in calls if call != InteractCall("action", last)])
    assert (found.grounded, found.lucky, len(found.question_turns)) == (False, True, found.needed - 1)


async def test_a_failure_is_neither_and_never_answered() -> None:
    task, calls = gold("wish", sizes=[3])
    found = await played(task, calls[:-1])
    assert (found.grounded, found.lucky, found.turn, found.needed) == (False, False, None, 3)


def test_the_command_shows_every_agent_and_names_gyms_that_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = demonstrated(tmp_path, ["wish", "turtle"])
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    grounded(run, html=str(tmp_path / "page.html"))
    said = capsys.readouterr().out
    assert "Not counted: turtle." in said
    grounded(run, as_json=True)
    (agent,) = json.loads(capsys.readouterr().out)["agents"]
    assert (agent["gym"], agent["conversations"]) == ("wish", 10)
    between = agent["limits"]["between"]
    assert 0 <= between["low"] <= between["estimate"] <= between["high"] < 1
    assert "<svg" in (tmp_path / "page.html").read_text()
    with raises("run.no_conversations", "--phase"):
        audit_grounded(run, phase="train")
