"""TravelGym's users: by rule, and served by a model."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.mock_server import Answer, Body, MockServer, prompt_text
from userrl_core import gyms
from userrl_core.gyms.travel.gym import TravelGym
from userrl_core.gyms.travel.library import library
from userrl_core.gyms.travel.query import days_in, match_query
from userrl_core.gyms.travel.rule_user import RuleTravelUser, question_for
from userrl_core.gyms.travel.world import Preference, World
from userrl_core.interact import InteractCall
from userrl_core.records import Task
from userrl_core.served.client import close_clients

HOTEL = {"city": "Rome", "date_start": "2026-05-01", "date_end": "2026-05-04"}
FLIGHT = {"origin": "Oslo", "destination": "Rome", "date": "2026-05-01"}
TRIP = {"hotel": HOTEL, "flight": FLIGHT}


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("hotel in Rome from May 1 to May 4", "match"),
        ("Hotels, Rome, 2026-05-01 - 2026-05-04", "match"),
        ('{"aspect": "hotel", "city": "Rome", "date_start": "May 1st", "date_end": "4th of May"}', "match"),
        ("hotel in Rome, May 1-4, 2026", "match"),
        ("flight from Oslo to Rome on 1 May", "match"),
        ("flight from Rome to Oslo on 1 May", "wrong"),
        ("hotel in Rome from May 1 to May 5", "wrong"),
        ("hotel in Rome from May 1", "wrong"),
        ("hotel in Rome from May 1 to May 4, June 2", "wrong"),
        ("hotel in Paris from May 1 to May 4", "wrong"),
        ("hotel in Rome or Paris from May 1 to May 4", "wrong"),
        ("hotel", "wrong"),
        ("hotel and flight from Oslo to Rome on May 1, until May 4", "wrong"),
        ("restaurant in Rome on May 1", "unrelated"),
        ("", "unrelated"),
    ],
)
def test_a_search_must_state_exactly_the_arguments_of_one_aspect(query: str, kind: str):
    assert match_query(query, TRIP).kind == kind


def test_dates_are_parsed_in_the_usual_notations():
    for text in ("November 10th", "10 November 2026", "Nov. 10", "2026-11-10", "the 10th of November", "nov 10, 2026"):
        assert days_in(text) == {(11, 10)}, text
    assert days_in("November 10 to 15") == {(11, 10), (11, 15)}
    assert days_in("November 10, December 12") == {(11, 10), (12, 12)}
    assert days_in("in 3 days, at 10 am, room 12") == set()


def task_with_every_category() -> Task:
    """A traveller with the first preference of every category."""
    aspects: dict[str, Any] = {}
    number = 0
    for name, aspect in library().items():
        held = []
        for category in aspect.categories.values():
            number += 1
            first = category.preferences[0]
            held.append(
                {"id": f"P{number}", "category": category.name, "preference": first.text, "implicit": first.phrases[0]}
            )
        aspects[name] = {"arguments": {}, "preferences": held, "options": [], "best": "", "correct": []}
    return Task("travel", "all", "train", {"opening": "", "aspects": aspects}, tier="hard")


async def judge(
    utterance: str, task: Task | None = None, candidates: list[Preference] | None = None
) -> tuple[str, str | None]:
    task = task or task_with_every_category()
    preferences = list(World.of(task.payload).preferences.values()) if candidates is None else candidates
    judgement = await RuleTravelUser(task, random.Random(0)).judge(utterance, preferences, ())
    return judgement.kind, judgement.preference_id


async def test_the_gold_solutions_question_asks_for_every_category():
    preferences = World.of(task_with_every_category().payload).preferences.values()
    missed = [p.category for p in preferences if await judge(question_for(p, "hard")) != ("held", p.id)]
    assert missed == []


@pytest.mark.parametrize(
    ("utterance", "category"),
    [
        ("Do you mind a layover on your flight?", "stops"),
        ("When would you like to leave with your flight, morning or evening?", "departure"),
        ("Would you like a king bed or twin beds at the hotel?", "beds"),
        ("Should the hotel have a gym?", "facilities"),
        ("Which cuisine do you prefer for the restaurant?", "cuisine"),
        ("Is there any allergy the restaurant must know?", "diet"),
        ("Do you need insurance for the rental car?", "insurance"),
    ],
)
async def test_questions_are_recognised_in_many_wordings(utterance: str, category: str):
    kind, identity = await judge(utterance)
    assert kind == "held"
    assert World.of(task_with_every_category().payload).preferences[str(identity)].category == category


async def test_a_category_without_a_preference_is_not_held():
    assert (await judge("Would you like a pool at the hotel?", candidates=[]))[0] == "not_held"


async def test_a_general_question_is_too_vague():
    assert (await judge("Do you have any preferences?"))[0] == "too_vague"
    assert (await judge("What are your requirements for the hotel?"))[0] == "too_vague"


async def test_naming_many_categories_at_once_is_too_vague():
    question = "For the hotel: location, beds, pool, breakfast, checkout, what do you want?"
    assert (await judge(question))[0] == "too_vague"


async def test_a_list_of_details_of_all_aspects_is_too_vague():
    topics = (
        "stopover, noon, premium, beach, twin, pool, studio, laundry, street, suv, diesel, gps, cuisine, vegan, music"
    )
    assert (await judge(f"What about {topics}?"))[0] == "too_vague"
    assert (await judge("What about twin, pool, diesel, vegan, music?"))[0] == "too_vague"
    assert (await judge("What about twin, pool, diesel, vegan?"))[0] == "held"


async def test_each_categorys_label_is_a_question_without_its_aspect():
    labels = [category.label for aspect in library().values() for category in aspect.categories.values()]
    kinds = [(await judge(f"What would you like regarding the {label}?"))[0] for label in labels]
    assert kinds == ["held"] * 25


async def test_a_message_without_a_question_is_other():
    assert (await judge("Thanks, let me look that up."))[0] == "other"
    assert (await judge("The pool of that hotel is large."))[0] == "other"
    assert (await judge(""))[0] == "other"


async def test_the_same_message_gets_the_same_reply_for_every_seed():
    task = gyms.tasks("travel", "test", tier="22")[0]
    question = question_for(next(iter(World.of(task.payload).preferences.values())), task.tier)
    replies = set()
    for seed in (1, 2):
        gym = gyms.make("travel", task)
        gym.reset(seed=seed)
        replies.add((await gym.step(InteractCall("action", question))).observation)
    assert len(replies) == 1


# Served by a model.


def llm_gym(server: MockServer, task: Task) -> TravelGym:
    gym = gyms.make("travel", task, ("openai", {"base_url": server.base_url, "backoff": 0.001, "timeout": 60.0}))
    gym.reset(seed=0)
    assert isinstance(gym, TravelGym)
    return gym


@pytest.fixture(autouse=True)
async def closed_clients() -> Any:
    yield
    await close_clients()


async def test_each_prompt_holds_only_what_its_role_needs():
    task = gyms.tasks("travel", "test", tier="22")[0]
    prompts: list[tuple[str, str]] = []

    def brain(body: Body) -> Answer:
        schema = body["response_format"]["json_schema"]["schema"]
        fields = schema["properties"]
        role = "utterance" if "preference_id" in fields else "query" if "part" in fields else "speech"
        prompts.append((role, prompt_text(body)))
        if role == "utterance":
            asks = "which beds" in prompt_text(body)
            return Answer('{"kind": "held", "preference_id": "P1"}' if asks else '{"kind": "other"}')
        return Answer('{"kind": "wrong"}' if role == "query" else '{"response": "Well."}')

    with MockServer(brain) as server:
        gym = llm_gym(server, task)
        for choice, content in (("action", "hello"), ("action", "which beds"), ("search", "hotel")):
            await gym.step(InteractCall(choice, content))
    explicit = [p.preference for p in gym.world.preferences.values()]
    ids = [option["id"] for aspect in gym.world.aspects.values() for option in aspect.options]
    assert [role for role, _ in prompts] == ["utterance", "speech", "utterance", "speech", "query"]
    for role, prompt in prompts:
        assert not any(f'"{option_id}"' in prompt for option_id in ids)
        if role != "utterance":
            assert not any(text in prompt for text in explicit)
    assert gym.progress.active == ["P1"]


async def test_a_judgement_with_an_invented_preference_is_retried():
    task = gyms.tasks("travel", "test", tier="22")[0]
    replies = iter(['{"kind": "held", "preference_id": "P77"}', '{"kind": "held"}', '{"kind": "too_vague"}'])
    with MockServer(lambda body: Answer(next(replies))) as server:
        gym = llm_gym(server, task)
        result = await gym.step(InteractCall("action", "hello"))
    assert (result.reward, result.info["utterance"]) == (0.0, "too_vague")
    assert [call.attempts for call in gym.ledger] == [3]
