"""PersuadeGym: each level is rewarded once, an unknown stance is a failed judgement, only new strong arguments count."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.makers import raises
from tests.published import published
from userrl_core.gyms import generate, load_published, make, tasks
from userrl_core.gyms.persuade.gym import STANCES, ListenerResponse, PersuadeGym, rebuttals_of
from userrl_core.gyms.persuade.rule_user import RulePersuadeUser
from userrl_core.gyms.published import published_tasks, released_prompts
from userrl_core.gyms.validate import validate
from userrl_core.interact import InteractCall
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import Task
from userrl_core.rollout import run_episodes

CLAIM = "Cats should rule the city."
ARGUMENT = "Cats are calm and clean. A city needs rest. Nobody has ever been bitten by a mayor who sleeps."


class ScriptedUser:
    """A user with given stances."""

    def __init__(self, *stances: str) -> None:
        self.stances = list(stances)
        self.previous: list[str] = []

    async def respond(self, argument: str, stance: str) -> ListenerResponse:
        self.previous.append(stance)
        return ListenerResponse("Hm.", self.stances.pop(0))


def make_task(**payload: Any) -> Task:
    return Task("persuade", "t", "train", {"claim": CLAIM, "argument": ARGUMENT, **payload})


def argue(user: Any, arguments: Sequence[str], **config: Any) -> tuple[PersuadeGym, list[float | None]]:
    gym = make("persuade", make_task(), user, **config)
    assert isinstance(gym, PersuadeGym)
    gym.reset(seed=0)

    async def play() -> list[float | None]:
        return [(await gym.step(InteractCall("action", text))).reward for text in arguments if not gym.done]

    return gym, asyncio.run(play())


def sixths(*levels: int) -> list[Any]:
    return [pytest.approx(level / 6) for level in levels]


def test_each_level_toward_disagreement_earns_a_sixth() -> None:
    gym, rewards = argue(ScriptedUser("Agree", "Neutral", "Strongly Disagree"), "abc")
    assert rewards == sixths(1, 2, 3)
    assert gym.done
    assert gym.succeeded
    assert gym.score() == pytest.approx(1.0)


def test_a_level_that_is_reached_again_is_not_rewarded_again() -> None:
    gym, rewards = argue(ScriptedUser(*["Neutral", "Agree"] * 5), "abcdefghij")
    assert rewards == [pytest.approx(0.5)] + [0.0] * 9
    assert gym.score() == pytest.approx(0.5)


def test_only_levels_beyond_the_best_one_are_rewarded() -> None:
    _, rewards = argue(ScriptedUser("Neutral", "Strongly Agree", "Partly Disagree"), "abc")
    assert rewards == sixths(3, 0, 1)


@given(st.lists(st.sampled_from(STANCES), min_size=1, max_size=30))
def test_the_score_is_the_best_level_over_six_for_all_sequences_of_stances(stances: list[str]) -> None:
    gym, rewards = argue(ScriptedUser(*stances), ["x"] * len(stances))
    played = stances[: len(rewards)]
    assert gym.score() == pytest.approx(max(STANCES.index(s) for s in played) / 6)
    assert all(r is not None and 0.0 <= r <= 1.0 for r in rewards)


@pytest.mark.parametrize("stance", ["agree", "Somewhat Agree", "", "7", "Strongly disagree"])
def test_an_unknown_stance_is_a_failed_judgement_and_the_stance_is_unchanged(stance: str) -> None:
    gym = make("persuade", make_task(), ScriptedUser(stance, "Agree"))
    gym.reset(seed=0)
    with raises("judge.no_reply"):
        asyncio.run(gym.step(InteractCall("action", "x")))
    assert gym.stance == "Strongly Agree"


def test_the_user_is_given_its_previous_stance() -> None:
    user = ScriptedUser("Agree", "Neutral")
    argue(user, "ab")
    assert user.previous == ["Strongly Agree", "Agree"]


def test_start_and_reward_per_level_are_config_fields() -> None:
    gym, rewards = argue(ScriptedUser("Disagree", "Strongly Disagree"), "ab", start="Neutral", per_level=0.5)
    assert rewards == [1.0, 0.5]
    assert gym.full_score == 1.5


def test_a_rebuttal_moves_the_user_by_its_weight_and_only_once() -> None:
    task = next(t for t in tasks("persuade", "train") if t.payload["rebuttals"][0]["weight"] == 2)
    user = RulePersuadeUser(task, random.Random(0))
    text = task.payload["rebuttals"][0]["text"]
    assert asyncio.run(user.respond(text, "Strongly Agree")).stance == "Partly Agree"
    again = asyncio.run(user.respond(text, "Partly Agree"))
    assert again.stance == "Partly Agree"


def test_one_message_with_all_rebuttals_gains_at_most_two_levels() -> None:
    task = tasks("persuade", "train")[0]
    user = RulePersuadeUser(task, random.Random(0))
    every_rebuttal = " ".join(r.text for r in rebuttals_of(task))
    assert asyncio.run(user.respond(every_rebuttal, "Strongly Agree")).stance == "Partly Agree"


async def test_arguments_outside_the_rebuttals_move_the_user_two_levels_in_all() -> None:
    task = tasks("persuade", "train")[0]
    user = RulePersuadeUser(task, random.Random(0))
    stance = "Strongly Agree"
    for letter in "bdfg":
        invented_words = " ".join(f"{letter}{vowel}{letter}kton" for vowel in "aeiou")
        stance = (await user.respond(f"But 1 because {task.payload['claim']} {invented_words}", stance)).stance
    assert stance == "Partly Agree"
    for rebuttal in rebuttals_of(task)[:2]:
        stance = (await user.respond(rebuttal.text, stance)).stance
    assert stance == "Strongly Disagree"


async def test_a_long_list_that_holds_a_rebuttals_words_does_not_contain_the_rebuttal() -> None:
    task = tasks("persuade", "train")[0]
    words = " ".join(f"word{number}" for number in range(400))
    response = await RulePersuadeUser(task, random.Random(0)).respond(f"{rebuttals_of(task)[0].text} {words}", "Agree")
    assert response.stance == "Agree"


STRONG = (
    "But cats overlook drains and budgets: for example, research on 12 towns has shown that a city without night engineers "
    "floods within weeks, because nobody repairs pumps while the mayor sleeps, and calm alone has never kept a single cellar "
    "dry; cats fail exactly where a city needs somebody awake."
)


@pytest.mark.parametrize(
    ("argument", "levels"),
    [
        ("", 0),
        ("!!! ???", 0),
        ("The stock market fell again yesterday, because bananas grew expensive in 1929.", 0),
        ("You are wrong.", 0),
        (ARGUMENT, 0),
        ("Cats are wonderful for a city, since research shows 90 percent of inhabitants love purring.", 0),
        ("But cats cannot read, because no city school teaches them, for example.", 1),
        (STRONG, 2),
    ],
)
def test_without_rebuttals_the_rule_user_judges_relevance_novelty_opposition_and_strength(
    argument: str, levels: int
) -> None:
    user = RulePersuadeUser(make_task(), random.Random(0))
    assert STANCES.index(asyncio.run(user.respond(argument, "Strongly Agree")).stance) == levels


def test_a_repeated_argument_does_not_move_the_user_again() -> None:
    user = RulePersuadeUser(make_task(), random.Random(0))
    first = asyncio.run(user.respond(STRONG, "Strongly Agree"))
    second = asyncio.run(user.respond(STRONG.replace("towns", "Towns"), first.stance))
    assert (first.stance, second.stance) == ("Partly Agree", "Partly Agree")


@given(st.text(max_size=300))
def test_no_text_breaks_the_rule_user_or_moves_it_more_than_two_levels(text: str) -> None:
    user = RulePersuadeUser(tasks("persuade", "train")[0], random.Random(0))
    assert STANCES.index(asyncio.run(user.respond(text, "Strongly Agree")).stance) <= 2


def test_no_more_tasks_are_generated_than_there_are() -> None:
    with raises("task.too_few"):
        generate("persuade", 100_000, 1)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"claim": ""}, "field 'claim'"),
        ({"argument": 3}, "field 'argument'"),
        ({"rebuttals": [{"text": "x", "weight": 3}]}, "rebuttal 0: field 'weight' is 3"),
        ({"rebuttals": [{"weight": 1}]}, "rebuttal 0: field 'text'"),
    ],
)
def test_a_faulty_task_is_refused_with_the_name_of_the_field(payload: dict[str, Any], message: str) -> None:
    with raises("task.invalid_field", message):
        make("persuade", make_task(**payload))


def write_sample(root: Path, *rows: dict[str, Any]) -> Path:
    folder = root / "data/persuasion_multiturn"
    folder.mkdir(parents=True)
    for split, split_rows in (("train", rows[:-1]), ("test", rows[-1:])):
        polars.DataFrame({"reward_model": list(split_rows)}).write_parquet(folder / f"{split}.parquet")
    return root


def row(key: str | None, claim: str | None = CLAIM) -> dict[str, Any]:
    return {"id": key, "claim": claim, "argument": ARGUMENT, "env_name": "PersuadeGym"}


def test_a_sample_in_the_published_format_loads_and_is_marked_as_not_provable(tmp_path: Path) -> None:
    loaded = load_published("persuade", write_sample(tmp_path, row("a"), row("b"), row("c")))
    assert [(t.id, t.split == "test") for t in loaded] == [("a", False), ("b", False), ("c", True)]
    result = validate(loaded[0])
    assert (result.ok, result.score, result.playable) == (False, None, True)
    assert "no gold solution" in result.reason


def test_a_bad_published_row_names_its_file_index_and_field(tmp_path: Path) -> None:
    root = write_sample(tmp_path, row("a"), row("b", None), row("c"))
    with raises("task.invalid_field", "train.parquet, entry 1", "'claim'"):
        load_published("persuade", root)


@pytest.mark.parametrize("bad", [None, "{}", {"id": "a"}, {"env_name": "PersuadeGym"}])
def test_a_bad_row_of_the_combined_list_or_of_the_prompts_names_its_file_and_index(tmp_path: Path, bad: Any) -> None:
    write_sample(tmp_path / "userrl", row("a"), row("c"))
    rows = [bad] if isinstance(bad, str) else [row("a"), bad]
    path = tmp_path / "userrl" / "data/alltrain_multiturn/train.parquet"
    path.parent.mkdir()
    polars.DataFrame({"reward_model": rows, "prompt": ["x"] * len(rows)}).write_parquet(path)
    with raises("task.invalid_field", f"{path}, entry {len(rows) - 1}: field '"):
        published_tasks("persuade", tmp_path)
    if bad != {"id": "a"}:  # the prompts need no name of a gym
        with raises("task.invalid_field", f"{path}, entry {len(rows) - 1}: field 'id'"):
            released_prompts(path.parent, "id")


def test_published_tasks_that_share_an_id_are_refused(tmp_path: Path) -> None:
    with raises("task.duplicate", "2 tasks of gym 'persuade' with the id 'a'"):
        load_published("persuade", write_sample(tmp_path, row("a"), row("a", "Another claim."), row("c")))


async def test_all_published_tasks_load_with_the_counts_of_table_2_and_can_be_trained_on_offline() -> None:
    published_tasks = load_published("persuade", published("userrl"))
    assert sum(t.split == "test" for t in published_tasks) == 42
    assert sum(t.split != "test" for t in published_tasks) == 378
    good, bad = [await run_episodes(published_tasks[:60], ScriptedPolicy(skill), horizon=8) for skill in (1.0, 0.0)]
    assert all(t.admitted for t in [*good, *bad])
    assert sum(t.score or 0 for t in good) > 50 > sum(t.score or 0 for t in bad)
