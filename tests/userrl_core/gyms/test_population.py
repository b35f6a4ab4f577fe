"""Populations: traits drawn from the task, the moves of rule users, and instructions to served users."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from curricula.spec import UserSetup
from tests.makers import raises
from tests.mock_server import Answer, Body, MockServer
from userrl_core.gyms import make, tasks
from userrl_core.gyms.population import TRAITS, Persona, population
from userrl_core.gyms.tau.rule_user import RuleTauUser
from userrl_core.interact import InteractCall
from userrl_core.records import Task
from userrl_core.served.client import close_clients

TASK = Task(
    "wish",
    "t0",
    "train",
    {
        "wished": {"hat": "red", "coat": "blue"},
        "best": "oak",
        "wrong": {"hat": "elm", "coat": "fig"},
        "order": ["fig", "oak", "elm"],
    },
)


async def played(
    drawn_from: Any, *calls: tuple[str, str], **config: Any
) -> list[tuple[str, float | None, dict[str, Any]]]:
    gym = make("wish", TASK, ("rule", {"population": drawn_from}), **config)
    gym.reset(seed=0)
    results = [await gym.step(InteractCall(*call)) for call in calls]
    return [(result.observation, result.reward, result.info) for result in results]


def test_a_group_meets_the_same_user_and_another_task_another() -> None:
    a, b, other = (Persona("wish", task, "wide") for task in ("t0", "t0", "t1"))
    assert a.traits == b.traits != other.traits
    assert [a.move("hat") for _ in range(30)] == [b.move("hat") for _ in range(30)]


def test_traits_stay_in_their_ranges_and_a_number_of_users_is_kept() -> None:
    personas = [Persona("wish", f"t{n}", {"like": "wide", "users": 40}) for n in range(800)]
    assert {persona.number for persona in personas} == set(range(40))
    by_number = {persona.number: persona.traits for persona in personas}
    assert all(persona.traits == by_number[persona.number] for persona in personas)
    assert all(0 <= traits["hesitation"] <= 0.6 and traits["memory"] in (0.0, 1.0) for traits in by_number.values())
    other = Persona("wish", "t0", {"like": "wide", "users": 40, "draw": 2})
    assert other.traits not in by_number.values()


@pytest.mark.parametrize("trait", [name for name in TRAITS if name not in ("volunteering", "patience", "memory")])
def test_a_move_is_as_frequent_as_its_trait_says(trait: str) -> None:
    moves = Counter(Persona("wish", f"t{n}", {trait: 0.3}).move("hat") for n in range(2000))
    assert set(moves) == {"tells", next(move for move in moves if move != "tells")}
    assert moves["tells"] / 2000 == pytest.approx(0.7, abs=0.04)


async def test_each_trait_shows_in_the_conversation() -> None:
    ask = ("action", "hat")
    expected = {
        "hesitation": ["hm", "hm"], "memory": ["um", "red"], "tangents": ["so", "so"], "unavailable": ["cape", "cape"],
        "incomplete": ["the", "the"],
    }  # fmt: skip
    for trait, words in expected.items():
        results = await played({trait: 1}, ask, ask)
        assert [text for text, _, _ in results] == words
        assert results[0][2]["persona"]["traits"] == {trait: 1.0}
        assert "traits" not in results[1][2].get("persona", {})


async def test_a_slip_names_a_wrong_colour_that_is_not_paid_and_is_corrected_when_asked_again() -> None:
    (wrong, unpaid, first), (right, paid, second) = await played({"slips": 1}, ("action", "hat"), ("action", "hat"))
    assert wrong != "red"
    assert (unpaid, first["told"], first["persona"]["move"]) == (0.0, 0, "slips")
    assert (right, paid, second["told"]) == ("red", 0.25, 1)


async def test_a_volunteered_colour_is_told_and_paid_with_the_requested_one() -> None:
    results = await played({"volunteering": 1}, ("action", "hat"), ("search", ""))
    assert results[0][:2] == ("red, coat blue", 0.5)
    assert results[1][0] == "oak"


async def test_an_impatient_user_leaves_and_the_task_is_lost() -> None:
    *_, (text, reward, info) = await played({"patience": 1}, ("action", "hat"), ("answer", "oak"))
    assert (text, reward, info["success"], info["left"]) == ("bye", 0.0, False, True)


async def test_in_english_every_move_is_a_sentence() -> None:
    for trait in ("hesitation", "memory", "tangents", "unavailable", "incomplete", "slips"):
        ((text, _, _),) = await played({trait: 1}, ("action", "hat"), wording="english")
        assert len(text) > 4, trait


async def test_without_a_population_nothing_is_logged() -> None:
    gym = make("wish", TASK)
    gym.reset(seed=0)
    assert (await gym.step(InteractCall("action", "hat"))).info == {"told": 1, "wished": 2}


async def test_a_traveller_who_hesitates_reveals_nothing_until_asked_again() -> None:
    task = tasks("travel", "test", tier="tiny")[0]
    gym: Any = make("travel", task, ("rule", {"population": {"memory": 1}}))
    gym.reset(seed=0)
    ask = type(gym).gold(task)[0]
    first, second = [await gym.step(ask) for _ in range(2)]
    assert (first.info["utterance"], first.observation) == ("other", "um")
    assert (second.info["utterance"], second.info["elicited"]) == ("held", "active")


def test_a_traveller_does_not_slip() -> None:
    with raises("user.bad_option"):
        make("travel", tasks("travel", "test", tier="tiny")[0], ("rule", {"population": "slips"}))


async def test_a_customer_hesitates_slips_and_corrects_the_number() -> None:
    task = Task("tau", "t", "train", {"instruction": "Your order is W1234. You want it cancelled."})
    hesitant = RuleTauUser(task, random.Random(0), population={"memory": 1})
    assert "remember" in await hesitant.reply("What is your order?")
    slipping = RuleTauUser(task, random.Random(0), population={"slips": 1})
    assert await slipping.reply("What is your order?") == "My order is W1243. I want it cancelled."
    assert "it is W1234" in await slipping.reply("Which one?")
    leaving = RuleTauUser(task, random.Random(0), population={"patience": 1})
    assert "###STOP###" not in await leaving.reply("What is your order?")
    assert "###STOP###" in await leaving.reply("And now?")


async def test_a_served_user_is_told_its_move_and_the_log_says_whether_it_shows() -> None:
    bodies: list[Body] = []

    def reply(body: Body) -> Answer:
        bodies.append(body)
        return Answer("I am not sure yet." if len(bodies) == 1 else "Nice weather.")

    with MockServer(reply) as server:
        user = ("openai", {"population": {"hesitation": 1}, "base_url": server.base_url, "retries": 0})
        gym = make("wish", TASK, user)
        gym.reset(seed=0)
        notes = [(await gym.step(InteractCall("action", "hat"))).info["persona"] for _ in range(2)]
        await close_clients()
    assert [(note["move"], note["shown"]) for note in notes] == [("hesitates", True), ("hesitates", False)]


def test_a_recipe_names_a_population_and_wrong_ranges_are_refused() -> None:
    assert UserSetup(kind="rule", population="wide").as_argument() == ("rule", {"population": "wide"})
    assert UserSetup(kind="rule").as_argument() == "rule"
    for wrong in ("wid", {"hesitation": 2}, {"hesitation": [0.5, 0.1]}, {"hesitance": 0.5}):
        with raises("user.bad_option"):
            population(wrong)
