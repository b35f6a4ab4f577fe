"""The claims' pages are written from data files alone, and the files from homes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from analysis.measure.interval import t_interval
from curricula.claims import load_claim
from lab.pages import claims, data_tables
from tests.places import ROOT
from tests.userrl.claims.test_claims import ended, trained, written
from userrl.claims.register import registered
from userrl_core.number_format import with_limits

PAGE = claims.PAGE


def test_the_table_and_the_picture_are_those_of_the_data() -> None:
    page = PAGE.read_text()
    assert page == claims.page(page, claims.DATA)
    assert claims.PICTURE.read_text() == claims.draw(claims.rows(claims.DATA / "runs.csv"))


def test_a_withdrawn_verdict_is_said_to_be_withdrawn_until_a_run_gives_one() -> None:
    page = PAGE.read_text()
    for name in ("long-collapses-late", "long-leads-early", "scaling-cheaper"):
        [line] = [line for line in page.splitlines() if line.startswith(f"| `{name}`:")]
        assert line.rpartition("| withdrawn (")[1], name


def test_at_equal_conversations_the_long_horizon_leads_early_as_the_page_says() -> None:
    runs = pl.read_csv(claims.DATA / "runs.csv", infer_schema_length=None).filter(claim="long-leads-early")
    validation = pl.read_parquet(claims.DATA / "validation.parquet").join(runs.select("run", "arm", "seed"), on="run")
    weighted = (pl.col("score") * pl.col("n")).sum() / pl.col("n").sum()
    curves = validation.group_by("arm", "seed", "step").agg(weighted, pl.col("conversations").first()).drop_nulls()

    def score(arm: str, seed: int, conversations: int) -> float:
        curve = curves.filter(arm=arm, seed=seed).sort("step")
        return float(np.interp(conversations, curve["conversations"], curve["score"]))

    page = re.sub(r"\s+", " ", PAGE.read_text())
    for conversations, after in ((1500, "1,500 conversations"), (2000, "2,000")):
        leads = [score("long", seed, conversations) - score("short", seed, conversations) for seed in range(101, 109)]
        assert f"by {with_limits(t_interval(np.array(leads)))} after {after}" in page


def test_what_the_alarms_read_covers_the_steps_of_its_runs_and_a_fall_lasts() -> None:
    alarms, steps = (pl.read_parquet(claims.DATA / f"{name}.parquet") for name in ("alarms", "steps"))
    of_runs = steps.join(alarms.select("run").unique(), on="run")
    assert alarms.select("run", "step").sort("run", "step").equals(of_runs.select("run", "step").sort("run", "step"))
    by_run = alarms.sort("run", "step").group_by("run").agg("validation_fell")["validation_fell"].to_list()
    assert all(falls == sorted(falls) for falls in by_run)
    assert {any(falls) for falls in by_run} == {True, False}


@pytest.mark.parametrize("name", ["credit", "environments", "results", "served-model"])
def test_the_marked_tables_are_those_of_their_files(name: str) -> None:
    page = (ROOT / "data" / name / "README.md").read_text()
    assert page == data_tables.with_tables(page)
    assert "<!-- table data/" in page


def test_a_home_s_runs_are_appended_and_measured_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, data = tmp_path / "home", tmp_path / "data"
    monkeypatch.setenv("USERRL_HOME", str(home))
    (home / "warehouse").mkdir(parents=True)
    claim = load_claim(written(tmp_path))
    for run, score in (("a", 1.0), ("b", 0.0)):
        trained(home / "warehouse", run, {("RL", 100): [score] * 4})
    check = claim.check("language-model")
    for each in (claim, check):
        with registered(each, changed_budget=False) as register:
            for seed in range(101, 109):
                for arm, run in (("r2g", "a"), ("mean", "b")):
                    ended(register, arm, seed, run)
    for _ in range(2):  # a second time adds nothing
        claims.append(home / "warehouse", data)
    runs = pl.read_csv(data / "runs.csv")
    assert len(runs) == 32  # eight seeds of two arms, of the claim and of its check
    assert {"commit", "started", "machine", "code", "cpu_seconds"} < set(runs.columns)
    validation = pl.read_parquet(data / "validation.parquet")
    assert validation.filter(run="a")["score"].to_list() == [0.25, 0.5, 0.75]
    assert len(pl.read_parquet(data / "test.parquet")) == 8
    assert len(pl.read_parquet(data / "steps.parquet")) == 6
    (data / "former.csv").write_text(
        "claim,hash,registered,verdict,seeds,difference,low,high\ntiny,,,undecided,8,.1,-.1,.3\n"
    )
    monkeypatch.setattr(claims, "claim_names", lambda: [str(tmp_path / "tiny.yaml")])
    marked = "before\n<!-- written by lab/pages/claims.py -->\nold\n<!-- /written -->\nafter\n"
    same = "collapsed 0 of 8 against 0 of 8; score 1.000 [1.000, 1.000]"
    assert f"| **reproduced** | **reproduced**, 8 seeds: {same} | {same} | 8 | undecided |" in claims.page(marked, data)
    (data / "runs.csv").unlink()
    page = claims.page(marked, data)
    assert "| no runs by this rule | – | – | – | undecided, .1 [-.1, .3] |" in page
    assert (page.startswith("before\n"), page.endswith("\nafter\n"), "old" in page) == (True, True, False)
