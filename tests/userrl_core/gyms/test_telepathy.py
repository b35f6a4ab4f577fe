"""TelepathyGym: its tables, what counts as a question and as a guess, and its users."""

from __future__ import annotations

import json

import pytest

from tests.makers import raises
from tests.mock_server import Answer, MockServer
from tests.published import published
from userrl_core.gyms import load_published, make, tasks
from userrl_core.gyms.stemming import MAX_CHARACTERS, words
from userrl_core.gyms.telepathy.gym import TelepathyGym
from userrl_core.gyms.telepathy.tasks import categories
from userrl_core.interact import InteractCall
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import Task
from userrl_core.rollout import run_episodes


def task_of(title: str) -> Task:
    splits = ("train", "validation", "test")
    return next(t for split in splits for t in tasks("telepathy", split) if t.payload["title"] == title)


def gym_of(title: str, user: object = "rule", **config: object) -> TelepathyGym:
    gym = make("telepathy", task_of(title), user, **config)
    gym.reset(seed=1)
    return gym


async def ask(title: str, question: str) -> str:
    return (await gym_of(title).step(InteractCall("action", question))).observation


def test_no_two_entities_of_a_category_have_the_same_attributes():
    for category in categories().values():
        assert len(set(category.entities.values())) == len(category.entities), category.name
        known = set(category.asks)
        assert all(yes <= known for yes in category.entities.values()), category.name


def test_no_name_or_alias_is_used_twice_in_a_category():
    for category in categories().values():
        names = [name.casefold() for title in category.entities for name in (title, *category.aliases[title])]
        assert len(names) == len(set(names)), category.name


async def test_every_question_of_a_table_is_answered_from_it():
    for category in categories().values():
        title = next(iter(category.entities))
        for key, asked in category.asks.items():
            assert await ask(title, asked.question) == ("Yes" if key in category.entities[title] else "No"), (
                asked.question
            )


@pytest.mark.parametrize(
    ("title", "question", "expected"),
    [
        ("Eagle", "does it have wings?", "Yes"),
        ("Cow", "Does it have wings?", "No"),
        ("Zebra", "Are there stripes on it?", "Yes"),
        ("Cow", "Is it an animal?", "Yes"),
        ("Cow", "Is it a vehicle?", "No"),
        ("Cow", "Is it a horse?", "No"),
        ("Cow", "is it a COW", "Yes"),
        ("Cow", "Does its name begin with the letter C?", "Yes"),
        ("Cow", "Does it start with 'D'?", "No"),
        ("Cow", "Does it not fly?", "Maybe"),
        ("Cow", "Is it in fashion these days?", "Maybe"),
        ("Cow", "", "Maybe"),
        ("France", "Is France in Europe?", "Yes"),
    ],
)
async def test_the_rule_user_recognises_other_wordings(title, question, expected):
    assert await ask(title, question) == expected


@pytest.mark.parametrize(
    "guess", ["Cat", "cat", "CAT!", "a cat", "Is it a cat?", "I think it is the cat.", "House cat"]
)
async def test_a_right_guess_earns_one_and_ends_the_episode_in_any_case_and_wording(guess):
    gym = gym_of("Cat")
    result = await gym.step(InteractCall("answer", guess))
    assert (result.reward, result.terminated, gym.succeeded, gym.score()) == (1.0, True, True, 1.0)


@pytest.mark.parametrize("guess", ["Dog", "", "cat dog lion tiger", "caterpillar", "Cat, Dog", "c"])
async def test_a_wrong_guess_earns_nothing_and_the_episode_continues(guess):
    gym = gym_of("Cat")
    result = await gym.step(InteractCall("answer", guess))
    assert (result.reward, result.terminated) == (0.0, False)
    assert (await gym.step(InteractCall("answer", "Cat"))).terminated


async def test_the_config_may_let_a_wrong_guess_end_the_episode():
    gym = gym_of("Cat", wrong_guess_ends=True)
    result = await gym.step(InteractCall("answer", "Dog"))
    assert (result.terminated, gym.succeeded) == (True, False)


async def test_questions_earn_nothing_and_replies_never_name_the_entity():
    gym = gym_of("Cat")
    assert "cat" not in gym.task.payload["opening"].lower().replace("category", "")
    for question in ("Is it a cat?", "What is it?", "Name it!", "\x00</data>", "🐱" * 5000):
        result = await gym.step(InteractCall("action", question))
        assert (result.reward, result.observation in ("Yes", "No", "Maybe")) == (0.0, True)


def test_unknown_categories_are_refused():
    with raises("task.bad_option", "'cheese'"):
        tasks("telepathy", "train", category="cheese")


@pytest.mark.parametrize("reply", ["yes", "YES", "Yes.", " yes "])
async def test_a_judges_yes_counts_in_any_case(reply):
    with MockServer(lambda body: Answer(json.dumps({"thought": "", "correct": reply}))) as server:
        gym = gym_of("Cat", ("openai", {"base_url": server.base_url, "model": "m", "backoff": 0.0}))
        result = await gym.step(InteractCall("answer", "the animal that purrs"))
    assert (result.reward, result.terminated) == (1.0, True)
    assert [(call.role, call.error) for call in gym.ledger] == [("judge", None)]


async def test_the_served_users_answer_reaches_the_agent_as_one_word():
    with MockServer(lambda body: Answer(json.dumps({"thought": "It is the Cat!", "response": "no"}))) as server:
        gym = gym_of("Cat", ("openai", {"base_url": server.base_url, "model": "m"}))
        result = await gym.step(InteractCall("action", "Does it fly?"))
    assert (result.observation, result.reward) == ("No", 0.0)


async def test_the_released_entities_can_all_be_guessed_and_keep_their_splits():
    loaded = load_published("telepathy", published("userrl"))
    assert len(loaded) == 401
    assert sum(task.split == "test" for task in loaded) == 41
    trajectories = await run_episodes(loaded, ScriptedPolicy(1.0), horizon=16)
    assert {t.score for t in trajectories} == {1.0}


async def test_the_rule_user_answers_about_a_released_entity_from_its_description(tmp_path):
    gym = make("telepathy", load_published("telepathy", sample(tmp_path))[0])
    gym.reset(seed=0)
    answers = [
        (await gym.step(InteractCall("action", question))).observation
        for question in (
            "Does it have keys?",
            "Is it a sport?",
            "Is it heavy?",
            "Is it a piano?",
            "Is it an instrument?",
        )
    ]
    assert answers == ["Yes", "No", "Maybe", "Yes", "Yes"]


def test_a_bad_released_row_names_file_index_and_field(tmp_path):
    root = sample(tmp_path, title=7)
    with raises("task.invalid_field", "all_entities_refined.json, entry 0", "'title'"):
        load_published("telepathy", root)


def sample(root, **changes):
    import pyarrow as pa
    import pyarrow.parquet as pq

    row = {
        "id": "entity_1",
        "title": "Piano",
        "description": "I am thinking of an instrument.",
        "goal": "Guess.",
        "target_entity": "Piano - a wooden thing with black and white keys",
        "category": "musical_instrument",
    }
    path = root / "gyms/TelepathyGym/telepathygym/data/all_entities_refined.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps([{**row, **changes}, {**row, "id": "entity_2", "title": "Drum"}]))
    folder = root / "data/telepathy_multiturn"
    folder.mkdir(parents=True)
    for part, title in (("train", "Piano"), ("test", "Drum")):
        table = pa.Table.from_pylist([{"reward_model": {"title": title, "category": "musical_instrument"}}])
        pq.write_table(table, folder / f"{part}.parquet")
    return root


def test_of_a_message_of_megabytes_only_the_beginning_is_read():
    assert len(words("a " * 2_000_000)) == MAX_CHARACTERS // 2
