"""model.turns_left: what the agent is shown, what is stored, and what SFT learns from."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from tests.warehouse.makers import play
from userrl_core.distill import to_chat
from userrl_core.episode import Episode, EpisodeRules
from userrl_core.gyms import make, tasks
from userrl_core.gyms.prompt import EpisodeStyle, number_word
from userrl_core.interact import InteractCall, render_call
from userrl_core.policies.scripted import ScriptedPolicy, _ScriptedSession
from userrl_core.records import Flag, PolicyReply, RolloutContext, Trajectory
from userrl_core.rollout import run_episodes
from userrl_core.training.local.text.tokenizer import train_tokenizer
from warehouse import TurnLog, open_warehouse
from warehouse.upkeep.exchange.conversations import conversations

ASKED = PolicyReply(render_call(InteractCall("search", "")))


def shown(style: EpisodeStyle, horizon: int, turns_left: bool, replies: int = 2) -> tuple[list[str], Trajectory]:
    """Return the last text of the opening and the text after each reply, and the trajectory."""

    async def conversation() -> tuple[list[str], Trajectory]:
        task = tasks("wish", "train")[0]
        prompt = {"prompt": [{"role": "user", "content": "Hi"}]} if style == "released" else {}
        gym = make("wish", replace(task, payload={**task.payload, **prompt}))
        rules = EpisodeRules(horizon, "continue", prompt_style=style, turns_left=turns_left)
        episode = Episode(gym, rules, context=RolloutContext(phase="evaluate"))
        texts = [(await episode.begin())[-1]["content"]]
        for _ in range(replies):
            texts += [message["content"] for message in await episode.submit(ASKED)]
        await gym.aclose()
        return texts, episode.trajectory

    return asyncio.run(conversation())


@pytest.mark.parametrize(
    ("style", "notes"),
    [("brief", (" twentyone", " twenty", " nineteen")), ("full", ("\n(21 turns left)", "\n(20 turns left)", "\n(19 turns left)"))],
)  # fmt: skip
def test_each_message_says_how_many_turns_are_left(style: EpisodeStyle, notes: tuple[str, ...]) -> None:
    plain, before = shown(style, 21, False)
    told, trajectory = shown(style, 21, True)
    assert told == [text + note for text, note in zip(plain, notes, strict=True)]
    assert [turn.observation for turn in trajectory.turns] == [turn.observation for turn in before.turns]
    assert [turn.flags & Flag.TURNS_LEFT for turn in trajectory.turns] == [Flag.TURNS_LEFT] * 2
    assert not any(turn.flags & Flag.TURNS_LEFT for turn in before.turns)


@pytest.mark.parametrize("gym", ["errand", "telepathy"])
def test_a_demonstrator_plays_as_without_the_note(gym: str) -> None:
    told, plain = (
        asyncio.run(run_episodes(tasks(gym, "train")[:4], ScriptedPolicy(1.0), horizon=12, turns_left=turns_left))
        for turns_left in (True, False)
    )
    assert [trajectory.score for trajectory in told] == [1.0] * 4
    assert [[turn.message for turn in t.turns] for t in told] == [[turn.message for turn in t.turns] for t in plain]


def test_a_demonstrator_reads_the_opening_without_the_note() -> None:
    class Listener:
        def act(self, observation: str) -> InteractCall:
            self.heard = observation
            return InteractCall("search", "")

    listener = Listener()
    asyncio.run(_ScriptedSession(listener).act([{"role": "user", "content": "Goal: craft torch.\n(6 turns left)"}]))
    assert listener.heard == "Goal: craft torch."


def test_the_last_turn_is_told_as_one() -> None:
    texts, _ = shown("full", 3, True)
    assert [text.rpartition("\n")[2] for text in texts] == ["(3 turns left)", "(2 turns left)", "(1 turn left)"]
    assert shown("brief", 120, True)[0][0].endswith(" many")


@pytest.mark.parametrize("style", ["brief", "full", "released"])
def test_a_demonstration_is_learnt_as_it_was_shown(style: EpisodeStyle) -> None:
    told, trajectory = shown(style, 5, True, replies=3)
    said = [message["content"] for message in to_chat(trajectory)["messages"] if message["role"] in ("user", "tool")]
    assert said == told[:3]  # no reply follows the last observation


def test_an_export_has_the_chat_as_the_agent_saw_it(tmp_path: Path) -> None:
    few = tasks("wish", "test")[:1]
    with TurnLog.open(tmp_path, "r1") as log:
        [played] = asyncio.run(run_episodes(few, ScriptedPolicy(1.0), horizon=8, turns_left=True, sink=log))
    with open_warehouse(tmp_path) as warehouse:
        [exported] = conversations(warehouse, "r1", phase=None)
    texts = [message["content"] for message in exported.messages if message["role"] == "user"]
    assert [text.rpartition("\n")[2] for text in texts[:3]] == ["(8 turns left)", "(7 turns left)", "(6 turns left)"]
    assert texts[-1] == played.turns[-1].observation


def test_budgets_that_no_demonstration_has_are_one_token_of_the_lean_template() -> None:
    words = [number_word(left) for left in range(1, 33)]
    tokenizer = train_tokenizer(["errand red sixteen"], 330, "lean", words)
    assert [len(tokenizer(f" {word}")["input_ids"]) for word in words] == [1] * len(words)  # with its space
    assert [len(tokenizer(text)["input_ids"]) for text in ("red sixteen", "errand red")] == [2, 3]
    for text in ("red one", "one red two", "red fourteen", "red ones", "red\ntwo", "Which one?"):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert len(set(words)) == len(words)


def test_scores_at_fewer_turns_are_refused_for_an_agent_that_saw_its_turns(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        play(log, [1.0], phase="evaluate", split="test")
    with TurnLog.open(tmp_path, "r2") as log:
        few = tasks("wish", "test")[:1]
        asyncio.run(run_episodes(few, ScriptedPolicy(1.0), horizon=8, prompt_style="brief", turns_left=True, sink=log))
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql(
            "SELECT max(solved) FROM score_by_turns(run := 'r1', in_phase := 'evaluate')"
        ).fetchall() == [(1.0,)]
        assert warehouse.sql("SELECT DISTINCT run_id FROM score_by_turns(in_phase := NULL)").fetchall() == [("r1",)]
        with pytest.raises(duckdb.InvalidInputException, match=r"userrl evaluate --horizon 4\.\.16"):
            warehouse.sql("SELECT max(solved) FROM score_by_turns(run := 'r2', in_phase := 'play')").fetchall()
