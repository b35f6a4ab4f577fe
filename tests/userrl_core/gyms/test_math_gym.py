"""The math gym: its problems, what counts as an answer, and its demonstrator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.makers import raises
from userrl_core.gyms import generate, load_published, make, tasks
from userrl_core.gyms.math.gym import read_integer
from userrl_core.gyms.validate import validate
from userrl_core.interact import InteractCall


def every_task():
    return [task for split in ("train", "validation", "test") for task in tasks("math", split)]


async def play(content: str, **config: object):
    task = next(t for t in every_task() if t.payload["answer"] > 1)
    gym = make("math", task, **config)
    gym.reset(seed=0)
    return gym, await gym.step(InteractCall("answer", content.replace("ANSWER", str(task.payload["answer"]))))


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


def test_the_tier_of_one_step_adds_or_takes_one_or_two_without_a_carry():
    found = [task for split in ("train", "validation", "test") for task in tasks("math", split, tier="step")]
    for task in found:
        a, sign, b = task.payload["question"].split()
        answer = int(a) + int(b) if sign == "+" else int(a) - int(b)
        assert (task.payload["answer"], task.tier, answer // 10, int(b) in (1, 2)) == (
            answer,
            "step",
            int(a) // 10,
            True,
        )
    assert len({task.id for task in found}) == len(found) == 2 * 90 * (9 + 8)


def test_problems_without_a_tier_are_none_of_one_step():
    assert {task.tier for task in every_task()} == {"easy", "medium", "hard"}
    assert {task.tier for task in generate("math", 60, 1)} == {"easy", "medium", "hard"}
    with raises("task.too_few", "step", "3060"):
        generate("math", 3061, 1, tier="step")


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


async def test_a_choice_that_is_not_allowed_does_not_use_up_an_answer():
    gym = make("math", tasks("math", "train")[0], attempts=2)
    gym.reset(seed=0)
    calls = [InteractCall("action", "hi"), InteractCall("answer", "no"), InteractCall("answer", "none")]
    assert [(await gym.step(call)).terminated for call in calls] == [False, False, True]


@given(st.integers(-(10**12), 10**12))
def test_an_integer_is_read_with_and_without_thousands_separators(n):
    assert read_integer(str(n)) == n
    assert read_integer(f"{n:,}") == n


def test_of_published_problems_those_with_a_whole_number_as_answer_are_taken_each_once(tmp_path: Path) -> None:
    rows = [
        {"problem": "What is 6 * 7?", "answer": "42", "solution": "Multiply."},
        {"problem": "What is 6 * 7?", "answer": "42"},
        {"problem": "How many?", "answer": "$-12{,}500$"},
        {"problem": "How many more?", "answer": 7},
        {"problem": "And with a point?", "answer": 4.0},
        *(
            {"problem": f"No whole number: {text}", "answer": text}
            for text in ("\\frac{1}{2}", "3.5", "5 cm", "1,23", "")
        ),
    ]
    (tmp_path / "deepscaler.json").write_text(json.dumps(rows))
    skipped = "6 of 10 problems were skipped: 5 without a whole number as answer, 1 repeated"
    with pytest.warns(UserWarning, match=skipped):
        found = load_published("math", tmp_path)
    assert [task.payload["answer"] for task in found] == [42, -12500, 7, 4]
    assert all(validate(task).ok and task.split == "train" for task in found)
    (tmp_path / "deepscaler.json").write_text('[{"answer": "1"}]')
    with raises("task.invalid_field", "entry 0", "'problem'"):
        load_published("math", tmp_path)


def test_a_released_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    problem, question = (
        {"problem": "What is 1 + 1?", "answer": "2"},
        {"id": "x", "question": "q", "golden_answers": ["a"]},
    )
    (tmp_path / "deepscaler.json").write_text("\ufeff" + json.dumps([problem]))
    (tmp_path / "nq").mkdir()
    (tmp_path / "nq" / "test.jsonl").write_text("\ufeff" + json.dumps(question))
    assert [task.payload["answer"] for task in load_published("math", tmp_path)] == [2]
    assert [task.payload["answers"] for task in load_published("searchqa", tmp_path)] == [["a"]]


def test_of_a_published_problem_with_two_answers_no_entry_is_kept(tmp_path: Path) -> None:
    answers = {"What is 1 + 1?": ("2", "3", "2"), "What is 1 + 2?": ("3", 3.0)}
    rows = [{"problem": problem, "answer": answer} for problem, many in answers.items() for answer in many]
    (tmp_path / "deepscaler.json").write_text(json.dumps(rows))
    with pytest.warns(UserWarning, match="4 of 5 problems were skipped: 3 with several answers, 1 repeated"):
        assert [task.payload["answer"] for task in load_published("math", tmp_path)] == [3]
