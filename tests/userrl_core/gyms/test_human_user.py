"""A person at the terminal: what they see, what they may type, and that leaving gives no reward."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.makers import raises
from userrl_core.gyms import gym_class, make, tasks
from userrl_core.gyms.human_user import Console
from userrl_core.interact import InteractCall


class Person:
    """Types given lines and records what is shown."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.shown: list[str] = []

    def ask(self, prompt: str) -> str:
        self.shown.append(prompt)
        if not self.lines:
            raise EOFError
        return self.lines.pop(0)

    def show(self, text: str) -> None:
        self.shown.append(text)

    @property
    def screen(self) -> str:
        return "\n".join(self.shown)


def gym_with(person: Person, name: str) -> Any:
    gym = make(name, tasks(name, "train")[0], ("human", {"console": Console(person.ask, person.show)}))
    gym.reset(seed=0)
    return gym


def step(gym: Any, choice: str, content: str) -> Any:
    return asyncio.run(gym.step(InteractCall(choice, content)))


def test_a_person_with_a_wish_hears_the_agents_words_hesitates_and_names_no_other_colour() -> None:
    task = tasks("wish", "train")[0]
    (garment, colour), *_ = task.payload["wished"].items()
    other = next(each for each in ("red", "black", "white") if each != colour)
    person = Person("Let me think.", f"In {other}.", f"Oh, {colour.upper()} of course.")
    gym = gym_with(person, "wish")
    hesitated = step(gym, "action", f"Which colour should the {garment} have?")
    assert (hesitated.observation, hesitated.reward) == ("Let me think.", 0.0)
    told = step(gym, "action", f"The {garment}, please?")
    assert told.observation == f"Oh, {colour.upper()} of course."
    assert told.reward == pytest.approx(gym.config.elicitation / len(task.payload["wished"]))
    assert f"Which colour should the {garment} have?" in person.screen
    assert f"Name {colour}, or no colour." in person.screen
    assert f"{garment} in {colour}" in person.screen


def test_intention_shows_the_missing_details_and_reads_an_answer_and_the_numbers_it_covers() -> None:
    person = Person("By train, I think.", "1 9", "0 1, 1")
    gym = gym_with(person, "intention")
    first = gym.remaining[0]
    result = step(gym, "action", "How do you travel?")
    assert result.observation == "By train, I think."
    assert result.reward == gym.config.base(first.importance)
    assert all(detail.description in person.screen for detail in gym.details)
    assert "Do not name what it has not asked for" in person.screen
    assert first not in gym.remaining


def test_intention_reads_zero_as_no_detail() -> None:
    gym = gym_with(Person("Why?", "0"), "intention")
    assert step(gym, "action", "Nice weather?").reward == 0.0


def test_persuade_reads_a_response_and_a_stance_by_number_or_name() -> None:
    person = Person("Hm, maybe.", "nonsense", "2", "All right.", "neutral", "You win.", "strongly d")
    gym = gym_with(person, "persuade")
    rewards = [step(gym, "action", text).reward for text in "abc"]
    assert rewards == [pytest.approx(1 / 6), pytest.approx(2 / 6), pytest.approx(3 / 6)]
    assert gym.task.payload["claim"] in person.screen
    assert gym.done


def test_an_ambiguous_stance_is_asked_for_again() -> None:
    gym = gym_with(Person("Hm.", "agree", "Hm.", "partly", "1"), "persuade")
    assert step(gym, "action", "a").info["stance"] == "Agree"
    assert step(gym, "action", "b").info["stance"] == "Strongly Agree"


def test_telepathy_shows_the_entity_and_reads_yes_no_and_maybe() -> None:
    person = Person("y", "perhaps", "N", "maybe", "no")
    gym = gym_with(person, "telepathy")
    assert [step(gym, "action", "?").observation for _ in range(3)] == ["Yes", "No", "Maybe"]
    assert str(gym.task.payload["title"]) in person.screen
    assert "do not give it away" in person.screen
    assert step(gym, "answer", "a thing it is not").reward == 0.0


def test_a_guess_that_is_exactly_the_name_needs_no_judgement() -> None:
    gym = gym_with(Person(), "telepathy")
    assert step(gym, "answer", str(gym.task.payload["title"]).upper()).reward == 1.0


def test_turtle_shows_the_story_and_grades_each_criterion() -> None:
    person = Person()
    gym = gym_with(person, "turtle")
    count = len(gym.task.payload["criteria"])
    person.lines = ["yes", "2", *["1"] * count]
    assert step(gym, "action", "Was it night?").observation == "Yes"
    person.lines = ["2", *["1"] * count]
    result = step(gym, "answer", "It was the butler.")
    assert result.reward == pytest.approx(1.0)
    assert gym.task.payload["bottom"] in person.screen
    assert all(criterion["statement"] in person.screen for criterion in gym.task.payload["criteria"])


@pytest.mark.parametrize("name", ["intention", "persuade", "telepathy", "turtle"])
def test_a_person_who_leaves_raises_a_user_error(name: str) -> None:
    assert "human" in gym_class(name).users
    with raises("people.left"):
        step(gym_with(Person(), name), "action", "Hello?")


def test_a_human_user_needs_no_console_to_be_created() -> None:
    task = tasks("telepathy", "train")[0]
    assert gym_class("telepathy").users["human"](task, random.Random(0)).task is task
