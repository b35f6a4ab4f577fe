"""Every error has a code, the page of errors explains exactly the codes that the code raises, and codes survive processes."""

from __future__ import annotations

import ast
import copy
import json
import pickle
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.makers import raises
from tests.places import ROOT
from userrl_core import errors
from userrl_core.errors import (
    LINE,
    ErrorReport,
    LogError,
    UserRLError,
    first_line,
    in_one_line,
    read_line,
    refuse_first,
)
from userrl_core.processes import ProcessDied
from userrl_core.served.client import ToolsRefused

ROOMS = ("userrl_core", "analysis", "curricula", "warehouse", "sweeps", "userrl", "flows", "packages", "examples")
PAGE = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
EXPLAINED = re.findall(r"^- `([a-z_]+\.[a-z_]+)`: .+[.?]$", PAGE, re.MULTILINE)
CLASSES = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, UserRLError)}
CLASSES |= {ProcessDied.__name__, ToolsRefused.__name__}
GIVEN_A_CODE = ("loaded", "installed_kind")
"""Functions of `installed/same_name.py` that raise with the code that they are given last."""
KINDS = [getattr(errors, name) for name in sorted(CLASSES & set(vars(errors)))] + [ProcessDied, ToolsRefused]


@pytest.fixture(scope="module")
def nodes() -> list[tuple[Path, ast.Call | ast.Constant]]:
    """All calls and constants of the sources, read once."""
    return [
        (path.relative_to(ROOT), node)
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        if "build" not in path.parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call | ast.Constant)
    ]


def test_every_error_names_a_code_of_the_page(nodes: list[tuple[Path, ast.Call | ast.Constant]]) -> None:
    wrong = []
    for path, node in nodes:
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name in GIVEN_A_CODE and path.name != "same_name.py":
                assert ast.literal_eval(node.args[-1]) in EXPLAINED, f"{path}:{node.lineno}"
            if name not in CLASSES:
                continue
            code = node.args[0] if node.args else None
            passed_on = isinstance(code, ast.Attribute) and code.attr == "code"  # another error's
            passed_on |= (
                isinstance(code, ast.Name) and path.name == "same_name.py"
            )  # that of the caller, in `GIVEN_A_CODE`
            named = isinstance(code, ast.Constant) and code.value in EXPLAINED
            if not (passed_on or named) or len(node.args) != 2:
                wrong.append(f"{path}:{node.lineno}: {ast.unparse(node)[:80]}")
    assert wrong == []


def test_every_code_of_the_page_is_used(nodes: list[tuple[Path, ast.Call | ast.Constant]]) -> None:
    used = {
        node.value
        for _, node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in EXPLAINED
    }
    assert sorted(set(EXPLAINED) - used) == []


def test_the_page_of_errors_has_one_line_for_each_code_in_order() -> None:
    assert sorted(set(EXPLAINED)) == EXPLAINED
    assert len(re.findall(r"^- ", PAGE, re.MULTILINE)) == len(EXPLAINED)


@pytest.mark.parametrize("kind", KINDS)
def test_a_code_survives_pickling_and_copying(kind: type[UserRLError]) -> None:
    error = kind("log.cannot_write", "The disk is full.")
    error.add_note("seen in a test")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301
        assert type(again) is kind
        assert (again.code, str(again), again.__notes__) == (error.code, "The disk is full.", ["seen in a test"])


def fails() -> None:
    raise LogError("log.full", "The log is full.")


def test_a_code_comes_back_from_another_process() -> None:
    with ProcessPoolExecutor(1) as pool, raises("log.full") as caught:
        pool.submit(fails).result()
    assert isinstance(caught.value, LogError)
    assert str(caught.value) == "The log is full."


def test_an_error_is_read_from_the_line_that_a_process_wrote() -> None:
    error = LogError("log.full", "The log [of a run] is full.")
    assert error.line == "error: The log [of a run] is full. [log.full]"
    assert read_line(error.line) == error.told == ErrorReport("log.full", "The log [of a run] is full.")
    assert read_line(f"{LINE}It failed.") == ErrorReport("process.failed", "It failed.")


def test_the_code_is_at_the_end_of_the_first_line() -> None:
    line = LogError("log.full", "It ended. Its last lines:\nfirst\nsecond").line
    assert line == "error: It ended. Its last lines: [log.full]\nfirst\nsecond"


class WithoutText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("its text fails too")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("\n  one\ntwo"), "one"),
        (ValueError("x" * 300), "x" * 200),
        (ValueError(), "ValueError"),
        (ValueError(" \n"), "ValueError"),
        (WithoutText(), "WithoutText"),
    ],
)
def test_an_error_has_a_first_line_whatever_its_text(error: Exception, line: str) -> None:
    assert first_line(error) == line


def test_an_error_whose_fault_is_in_a_later_line_is_told_in_one() -> None:
    assert in_one_line(ValueError("1 validation error\nfield\n  wrong")) == "ValueError: 1 validation error field wrong"
    assert in_one_line(WithoutText()) == "WithoutText"


def test_an_error_of_somebody_elses_code_names_its_innermost_line_that_is_no_librarys() -> None:
    def told(work: Callable[[], object]) -> str:
        with pytest.raises(Exception) as caught:
            work()
        return in_one_line(caught.value)

    here = rf"at {Path(__file__).name}:\d+"
    assert re.fullmatch(rf"ZeroDivisionError: division by zero {here}", told(lambda: 1 / 0))
    assert re.fullmatch(
        rf"JSONDecodeError: Expecting .* \(char 1\) {here}", told(lambda: json.loads("{"))
    )  # in the library
    assert told(lambda: refuse_first([(True, "argument.out_of_range", "Give less.")])) == "ConfigError: Give less."
