"""Errand and wish in English sentences: solvable, drawn from the task, and off by default."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from userrl_core.gyms import make, tasks
from userrl_core.gyms.errand import english as errand_english
from userrl_core.gyms.errand.tasks import NAMES
from userrl_core.gyms.registry import gym_class
from userrl_core.gyms.wish import english as wish_english
from userrl_core.gyms.wish.tasks import COLOURS, GARMENTS, OPTIONS
from userrl_core.gyms.wording import Act, Wordings, listed, with_article
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.rollout import run_episodes

GYMS = ("errand", "wish")
ALL_ACTS: list[tuple[str, Act]] = [*errand_english.ACTS.items(), *wish_english.ACTS.items()]


@pytest.mark.parametrize(("name", "act"), ALL_ACTS)
def test_an_act_has_eight_wordings_and_others_for_the_test(name: str, act: Act) -> None:
    assert len(set(act.train)) >= 8
    assert len(set(act.test)) >= 4
    assert not set(act.train) & set(act.test)


@pytest.mark.parametrize("gym", GYMS)
def test_openings_are_sentences_of_few_words(gym: str) -> None:
    for task in [*tasks(gym, "train")[:200], *tasks(gym, "test")[:200]]:
        played = make(gym, task, wording="english")
        opening = played.reset(seed=0)
        assert played.brief() == opening
        assert len(opening.split()) < 40
        assert opening[-1] in ".?"


@pytest.mark.parametrize("gym", GYMS)
def test_the_full_skill_demonstrator_solves_every_task_in_english(gym: str) -> None:
    chosen = [*tasks(gym, "train")[:40], *tasks(gym, "test")[:40]]
    user: Any = ("rule", {"manner": "vague"}) if gym == "wish" else "rule"
    played = asyncio.run(
        run_episodes(
            chosen,
            ScriptedPolicy(1.0),
            horizon=40,
            user=user,
            gym_config={gym: {"wording": "english"}},
            prompt_style="brief",
        )
    )
    assert [trajectory.score for trajectory in played] == [1.0] * len(chosen)
    assert all(re.search(r"[.?]$", turn.observation) for t in played for turn in t.turns)


@pytest.mark.parametrize("gym", GYMS)
def test_the_gold_solution_is_read_in_english(gym: str) -> None:
    async def play(task: Any) -> float | None:
        played = make(gym, task, wording="english")
        played.reset(seed=0)
        for call in gym_class(gym).gold(task, played.config):
            await played.step(call)
        return played.score()

    assert {asyncio.run(play(task)) for task in tasks(gym, "train")[:40]} == {1.0}


def test_all_conversations_of_a_task_meet_the_same_words_and_tasks_differ() -> None:
    some = tasks("wish", "train")[:60]
    once, again = ([Wordings(wish_english.ACTS, task).say("hesitates") for task in some] for _ in range(2))
    assert once == again
    assert len(set(once)) == 8


def test_no_sentence_names_what_was_not_to_be_said() -> None:
    secrets = {*COLOURS, *GARMENTS, *OPTIONS, *NAMES}
    for _, act in ALL_ACTS:
        for sentence in (*act.train, *act.test):
            assert not secrets & set(re.findall(r"[a-z]+", re.sub(r"\{\w+\}", "", sentence.lower())))
    for act in (wish_english.ACTS["hesitates"], wish_english.ACTS["anything"]):
        assert not any(colour in sentence.lower() for colour in COLOURS for sentence in (*act.train, *act.test))


def test_terse_stays_the_default() -> None:
    task = tasks("wish", "train")[0]
    assert make("wish", task).reset(seed=0) == f"I need an outfit: {', '.join(task.payload['wished'])}."


def test_lists_and_articles() -> None:
    assert listed(["a hat"]) == "a hat"
    assert listed(["a hat", "gloves", "a coat"]) == "a hat, gloves and a coat"
    assert [with_article(noun) for noun in ("oar", "coat", "shoes")] == ["an oar", "a coat", "shoes"]
