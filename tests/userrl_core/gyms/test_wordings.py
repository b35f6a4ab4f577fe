"""Errand, wish and travel's tiny tier in English sentences: solvable, drawn from the task, and off by default."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import pytest

from userrl_core.gyms import make, tasks
from userrl_core.gyms.errand import english as errand_english
from userrl_core.gyms.pool import THINGS
from userrl_core.gyms.registry import gym_class
from userrl_core.gyms.travel import english as travel_english
from userrl_core.gyms.travel import tiny as travel_tiny
from userrl_core.gyms.wish import english as wish_english
from userrl_core.gyms.wish.tasks import COLOURS, GARMENTS, OPTIONS
from userrl_core.gyms.wording import Act, Wordings, listed, with_article
from userrl_core.interact import InteractCall
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import Task
from userrl_core.rollout import run_episodes

GYMS = ("errand", "wish", "travel")
ALL_ACTS: list[tuple[str, Act]] = [
    *errand_english.ACTS.items(),
    *wish_english.ACTS.items(),
    *travel_english.ACTS.items(),
]


def spoken(gym: str, split: str) -> Sequence[Task]:
    """Return the tasks that are played in English."""
    return tasks(gym, split, **({"tier": "tiny"} if gym == "travel" else {}))


@pytest.mark.parametrize(("name", "act"), ALL_ACTS)
def test_an_act_has_eight_wordings_and_others_for_the_test(name: str, act: Act) -> None:
    assert len(set(act.train)) >= 8
    assert len(set(act.test)) >= 4
    assert not set(act.train) & set(act.test)


@pytest.mark.parametrize("gym", GYMS)
def test_openings_are_sentences_of_few_words(gym: str) -> None:
    for task in [*spoken(gym, "train")[:200], *spoken(gym, "test")[:200]]:
        played = make(gym, task, wording="english")
        opening = played.reset(seed=0)
        assert played.brief() == opening
        assert len(opening.split()) < 40
        assert opening[-1] in ".?"


@pytest.mark.parametrize("gym", GYMS)
def test_the_full_skill_demonstrator_solves_every_task_in_english(gym: str) -> None:
    chosen = [*spoken(gym, "train")[:40], *spoken(gym, "test")[:40]]
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

    assert {asyncio.run(play(task)) for task in spoken(gym, "train")[:40]} == {1.0}


def test_all_conversations_of_a_task_meet_the_same_words_and_tasks_differ() -> None:
    some = tasks("wish", "train")[:60]
    once, again = ([Wordings(wish_english.ACTS, task).say("hesitates") for task in some] for _ in range(2))
    assert once == again
    assert len(set(once)) == 8


def test_no_sentence_names_what_was_not_to_be_said() -> None:
    own = {*COLOURS, *GARMENTS, *OPTIONS, *THINGS}
    of_travel = {*travel_tiny.CATEGORIES, *travel_tiny.VALUES}
    for acts, secrets in ((errand_english.ACTS, own), (wish_english.ACTS, own), (travel_english.ACTS, of_travel)):
        for act in acts.values():
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


async def test_a_traveller_reads_sentences_and_answers_in_them() -> None:
    task = spoken("travel", "test")[0]
    gym = make("travel", task, wording="english")
    gym.reset(seed=0)
    wishes = [preference["preference"] for preference in task.payload["aspects"]["hotel"]["preferences"]]
    first = next(iter(task.payload["aspects"]["hotel"]["preferences"]))["category"]
    other = next(name for name in travel_tiny.CATEGORIES if name not in task.payload["brief"].split())
    best = task.payload["aspects"]["hotel"]["best"]
    told = await gym.step(InteractCall("action", f"What do you have in mind for the {first}?"))
    refused = await gym.step(InteractCall("action", f"And the {other}?"))
    vague = await gym.step(InteractCall("action", "What would you like?"))
    nothing = await gym.step(InteractCall("search", f"a hotel with {wishes[0]}"))
    found = await gym.step(InteractCall("search", f"hotels: {wishes[1]} and {wishes[0]}"))
    two = await gym.step(InteractCall("answer", "H1 or H2"))
    done = await gym.step(InteractCall("answer", f"I choose {best}. {best} it is."))
    assert wishes[0] in told.observation
    assert (told.reward, refused.reward, vague.reward, two.reward) == (0.1, 0.0, 0.0, 0.0)
    assert two.observation in travel_english.ACTS["which"].test
    assert len(re.findall(r"H\d", nothing.observation)) == 3
    assert re.findall(r"H\d", found.observation) == [best]
    assert (done.reward, done.info["choices"]) == (0.8, {best: "best"})


@pytest.mark.parametrize("config", [{"wording": "english"}, {"wording": "english", "terse": True}])
def test_travel_speaks_english_in_the_tiny_tier_alone(config: dict[str, Any]) -> None:
    task = tasks("travel", "test", tier="easy")[0]
    assert make("travel", task, **config).reset(seed=0) == task.payload["opening"]
    tiny = spoken("travel", "test")[0]
    assert make("travel", tiny, **config, preset="userbench").reset(seed=0) != tiny.payload["opening"]
