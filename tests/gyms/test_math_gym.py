"""The math gym: its problems, what counts as an answer, and its demonstrator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from userrl_core.errors import ConfigError, TaskError
from userrl_core.gyms import generate, load_published, make, tasks
from userrl_core.gyms.math.gym import MathConfig, MathGym, read_integer
from userrl_core.gyms.validate import validate
from userrl_core.interact import InteractCall
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.rollout import run_episodes


def every_task():
    return [task for split in ("train", "validation", "test") for task in tasks("math", split)]


async def play(content: str, **config: object):
    task = next(t for t in every_task() if t.payload["answer"] > 1)
    gym = make("math", task, **config)
    gym.reset(seed=0)
    return gym, await gym.step(InteractCall("answer", content.replace("ANSWER", str(task.payload["answer"]))))


def test_every_split_and_tier_has_problems_and_no_problem_occurs_twice():
    assert len({task.payload["question"] for task in every_task()}) == 900
    for split in ("train", "validation", "test"):
        for tier in ("easy", "medium", "hard"):
            assert len(tasks("math", split, tier=tier)) >= 4, (split, tier)


def test_generated_problems_depend_on_the_seed_alone():
    assert generate("math", 50, 3) == generate("math", 50, 3)
    assert generate("math", 50, 3) != generate("math", 50, 4)
    assert {task.tier for task in generate("math", 10, 3, tier="hard")} == {"hard"}


def test_an_unknown_tier_is_refused():
    with pytest.raises(ConfigError, match="no tier 'huge'"):
        tasks("math", "train", tier="huge")


def test_stated_arithmetic_gives_the_stored_answer():
    for task in tasks("math", "train", tier="easy"):
        question = task.payload["question"]
        if not question.startswith("What is "):
            continue
        numbers = [
            int(n) for n in question.replace("(", " ").replace(")", " ").replace("?", " ").split() if n.isdigit()
        ]
        a, b, c, *d = numbers
        expected = (a - b) * c if not d else a * b + c * d[0]
        assert task.payload["answer"] == expected, question


@pytest.mark.parametrize(
    "text", ["ANSWER", "x = ANSWER", "\\boxed{ANSWER}", "The answer is ANSWER.", "ANSWER.0", " +ANSWER "]
)
async def test_a_right_answer_earns_one_and_ends_the_episode(text):
    gym, result = await play(text)
    assert (result.reward, result.terminated, gym.succeeded) == (1.0, True, True)


@pytest.mark.parametrize("text", ["", "ANSWER or 1000", "ANSWER.5", "-ANSWER", "1e9", "many", "9" * 5000, "١٢"])
async def test_any_other_answer_earns_nothing_and_uses_up_the_only_answer(text):
    gym, result = await play(text)
    assert (result.reward, result.terminated, gym.succeeded) == (0.0, True, False)


async def test_the_config_may_allow_further_answers():
    gym, result = await play("-1", attempts=2)
    assert not result.terminated
    assert (await gym.step(InteractCall("answer", str(gym.task.payload["answer"])))).reward == 1.0


async def test_only_answering_is_allowed():
    gym = make("math")
    gym.reset(seed=0)
    result = await gym.step(InteractCall("action", "Please?"))
    assert (MathGym.choices(), result.reward, result.info["disallowed"]) == (("answer",), 0.0, True)


@given(st.integers(-(10**12), 10**12))
def test_an_integer_is_read_with_and_without_thousands_separators(n):
    assert read_integer(str(n)) == n
    assert read_integer(f"{n:,}") == n


@given(st.text(max_size=200))
def test_reading_an_integer_never_raises(text):
    assert read_integer(text) is None or isinstance(read_integer(text), int)


async def test_the_gold_solution_and_full_skill_reach_the_full_score_and_no_skill_reaches_none():
    test_tasks = list(tasks("math", "test"))
    assert all(MathGym.gold(task, MathConfig())[0].content == str(task.payload["answer"]) for task in test_tasks)
    for skill, expected in ((1.0, {1.0}), (0.0, {0.0})):
        assert {t.score for t in await run_episodes(test_tasks, ScriptedPolicy(skill), horizon=1)} == expected


def test_of_published_problems_those_with_a_whole_number_as_answer_are_taken_each_once(tmp_path: Path) -> None:
    rows = [
        {"problem": "What is 6 * 7?", "answer": "42", "solution": "Multiply."},
        {"problem": "What is 6 * 7?", "answer": "42"},
        {"problem": "How many?", "answer": "$-12{,}500$"},
        {"problem": "How many more?", "answer": 7},
        *(
            {"problem": f"No whole number: {text}", "answer": text}
            for text in ("\\frac{1}{2}", "3.5", "5 cm", "1,23", "")
        ),
    ]
    (tmp_path / "deepscaler.json").write_text(json.dumps(rows))
    found = load_published("math", tmp_path)
    assert [task.payload["answer"] for task in found] == [42, -12500, 7]
    assert all(validate(task).ok and task.split == "train" for task in found)
    (tmp_path / "deepscaler.json").write_text('[{"answer": "1"}]')
    with pytest.raises(TaskError, match="entry 0: field 'problem' must be text"):
        load_published("math", tmp_path)
