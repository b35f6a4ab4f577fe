"""The picture and the tables of data/environments are made from its data."""

from pathlib import Path

from lab.pages import environments
from lab.pages.environments import RUNS, SCORES
from lab.rows import read_rows
from lab.studies.registered import plan_hash, read_plan
from tests.places import ROOT

PLAN = ROOT / "lab" / "studies" / "environments.yaml"


def test_the_picture_is_drawn_from_the_data(tmp_path: Path) -> None:
    environments.draw(tmp_path / "training.svg")
    assert (tmp_path / "training.svg").read_bytes() == environments.PICTURE.read_bytes()


def test_every_reported_run_is_of_the_plan_and_has_a_score_for_each_step() -> None:
    plan = read_plan(PLAN)
    rows = read_rows(RUNS)
    assert {row["environment"] for row in rows} == set(plan["families"])
    for row in rows:
        assert row["plan"] == plan_hash(PLAN)
        assert row["seed"] >= plan["first_seed"]
        assert not row["commit"].endswith("+")
    scores = [(row["environment"], row["seed"], row["step"]) for row in read_rows(SCORES)]
    assert sorted(scores) == sorted(
        (row["environment"], row["seed"], step)
        for row in rows
        for step in range(1, plan["families"][row["environment"]]["steps"] + 1)
    )
