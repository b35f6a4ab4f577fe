"""The costs are those of the rows of the studies."""

from __future__ import annotations

from lab.pages import costs
from userrl.claims.plan_study import plan_study


def test_the_page_is_that_of_the_data() -> None:
    page = costs.PAGE.read_text()
    assert page == costs.page(page)
    for study in costs.STUDIES:
        assert (costs.DATA / study.page.partition("#")[0]).is_file()


def test_gpu_hours_are_those_of_the_profile_per_token() -> None:
    assert 1e-4 < costs.gpu_seconds_of_token() < 1e-2
    laptop = plan_study("r2g-above-sum", seeds=1).as_json()[0]
    assert laptop["gpu_hours"] == 0.0 < laptop["cpu_hours"]
