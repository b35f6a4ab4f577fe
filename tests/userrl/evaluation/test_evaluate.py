"""``userrl.evaluate``: one evaluation or a grid, from Python."""

from __future__ import annotations

from pathlib import Path

import pytest

import userrl
from tests.makers import raises
from userrl.evaluation.evaluate import ScoredEvaluation
from userrl.evaluation.grid import GridResult

pytestmark = pytest.mark.usefixtures("prepared")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    return tmp_path


def test_one_evaluation_is_rows_a_table_and_a_text_and_prints_nothing_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = userrl.evaluate("demonstrator", suite="quick", gyms=["errand"], tasks=2, turns=8, progress=False)
    assert isinstance(done, ScoredEvaluation)
    assert (done.scored, done.suite) == (True, "quick")
    [row] = done.rows
    assert (row.gym, row.tasks, row.horizon) == ("errand", 2, 8)
    assert done.to_polars().select("run", "gym", "score").rows() == [(done.run, "errand", row.score)]
    assert str(done).splitlines()[0] == f"{row.actor}  errand  {row.interval()}  (2 trajectories, 0 rejected)"
    assert done.as_json()["rows"] == [row.model_dump()]
    assert capsys.readouterr() == ("", "")
    assert "demonstrations of SFT" not in str(userrl.report(done.run))  # nothing was trained


def test_a_suite_of_categories_shows_every_depth_of_textcraft_beside_the_gym() -> None:
    done = userrl.evaluate(
        "demonstrator", suite="agentgym-rl", gyms=["textcraft"], tasks=20, attempts=2, progress=False
    )
    assert isinstance(done, ScoredEvaluation)
    whole, *parts = done.rows
    assert (whole.tier, [row.tier for row in parts]) == ("", ["depth-1", "depth-2", "depth-3", "depth-4"])
    assert sum(row.tasks for row in parts) == whole.tasks == 20
    assert sum(row.trajectories for row in parts) == whole.trajectories == 40
    for row in done.rows:
        assert set(row.more) == {"pass@1", "pass@2", "earned@1", "earned@2"}
        assert row.more["pass@1"] == row.score  # a reward of 1 for the goal alone: Avg@2 is the share solved
    assert f"  textcraft  depth-4  {parts[-1].interval()}  (" in str(done)


def test_several_horizons_are_a_grid_with_one_table_and_one_plot(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = userrl.evaluate("demonstrator", suite="quick", gyms=["errand"], tasks=2, turns=[4, 8], progress=False)
    assert isinstance(done, GridResult)
    assert done.scored
    assert done.to_polars()["horizon"].to_list() == [4, 8]
    assert str(done).count("| demonstrator |") == 2
    assert str(done).splitlines()[-1] == f"plot: {done.plot}, plot data: {done.file}"
    assert (done.file.parent, done.plot.is_file()) == (home / "grids", True)
    assert capsys.readouterr() == ("", "")


def test_a_served_model_and_a_checkpoint_cannot_both_play() -> None:
    with raises("argument.conflict"):
        userrl.evaluate("demonstrator", model="m")
