"""Packages of gyms that fail: who names the gym is told in a sentence, and nobody else is concerned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from curricula import load
from flows.cli import main as cli
from flows.cli.tasks import _counts
from tests.makers import raises
from tests.offered import in_this_process, offer
from tests.places import ROOT
from tests.userrl_core.test_same_name import copied
from userrl_core import gyms
from userrl_core.gyms.registry import min_turns, unavailable
from userrl_core.rewards import turn_advantages

Broken = Callable[..., AbstractContextManager[None]]
COIN = {"stages": [{"steps": 1, "horizon": 4, "mix": {"coin": 1}}], "evaluate.gyms": ["coin"]}


@contextmanager
def altered(example: str, place: Path, monkeypatch: pytest.MonkeyPatch, words: dict[str, str]) -> Iterator[None]:
    project = copied(ROOT / "examples" / example, place / example, words)
    offer(place / "site", project)
    monkeypatch.setenv("USERRL_HOME", str(place / "home"))
    with in_this_process(monkeypatch, place / "site", project):
        yield


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Broken:
    """The example's gym with other words in its files."""

    return lambda **words: altered("coin_gym", tmp_path, monkeypatch, words)


@pytest.mark.parametrize(
    ("old", "new", "fact"),
    [
        ("class CoinGym", "1 / 0\nclass CoinGym", "userrl_coin.gym cannot be imported (ZeroDivisionError: division"),
        (
            "class CoinGym",
            "raise SystemExit('bye')\nclass CoinGym",
            "userrl_coin.gym cannot be imported (SystemExit: bye at gym.py:11)",
        ),
        ("min_turns = 2", "min_turns = 'two'", "cannot be computed (TypeError: 'str' object is not callable)"),
        ("min_turns = 2", "reward_range = '0..1'", "its bounds of rewards cannot be computed (TypeError: "),
        (
            "return [task for",
            "raise OSError(2, 'gone', 'x')\n    return [task for",
            "cannot make its tasks (FileNotFoundError",
        ),
    ],
)
def test_a_recipe_with_a_gym_whose_package_fails_is_refused_in_a_sentence(
    broken: Broken, old: str, new: str, fact: str
) -> None:
    with broken(**{old: new}), raises("gym.bad_package", "Gym 'coin': ", fact, "Correct its package or uninstall it."):
        load("equalized-r2g", "laptop-quick", COIN)


@pytest.mark.parametrize(
    ("returned", "code", "fact"),
    [
        ("return None and [task for", "gym.bad_package", "userrl_coin.tasks returns None. Return a list of tasks."),
        ("return [{'id': 1}] or [task for", "gym.bad_package", "userrl_coin.tasks returns [{'id': 1}]. Return a list"),
        ("split = 'train'\n    return [task for", "gym.bad_package", "gives tasks of split 'train' for '"),
        ("return 2 * [task for", "task.duplicate", "userrl_coin.tasks gives 2 tasks of gym 'coin' with the id '"),
    ],
)
def test_tasks_that_are_none_or_of_another_split_or_twice_are_refused(
    broken: Broken, returned: str, code: str, fact: str
) -> None:
    with broken(**{"return [task for": returned}):
        with raises(code, fact):
            gyms.tasks("coin", "test")
        assert fact in _counts("coin")["problem"]
        assert _counts("errand")["gym"] == "errand"


def test_a_gym_that_lacks_a_module_or_has_a_failing_gold_is_named_by_the_check_of_tasks(broken: Broken) -> None:
    with broken(**{"class CoinGym": "import no_such_module\nclass CoinGym"}):
        assert unavailable("coin") == (
            "Gym 'coin' needs the module no_such_module, which is not installed. Install the extra envs."
        )
        done = CliRunner().invoke(cli.app, ["tasks", "validate", "coin"])
        assert "not available: the module no_such_module is not installed" in done.stderr


def test_a_gold_solution_that_raises_is_a_task_without_proof(broken: Broken) -> None:
    with broken(**{"return [InteractCall(": "raise OSError('gone')\n        return [InteractCall("}):
        done = CliRunner().invoke(cli.app, ["tasks", "validate", "coin", "--limit", "1"])
        assert "not provable: 1 x The gym failed on the gold solution: OSError: gone" in done.stdout
        assert min_turns(gyms.tasks("coin", "train")[0]) == 2


def test_a_credit_rule_and_a_schedule_that_cannot_be_imported_or_raise_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {
        "turns_N = real_NT": "raise KeyError('turns')\n    turns_N = real_NT",
        "class AtOnce": "1 / 0\nclass AtOnce",
    }
    with altered("rules", tmp_path, monkeypatch, words):
        with raises("credit.bad_package", "Shaping 'last_turn' failed (KeyError: 'turns' at credit.py:"):
            turn_advantages([[0, 1], [0, 0]], [0, 0], shaping="last_turn")
        at_once = {"schedule": {"kind": "at_once", "short": 4, "after": 2, "long": 8}}
        with raises(
            "schedule.bad_package", "userrl_rules.schedule:AtOnce of userrl-rules cannot be imported (ZeroDivision"
        ):
            load("equalized-r2g", "laptop", at_once)
