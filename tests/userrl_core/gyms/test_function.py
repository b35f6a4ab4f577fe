"""FunctionGym: its rules, its published tasks, and the defects of the released code that it does not have."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.makers import raises
from tests.published import published
from userrl_core import gyms
from userrl_core.gyms.function.expression import compile_rule, evaluate
from userrl_core.gyms.function.gym import FunctionGym, read_four
from userrl_core.gyms.validate import validate
from userrl_core.interact import InteractCall
from userrl_core.records import Task


def make_task(rule: str = "c * (a * b) * d", test: tuple[int, ...] = (3, 5, 5, 3), expected: float = 225.0) -> Task:
    return Task("function", "t", "train", {"rule": rule, "test_case": list(test), "expected": expected})


def make_gym(**options: float) -> FunctionGym:
    gym = gyms.make("function", make_task(), **options)
    gym.reset(seed=0)
    assert isinstance(gym, FunctionGym)
    return gym


async def step(gym: FunctionGym, choice: str, content: str) -> tuple[str, float | None, bool]:
    result = await gym.step(InteractCall(choice, content))
    return result.observation, result.reward, result.terminated


async def test_an_action_gives_the_value_of_the_rule_and_no_reward():
    assert await step(make_gym(), "action", "1 2 3 4") == ("24", 0.0, False)


async def test_values_are_rounded_to_four_decimals():
    gym = gyms.make("function", make_task("a / b + c + d"))
    gym.reset(seed=0)
    assert (await gym.step(InteractCall("action", "1 3 0 0"))).observation == "0.3333"


async def test_search_shows_the_test_case_and_earns_nothing():
    assert await step(make_gym(), "search", "test") == ("test 3 5 5 3", 0.0, False)


async def test_the_right_answer_earns_one_and_ends_the_episode():
    gym = make_gym()
    assert await step(gym, "answer", "225") == ("right", 1.0, True)
    assert gym.succeeded
    assert gym.score() == 1.0
    with raises("gym.misused"):
        await gym.step(InteractCall("answer", "225"))


async def test_a_wrong_answer_may_be_followed_by_another():
    gym = make_gym()
    assert await step(gym, "answer", "224") == ("wrong", 0.0, False)
    assert await step(gym, "answer", "225.0") == ("right", 1.0, True)


@pytest.mark.parametrize(("answer", "right"), [("225.0000005", True), ("225.000002", False), ("2.25e2", True)])
async def test_an_answer_is_right_within_a_millionth(answer: str, right: bool):
    assert (await step(make_gym(), "answer", answer))[2] is right


@pytest.mark.parametrize("content", ["", "nan", "inf", "225 225", "about 225", "2_25", "0xE1", "225" * 200, "٢٢٥x"])
async def test_an_unreadable_answer_earns_nothing_and_does_not_end_the_episode(content: str):
    assert await step(make_gym(), "answer", content) == ("Give one number.", 0.0, False)


@pytest.mark.parametrize(
    "content", ["3 5 5 3", "3.0000001 5 5 3", "3,5,5,3", "3.0 5e0 50e-1 +3", "2.999 5 5 3", "[3, 5, 5, 3]"]
)
async def test_the_test_case_cannot_be_tried_in_any_notation(content: str):
    gym = make_gym()
    assert (await step(gym, "action", content))[0] == "That is the test case; try other numbers."


async def test_numbers_beside_the_test_case_can_be_tried():
    assert (await step(make_gym(), "action", "3 5 5 4"))[0] == "300"


async def test_scientific_notation_is_one_number_not_two():
    refused = "Give exactly four numbers, e.g. 1 2 3 5."
    assert (await step(make_gym(), "action", "1e2 3 4"))[0] == refused
    assert (await step(make_gym(), "action", "1e2 3 4 1"))[0] == "1200"


@pytest.mark.parametrize(
    "content", ["1-2-3-4", "1 2 3", "1 2 3 4 5", "a b c d", "1 2 3 nan", "", "1-2;3;4", "1 2 3 4 x", "e=1 2 3 4", "[]"]
)
async def test_anything_but_four_separate_numbers_is_refused(content: str):
    assert await step(make_gym(), "action", content) == ("Give exactly four numbers, e.g. 1 2 3 5.", 0.0, False)


@pytest.mark.parametrize(
    "content", ["[1, 2, 3, 4]", "(1,2,3,4)", "a=1 b=2 c=3 d=4", "a = 1, b = 2, c = 3, d = 4", "1;2; 3 ;4"]
)
async def test_four_numbers_may_be_a_list_or_have_names(content: str):
    assert await step(make_gym(), "action", content) == ("24", 0.0, False)


async def test_a_value_that_does_not_exist_is_undefined():
    for rule, content in (
        ("a / b + c + d", "1 0 2 3"),
        ("a ** b + c + d", "-8 0.5 1 1"),
        ("a ** b * c * d", "9e99 99 1 1"),
    ):
        gym = gyms.make("function", make_task(rule))
        gym.reset(seed=0)
        assert (await gym.step(InteractCall("action", content))).observation == "undefined"


@given(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4))
def test_four_numbers_are_read_back_as_they_were_written(numbers: list[float]):
    assert read_four(" ".join(map(repr, numbers))) == tuple(numbers)


_EXPRESSION = st.recursive(
    st.sampled_from(["a", "b", "c", "d", "2", "0.5"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%", "**"]), inner).map(
            lambda x: f"({x[0]}) {x[1]} {x[2]}"
        ),
        inner.map(lambda x: f"-{x}"),
        inner.map(lambda x: f"abs({x})"),
        st.tuples(inner, inner).map(lambda x: f"max({x[0]}, {x[1]})"),
    ),
    max_leaves=8,
)


@settings(max_examples=150)
@given(_EXPRESSION, st.tuples(*[st.integers(-5, 9).map(float)] * 4))
def test_rules_have_the_value_that_python_gives_them(text: str, numbers: tuple[float, ...]):
    names = dict(zip("abcd", numbers, strict=True))
    try:
        # Used in this test only: the text comes from the strategy above.
        expected = eval(compile(text, "rule", "eval"), {"__builtins__": {}, "abs": abs, "max": max}, names)  # noqa: S307
        expected = float(expected) if not isinstance(expected, complex) and math.isfinite(expected) else None
    except (ArithmeticError, TypeError):
        expected = None
    value = evaluate(compile_rule(text), numbers)
    assert value == expected or (value is not None and expected is not None and math.isclose(value, expected))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a +",
        "a b",
        "__import__('os')",
        "e + a",
        "a ** ",
        "(a",
        "a))",
        "min(a)",
        "abs(a, b)",
        "a.real",
        "lambda: 1",
        "1 = a",
        "True + a",
        "1j * a",
        "a if b else c",
        "a < b",
        "[a][0]",
        "max(*[a, b])",
        "max(a, b, key=c)",
        "'a' * 9",
        "1" * 400,
        "a\0",
    ],
)
def test_text_that_is_not_a_rule_is_refused(text: str):
    with raises("task.invalid_field"):
        compile_rule(text)


@pytest.mark.parametrize("text", ["(" * 5000 + "a" + ")" * 5000, "-" * 5000 + "a", "+a" * 5000, "a" + "**a" * 5000])
def test_a_rule_with_too_deep_nesting_is_refused(text: str):
    with raises("task.invalid_field"):
        compile_rule(text)


def test_a_tower_of_powers_is_undefined_at_once():
    assert evaluate(compile_rule("9 ** 9 ** 9 ** a"), (9.0, 1.0, 1.0, 1.0)) is None


def test_the_published_rules_load_with_their_splits_and_can_all_be_solved():
    published_tasks = gyms.load_published("function", published("userrl"))
    assert len(published_tasks) == 538
    assert sum(t.split == "test" for t in published_tasks) == 78
    assert {t.id for t in published_tasks} == {f"func-{i}" for i in range(1, 539)}
    assert [t.id for t in published_tasks if not validate(t).ok] == []


def write_release(root: Path, records: list[dict[str, object]], train: list[str], test: list[str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (root / "gyms/FunctionGym/functiongym/data").mkdir(parents=True)
    (root / "data/function_multiturn").mkdir(parents=True)
    (root / "gyms/FunctionGym/functiongym/data/functions.json").write_text(json.dumps(records))
    for split, ids in (("train", train), ("test", test)):
        rows = [{"reward_model": {"env_name": "FunctionGym", "ground_truth": "1", "id": task_id}} for task_id in ids]
        pq.write_table(pa.Table.from_pylist(rows), root / f"data/function_multiturn/{split}.parquet")


def make_record(number: int, **changed: object) -> dict[str, object]:
    record = {
        "id": f"func-{number}",
        "rule": "a + b * c - d",
        "test_case": [1, 2, 3, number],
        "expected_result": 7.0 - number,
    }
    return {**record, **changed}


def test_a_sample_in_the_published_format_loads(tmp_path: Path):
    write_release(tmp_path, [make_record(1), make_record(2)], ["func-1"], ["func-2"])
    assert {t.id: t.split == "test" for t in gyms.load_published("function", tmp_path)} == {
        "func-1": False,
        "func-2": True,
    }


@pytest.mark.parametrize(
    ("record", "code", "where"),
    [
        (make_record(2, rule="a +"), "task.invalid_field", "record 1: rule"),
        (make_record(2, test_case=[1, 2, 3]), "task.invalid_field", "record 1: test_case"),
        (make_record(2, expected_result=0.0), "task.invalid_field", "record 1: expected_result"),
        ({"id": "func-2", "rule": "a"}, "task.invalid_field", "record 1: field 'test_case'"),
        (make_record(1), "task.duplicate", "record 1: id 'func-1'"),
        (make_record(3), "task.file_unreadable", "1 of 2 entries that the table of released rows names are missing"),
        (make_record(2, id=["func-2"]), "task.invalid_field", "entry 1: field 'id'"),
    ],
)
def test_a_bad_published_row_names_file_index_and_field(
    tmp_path: Path, record: dict[str, object], code: str, where: str
):
    write_release(tmp_path, [make_record(1), record], ["func-1"], ["func-2"])
    with raises(code, where):
        gyms.load_published("function", tmp_path)
