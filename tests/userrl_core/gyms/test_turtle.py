"""TurtleGym: its stories, grades and rewards, and its users."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.makers import raises
from tests.mock_server import Answer, MockServer
from tests.published import published
from userrl_core.gyms import load_published, make, tasks
from userrl_core.gyms.stemming import content_words
from userrl_core.gyms.turtle.gym import TurtleConfig, TurtleGym, full_explanation
from userrl_core.interact import InteractCall
from userrl_core.records import Task


class ScriptedUser:
    """A user with given grades."""

    def __init__(self, *grades: list[float]) -> None:
        self._grades = list(grades)

    async def reply(self, question: str) -> str:
        return "Maybe"

    async def grade(self, explanation: str) -> list[float]:
        return self._grades.pop(0)


def story(*weights: str) -> Task:
    criteria = [{"statement": f"Fact {w}.", "weight": w, "pattern": [["fact"]], "ask": "?"} for w in weights]
    payload = {"title": "T", "surface": "S", "bottom": "B", "criteria": criteria, "yes": [], "no": []}
    return Task("turtle", "t", "train", payload)


def started(task: Task, user: object = "rule", **config: object) -> TurtleGym:
    gym = make("turtle", task, user, **config)
    gym.reset(seed=0)
    return gym


def every_task() -> list[Task]:
    return [task for split in ("train", "validation", "test") for task in tasks("turtle", split)]


def test_the_weights_of_every_story_sum_to_one_hundred():
    for task in every_task():
        assert sum(Fraction(c["weight"]) for c in task.payload["criteria"]) == 100, task.payload["title"]


async def test_the_hidden_story_alone_explains_everything_and_the_surface_nothing():
    for task in every_task():
        gym = started(task, threshold=1.0)
        assert (await gym.step(InteractCall("answer", task.payload["surface"]))).reward == 0.0, task.payload["title"]
        assert (await gym.step(InteractCall("answer", task.payload["bottom"]))).terminated, task.payload["title"]


async def test_each_criterions_own_statement_meets_it_in_full():
    for task in every_task():
        for number, criterion in enumerate(task.payload["criteria"]):
            assert (await started(task).user.grade(criterion["statement"]))[number] == 1.0, criterion["statement"]


async def test_a_list_of_other_stories_words_earns_nothing():
    for task in every_task():
        statements = (
            c["statement"] for other in every_task() if other.id != task.id for c in other.payload["criteria"]
        )
        assert set(await started(task).user.grade(" ".join(statements))) == {0.0}, task.payload["title"]


async def test_an_explanation_may_be_wrapped_in_the_surface_and_in_doubts():
    for task in every_task():
        doubts = "I am not sure, and perhaps it was a dream or a joke, but more likely this is the explanation:"
        text = f"{task.payload['surface']} {doubts} {task.payload['bottom']}"
        assert set(await started(task).user.grade(text)) == {1.0}, task.payload["title"]


async def test_each_explanation_earns_its_improvement_over_the_best_one():
    gym = started(story("50", "30", "20"), ScriptedUser([0, 1, 0], [0, 0.5, 0], [0.5, 1, 0], [1, 1, 1]))
    rewards = [(await gym.step(InteractCall("answer", "x"))).reward for _ in range(4)]
    assert rewards == [0.3, 0.0, 0.25, 0.45]
    assert gym.score() == pytest.approx(1.0, abs=1e-12)
    assert gym.done


async def test_the_same_explanation_is_not_rewarded_twice():
    gym = started(story("50", "50"), ScriptedUser([1, 0], [1, 0], [0, 1]))
    assert [(await gym.step(InteractCall("answer", "x"))).reward for _ in range(3)] == [0.5, 0.0, 0.0]


@given(st.lists(st.integers(1, 99), min_size=1, max_size=8))
async def test_a_perfect_explanation_ends_the_episode_whatever_the_float_sum_of_the_weights(parts):
    # Weights such as 0.1 + 0.2 + 0.7 sum to 0.9999999999999999 in floating point.
    weights = [str(part / sum(parts)) for part in parts]
    gym = started(story(*weights), ScriptedUser([1.0] * len(parts)), threshold=1.0)
    result = await gym.step(InteractCall("answer", "x"))
    assert (result.reward, result.terminated, gym.succeeded) == (1.0, True, True)


async def test_the_episode_ends_at_the_threshold_and_not_below():
    below = started(story("89", "11"), ScriptedUser([1, 0]))
    assert not (await below.step(InteractCall("answer", "x"))).terminated
    at_threshold = started(story("90", "10"), ScriptedUser([1, 0]))
    result = await at_threshold.step(InteractCall("answer", "x"))
    assert (result.terminated, at_threshold.succeeded, result.reward) == (True, True, 0.9)
    training = started(story("90", "10"), ScriptedUser([1, 0]), threshold=1.0)
    assert not (await training.step(InteractCall("answer", "x"))).terminated


async def test_feedback_never_holds_a_word_of_a_covered_criterion():
    for task in every_task():
        first = task.payload["criteria"][0]
        gym = started(task)
        result = await gym.step(InteractCall("answer", first["statement"]))
        assert result.reward > 0, task.payload["title"]
        hidden = set(content_words(first["statement"])) - {"whole", "part", "points", "happened"}
        assert not hidden & set(content_words(result.observation)), task.payload["title"]


@pytest.mark.parametrize("grades", [[1.0], [1.0, 1.0, 1.0], [0.7, 1.0], [float("nan"), 1.0], [2.0, 0.0]])
async def test_invalid_grades_are_a_judge_error_and_nothing_is_scored(grades):
    gym = started(story("50", "50"), ScriptedUser(grades))
    with raises("judge.no_reply"):
        await gym.step(InteractCall("answer", "x"))
    assert gym.rewards == []


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Was there ash from a volcano?", "Yes"),
        ("Was it a burglar?", "No"),
        ("Is she in danger?", "Yes"),
        ("Was it not a volcano erupting ash?", "Maybe"),
        ("Does she like cheese?", "Maybe"),
        ("   ", "Maybe"),
    ],
)
async def test_the_rule_user_answers_questions_by_the_storys_patterns(question, expected):
    task = next(t for t in every_task() if t.payload["title"] == "Rain on the Roof")
    result = await started(task).step(InteractCall("action", question))
    assert (result.observation, result.reward) == (expected, 0.0)


async def test_only_the_served_users_judgements_reach_the_agent():
    def brain(body):
        reply = {
            "thought": "The volcano!",
            "response": "YES",
            "criterion_1": "full",
            "criterion_2": "part",
            "criterion_3": "none",
        }
        return Answer(json.dumps(reply))

    task = next(t for t in every_task() if t.payload["title"] == "Rain on the Roof")
    with MockServer(brain) as server:
        gym = started(task, ("openai", {"base_url": server.base_url, "model": "m"}))
        question = await gym.step(InteractCall("action", "Is it loud?"))
        explanation = await gym.step(InteractCall("answer", "It was loud."))
    assert question.observation == "Yes"
    assert explanation.reward == 0.625
    assert explanation.observation == "Of 3 points of the story you have 1 right and 1 in part. There is more to it."
    assert [call.role for call in gym.ledger] == ["user", "judge"]


async def test_a_perfect_explanation_ends_every_released_story_at_threshold_one():
    loaded = load_published("turtle", published("userrl"))
    assert len(loaded) == 471
    assert sum(task.split == "test" for task in loaded) == 48
    for task in loaded:
        gym = started(task, threshold=1.0)
        (call,) = TurtleGym.gold(task, TurtleConfig())
        result = await gym.step(call)
        assert (result.reward, result.terminated) == (1.0, True), task.payload["title"]


def test_a_bad_released_story_names_file_entry_and_field(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "gyms/TurtleGym/turtlegym/data/all_stories_refined.json"
    path.parent.mkdir(parents=True)
    good = {
        "new_title": "A",
        "new_surface": "S",
        "new_bottom": "B",
        "evaluation": [{"statement": "It was ash.", "score": 1.0}],
    }
    folder = tmp_path / "data/turtle_multiturn"
    folder.mkdir(parents=True)
    for part, title in (("train", "A"), ("test", "Z")):
        pq.write_table(pa.Table.from_pylist([{"reward_model": {"title": title}}]), folder / f"{part}.parquet")
    path.write_text(json.dumps({"5": good}))
    with raises("task.file_unreadable", "1 of 2 entries", "refined.json, such as 'Z'"):
        load_published("turtle", tmp_path)
    path.write_text(json.dumps({"5": good, "7": {**good, "new_title": "Z"}, "8": {**good, "new_title": "Y"}}))
    with raises("task.file_unreadable", "1 of 3 entries", "missing from the table of released rows, such as 'Y'"):
        load_published("turtle", tmp_path)
    path.write_text(json.dumps({"5": good, "7": {**good, "new_title": "Z"}}))
    task, _ = load_published("turtle", tmp_path)
    assert (task.id, task.payload["criteria"][0]["weight"]) == ("5", "1.0")
    assert "It was ash." in full_explanation(task)
    path.write_text(json.dumps({"5": good, "6": {**good, "evaluation": [{"statement": "x", "score": "1"}]}}))
    with raises("task.invalid_field", "entry 6", "criterion 0", "'score'"):
        load_published("turtle", tmp_path)
