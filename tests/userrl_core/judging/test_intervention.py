"""Interventions: a wrong write is interrupted before it is carried out, at most twice in one reasoning step (TARL 5.2)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.mock_server import Answer, MockServer
from tests.userrl_core.judging.desk import call, gold, task_with
from userrl_core.episode import Episode, EpisodeRules
from userrl_core.gyms import make
from userrl_core.interact import InteractCall, render_call
from userrl_core.judging.config import InterventionConfig
from userrl_core.judging.intervention import StepVerifier
from userrl_core.records import Flag, PolicyReply, Task
from userrl_core.served.client import close_clients

SENTENCE = InterventionConfig().text


async def play(
    task: Task, replies: Sequence[InteractCall], horizon: int = 30, verifier: StepVerifier | None = None
) -> tuple[Episode, list[str]]:
    """The episode after these replies, and what the agent found after each."""
    gym = make("tau", task, check_outputs=False)
    episode = Episode(gym, EpisodeRules(horizon, on_format_error="continue"))
    episode.verifier = verifier or StepVerifier(InterventionConfig(model="rule"))
    episode.start()
    shown = []
    for reply in replies:
        new = await episode.submit(PolicyReply(text=render_call(reply, ""), completion_tokens=5))
        shown.append(str(new[0]["content"]) if new else "")
        if not new:
            break
    return episode, shown


def wrong_write(task: Task) -> InteractCall:
    """A write that would succeed and that nobody wants."""
    key = next(a["kwargs"]["booking_id"] for a in task.payload["actions"] if a["name"] == "move_booking")
    return call("cancel_booking", booking_id=key, reason="weather")


async def test_gold_conversations_are_never_interrupted() -> None:
    task = task_with("move_booking")
    episode, shown = await play(task, gold(task))
    assert SENTENCE not in shown
    assert episode.trajectory.stop_reason == "success"


async def test_a_wrong_write_is_interrupted_twice_and_then_carried_out() -> None:
    task = task_with("move_booking")
    wrong = wrong_write(task)
    episode, shown = await play(task, [wrong, wrong, wrong, *gold(task)])
    assert shown[:2] == [SENTENCE, SENTENCE]
    assert shown[2] != SENTENCE
    first = episode.trajectory.turns[0]
    assert (first.number, first.content, first.info["write"]) == (1, wrong.content, True)
    assert first.info["interrupted"] == [render_call(wrong, "")] * 2
    assert first.completion_tokens == 15, "what the interrupted attempts cost is the turn's"
    assert "interrupted" not in episode.trajectory.turns[1].info


async def test_a_step_that_was_put_right_after_an_interruption_wins() -> None:
    task = task_with("move_booking")
    lines = gold(task)
    episode, shown = await play(task, [wrong_write(task), *lines])
    assert shown[0] == SENTENCE
    assert episode.trajectory.stop_reason == "success"
    assert len(episode.trajectory.turns) == len(lines), "an interrupted attempt counts against no horizon"


async def test_a_conversation_that_ends_at_an_interruption_keeps_what_was_sampled_as_a_turn() -> None:
    task = task_with("move_booking")
    episode, _ = await play(task, [wrong_write(task)])
    episode.out_of_tokens()
    (turn,) = episode.trajectory.turns
    assert (episode.trajectory.stop_reason, turn.reward, turn.observation) == ("length", 0.0, SENTENCE)
    assert turn.flags & Flag.LENGTH
    assert episode.gym.writes == []


@pytest.mark.parametrize(("verdict", "interrupted"), [("wrong", True), ("fine", False), ("perhaps", False)])
async def test_a_served_verifier_sees_gold_calls_and_the_next_step(verdict: str, interrupted: bool) -> None:
    task = task_with("move_booking")
    question = InteractCall("action", "Shall I cancel everything?")
    with MockServer(lambda body: Answer(json.dumps({"thought": "", "verdict": verdict}))) as server:
        options: dict[str, Any] = {"base_url": server.base_url, "retries": 1, "backoff": 0.0}
        verifier = StepVerifier(InterventionConfig(model="gpt-4.1", most=1, options=options))
        episode, shown = await play(task, [question, question], verifier=verifier)
        await close_clients()
        prompt = server.texts()[0]
    assert (shown[0] == SENTENCE) == interrupted
    assert task.payload["instruction"] in prompt
    assert json.dumps(task.payload["actions"][-1]["kwargs"]) in prompt
    assert "Shall I cancel everything?" in prompt.split("# The next step")[1]
    calls = [each for turn in episode.trajectory.turns for each in turn.model_calls]
    assert {each.role for each in calls} == {"judge"}, "every asking is in the ledger"
