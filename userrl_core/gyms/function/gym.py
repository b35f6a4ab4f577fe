"""FunctionGym: find the hidden rule over four numbers (UserRL appendix C, "FunctionGym").

``action`` gives the rule's value for four numbers, ``search`` shows the test case, ``answer`` is compared with the rule's
value on the test case. The rule itself is the only user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from userrl_core.errors import TaskError
from userrl_core.gyms.base import Gym, GymConfig, Reply, RewardBounds
from userrl_core.gyms.function.expression import compile_rule, evaluate
from userrl_core.interact import InteractCall
from userrl_core.records import Task

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_ONE = re.compile(rf"\s*({_NUMBER})\s*\Z", re.ASCII)
_FOUR = re.compile(r"\s*" + r"(?:\s+|\s*[,;]\s*)".join([rf"({_NUMBER})"] * 4) + r"\s*\Z", re.ASCII)
_LIST_MARKS = re.compile(r"[()\[\]{}]|\b[a-d]\s*=")
_MAX_CHARACTERS = 400
"""Longest accepted content. Four numbers need far fewer characters."""


class FunctionConfig(GymConfig):
    """Rewards and tolerances. The defaults are from UserRL appendix C unless marked ours."""

    correct_reward: float = 1.0
    """Reward of the right value."""

    wrong_reward: float = 0.0
    """Reward of a wrong value. The episode continues."""

    tolerance: float = Field(default=1e-6, ge=0.0)
    """Largest error of an answer that counts as right."""

    decimals: int = Field(default=4, ge=0)
    """Decimals of the values that an action shows (released code)."""

    guard: float = Field(default=0.01, ge=0.0)
    """An action with all four numbers this close to the test case is refused (ours; the released code compares text)."""


class FunctionGym(Gym[FunctionConfig]):
    """A hidden rule over four numbers (UserRL appendix C)."""

    name = "function"
    config_type = FunctionConfig
    metric = "Test Case Correctness"
    success_rule = "the right value was given, after wrong ones or at once"
    min_turns = 2
    hint = "Try numbers that change one position at a time, and look at the test case before you answer."
    goal = (
        "The user keeps a rule that turns four numbers a, b, c, d into one by simple arithmetic. Find it by trying numbers, "
        "then give its value for the test case."
    )
    choice_help: ClassVar[Mapping[str, str]] = {
        "action": "four numbers separated by spaces, e.g. '1 2 3 5'; the user gives the rule's value for them",
        "search": "'test': shows the four numbers of the test case; these cannot be tried",
        "answer": "one number, the rule's value for the test case; a wrong one may be followed by another",
    }

    def __init__(self, task: Task, user: object = None, config: FunctionConfig | None = None) -> None:
        """Parse the task's rule. Raises TaskError for an unreadable rule."""
        super().__init__(task, user, config)
        self._rule = compile_rule(str(task.payload["rule"]))
        self._test: tuple[float, ...] = tuple(float(x) for x in task.payload["test_case"])
        self._expected = float(task.payload["expected"])

    def opening(self) -> str:
        """Return the user's invitation, which says nothing about the rule."""
        return "I have my rule. Try four numbers, ask for the test case when you are ready, and tell me its value."

    def brief(self) -> str:
        """Return three words for the laptop model."""
        return "find my rule"

    async def action(self, content: str) -> Reply:
        """Return the rule's value for four numbers, rounded; never for the test case."""
        numbers = read_four(content)
        if numbers is None:
            return Reply("Give exactly four numbers, e.g. 1 2 3 5.")
        if self._is_test(numbers):
            return Reply("That is the test case; try other numbers.")
        value = evaluate(self._rule, numbers)
        if value is None:
            return Reply("undefined")
        return Reply(show(value, self.config.decimals))

    async def search(self, content: str) -> Reply:
        """Show the test case, for any content."""
        return Reply("test " + " ".join(show(x, 12) for x in self._test))

    async def answer(self, content: str) -> Reply:
        """Compare a value with the expected one. A right value ends the episode; a wrong or unreadable one does not."""
        match = _ONE.match(content) if len(content) <= _MAX_CHARACTERS else None
        if match is None:
            return Reply("Give one number.")
        if abs(float(match[1]) - self._expected) <= self.config.tolerance:
            return Reply("right", self.config.correct_reward, done=True, success=True)
        return Reply("wrong", self.config.wrong_reward)

    def _is_test(self, numbers: tuple[float, ...]) -> bool:
        guard = self.config.guard
        return all(abs(x - t) <= guard for x, t in zip(numbers, self._test, strict=True))

    @classmethod
    def reward_bounds(cls, config: FunctionConfig) -> RewardBounds:
        """Bound the rewards of right and wrong answers."""
        return RewardBounds.of_answers(config.correct_reward, config.wrong_reward)

    @classmethod
    def gold(cls, task: Task, config: FunctionConfig | None = None) -> list[InteractCall]:
        """Show the test case, then answer its value."""
        return [InteractCall("search", "test"), InteractCall("answer", show(float(task.payload["expected"]), 12))]


def read_four(content: str) -> tuple[float, ...] | None:
    """Parse exactly four numbers, decimal or scientific; None for anything else.

    They are separated by spaces, commas or semicolons, and may be in brackets. Names (``a=1``) are left out, as in the released
    code, so only the order counts.
    """
    match = _FOUR.match(_LIST_MARKS.sub(" ", content)) if len(content) <= _MAX_CHARACTERS else None
    if match is None:
        return None
    return tuple(map(float, match.groups()))


def show(value: float, decimals: int) -> str:
    """Format a value: rounded, without trailing zeros or a negative zero."""
    rounded = round(value, decimals)
    if rounded == int(rounded) and abs(rounded) < 1e15:
        return str(int(rounded))
    return repr(rounded)


def check_payload(payload: dict[str, object], where: str) -> None:
    """Raise TaskError unless the rule can be parsed and gives the expected value on the test case."""
    test, expected = payload["test_case"], payload["expected"]
    if not isinstance(test, list) or len(test) != 4 or not all(isinstance(x, (int, float)) for x in test):
        raise TaskError("task.invalid_field", f"{where}: test_case must be a list of four numbers.")
    if not isinstance(expected, (int, float)):
        raise TaskError("task.invalid_field", f"{where}: expected_result must be a number.")
    try:
        rule = compile_rule(str(payload["rule"]))
    except TaskError as error:
        raise TaskError("task.invalid_field", f"{where}: rule: {error}") from error
    value = evaluate(rule, [float(x) for x in test])
    if value is None or abs(value - expected) > 1e-6:
        raise TaskError(
            "task.invalid_field",
            f"{where}: expected_result is {expected}, but the rule gives {value} on the test case.",
        )
