"""The smallest difference that is seen, against a review's table and a simulation of its definition."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from analysis.measure.power import SCORE_DEVIATION, smallest_seen


@pytest.mark.parametrize(("pairs", "score"), [(20, 0.38), (32, 0.30), (48, 0.24)])
def test_the_designed_sizes_see_these_differences(pairs: int, score: float) -> None:
    assert round(smallest_seen(pairs), 2) == score
    assert smallest_seen(pairs) == pytest.approx((0.8416212336 + 1.9599639845) * 0.6 / pairs**0.5)


def test_a_true_difference_of_that_size_is_found_in_four_of_five_studies() -> None:
    rng = np.random.default_rng(0)
    found = rng.normal(smallest_seen(48), SCORE_DEVIATION, (4000, 48))
    assert (stats.ttest_1samp(found, 0.0, axis=1).pvalue < 0.05).mean() == pytest.approx(0.8, abs=0.03)


def test_no_pair_sees_nothing() -> None:
    with pytest.raises(ValueError, match="at least one"):
        smallest_seen(0)
