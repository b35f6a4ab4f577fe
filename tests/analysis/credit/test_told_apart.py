"""Which credit rules differ: joint limits over all pairs of rules, tasks resampled."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from analysis.credit.agreement import Measures, corrected_of, cosine_of
from analysis.credit.told_apart import few_tasks, told_apart


def rule(name: str, e1: np.ndarray, e2: np.ndarray, u1: np.ndarray, u2: np.ndarray) -> Measures:
    """A rule by its halves of expected advantages and of utilities, [tasks, turns]."""
    pairs = ((e1, u2), (e2, u1), (e1, e1), (e2, e2), (u1, u1), (u2, u2), (e1, e2), (u1, u2))
    sums = np.stack([(a * b).sum(axis=1) for a, b in pairs], axis=1)
    cosine = SimpleNamespace(estimate=float(cosine_of(sums.sum(axis=0))))
    return cast("Measures", SimpleNamespace(sums=sums, cosine=cosine, rule=SimpleNamespace(name=name)))


def audited(*agreement: float, tasks: int = 40, noise: float = 0.3, names: str = "abcdef") -> list[Measures]:
    """Rules whose expected advantages are the utility times their agreement, plus an error of their own."""
    rng = np.random.default_rng(3)

    def half(values: np.ndarray) -> np.ndarray:
        return values + rng.normal(0, noise, values.shape)

    true = rng.normal(size=(tasks, 30))
    u1, u2 = half(true), half(true)
    rows = []
    for name, share in zip(names, agreement, strict=False):
        given = share * true + rng.normal(0, 1 - share, true.shape)
        rows.append(rule(name, half(given), half(given), u1, u2))
    return rows


def test_a_rule_that_agrees_less_is_named_as_lower_and_an_equal_one_cannot_be_told_apart() -> None:
    found = told_apart(audited(0.6, 0.6, 0.2))
    assert found is not None
    assert {found.best} | {name for name, _ in found.open} == {"a", "b"}
    ((lower, by),) = found.lower
    assert lower == "c"
    assert 0 < by.low < by.estimate < by.high
    assert (found.pairs, found.differ) == (3, 2)
    ((_, near),) = found.open
    assert near.low < 0 < near.high


def test_more_noise_alone_makes_no_rule_lower() -> None:
    rng = np.random.default_rng(0)
    true = rng.normal(size=(40, 30))
    u1, u2 = (true + rng.normal(0, 0.3, true.shape) for _ in range(2))
    given = 0.5 * true + rng.normal(0, 0.5, true.shape)
    quiet = rule("quiet", given, given, u1, u2)
    e1, e2 = (given + rng.normal(0, 1.5, true.shape) for _ in range(2))
    noisy = rule("noisy", e1, e2, u1, u2)
    found = told_apart([noisy, quiet])
    assert quiet.cosine.estimate > 1.5 * noisy.cosine.estimate
    assert found is not None
    assert (found.best, found.lower, found.differ) == ("quiet", (), 0)


def test_the_same_rule_under_two_names_never_differs_from_itself() -> None:
    (first,) = audited(0.6)
    again = cast("Measures", SimpleNamespace(**{**vars(first), "rule": SimpleNamespace(name="again")}))
    found = told_apart([first, again, *audited(0.2, names="z")])
    assert found is not None
    assert [name for name, _ in found.open] == ["again"]
    assert found.open[0][1].estimate == 0.0


@pytest.mark.parametrize(("tasks", "rules"), [(19, 2), (40, 1)])
def test_too_few_tasks_or_rules_compare_nothing(tasks: int, rules: int) -> None:
    assert told_apart(audited(*[0.6, 0.2][:rules], tasks=tasks)) is None


def test_the_correction_removes_the_noise_of_both_halves() -> None:
    sums = np.array([[3.0, 5.0, 9.0, 9.0, 16.0, 16.0, 4.0, 16.0]])
    assert cosine_of(sums)[0] == pytest.approx((3 / 12 + 5 / 12) / 2)
    assert corrected_of(sums)[0] == pytest.approx(4 / 8)
    assert np.isnan(corrected_of(np.array([[3.0, 5.0, 9.0, 9.0, 16.0, 16.0, -4.0, 16.0]]))[0])


def test_limits_are_wider_for_few_tasks_as_student_s_are() -> None:
    assert few_tasks(20) == pytest.approx(2.0930 / 1.9600 * np.sqrt(20 / 19), abs=1e-4)


def test_a_difference_has_the_same_size_whatever_it_is_compared_beside() -> None:
    rows = audited(0.7, 0.4, 0.2)
    both: Any = told_apart(rows)
    alone: Any = told_apart(rows[:2])
    assert dict(both.lower)["b"].estimate == pytest.approx(alone.lower[0][1].estimate)
    assert dict(both.lower)["b"].high > alone.lower[0][1].high  # more pairs, wider limits
