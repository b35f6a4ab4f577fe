"""Numbers and intervals as every face shows them."""

from __future__ import annotations

import math
import re

import pytest

from analysis.measure.interval import Interval, t_interval
from tests.places import ROOT
from userrl_core.number_format import number, p_value, with_error, with_limits


@pytest.mark.parametrize(
    ("value", "shown", "signed"),
    [
        (0.5, "0.500", "+0.500"),
        (-0.1234, "−0.123", "−0.123"),
        (-0.0001, "0.000", "0.000"),
        (0.0, "0.000", "0.000"),
        (None, "–", "–"),
        (math.nan, "–", "–"),
        (-math.inf, "–", "–"),
    ],
)
def test_a_number_has_three_decimals_and_what_rounds_to_zero_has_no_sign(
    value: float | None, shown: str, signed: str
) -> None:
    assert (number(value), number(value, sign=True)) == (shown, signed)


def test_an_interval_has_its_limits_and_dashes_where_one_task_has_none() -> None:
    assert with_limits(Interval(0.25, -0.0004, 0.5, 8, "t")) == "0.250 [0.000, 0.500]"
    assert with_limits(Interval(0.25, -0.1, 0.5, 8, "t"), 2, sign=True) == "+0.25 [−0.10, +0.50]"
    import numpy as np

    assert str(t_interval(np.array([0.5]))) == "0.500 [–, –]"


def test_a_standard_error_is_shown_where_it_is_known() -> None:
    assert (with_error(0.5, 0.01), with_error(0.5, None), with_error(None, None)) == ("0.500 ± 0.010", "0.500", "–")
    assert [p_value(p) for p in (0.01234, 4.65e-05, 1.0, math.nan)] == ["0.0123", "4.65e-05", "1", "–"]


def test_no_face_formats_a_score_or_an_interval_by_itself() -> None:
    by_itself = re.compile(r":[+z]*\.3f")
    rooms = ("flows", "userrl", "sweeps", "analysis/measure", "analysis/credit", "packages")
    files = [path for room in rooms for path in (ROOT / room).rglob("*.py")]
    assert [str(path.relative_to(ROOT)) for path in files if by_itself.search(path.read_text(encoding="utf-8"))] == []
