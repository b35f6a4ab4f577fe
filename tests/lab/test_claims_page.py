"""The claims' pages are written from data files alone, and the files from homes."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from curricula.claims import load_claim
from lab.pages import claims, data_tables
from tests.places import ROOT
from tests.userrl.claims.test_claims import ended, trained, written
from userrl.claims.register import registered
from warehouse import open_warehouse

PAGE = claims.PAGE


def test_the_claims_of_the_page_are_those_of_its_data() -> None:
    page = PAGE.read_text()
    assert page == claims.page(page, claims.DATA)


def test_a_withdrawn_verdict_is_printed_nowhere() -> None:
    page = PAGE.read_text()
    names = claims.withdrawn(page)
    assert names == {"long-leads-early", "long-collapses-late", "scaling-cheaper"}
    for name in names:
        section = page.partition(f"### {name}\n")[2].partition("\n##")[0]
        assert section, name
        assert not [word for word in claims.DIRECTED if f"| {word} |" in section], name


@pytest.mark.parametrize("name", ["claims", "credit", "served-model"])
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
        with open_warehouse(home / "warehouse") as warehouse:
            claims.append(warehouse, data)
    assert len(pl.read_csv(data / "runs.csv")) == 32  # eight seeds of two arms, of the claim and of its check
    validation = pl.read_parquet(data / "validation.parquet")
    assert validation.filter(run="a")["score"].to_list() == [0.25, 0.5, 0.75]
    assert len(pl.read_parquet(data / "test.parquet")) == 8
    assert len(pl.read_parquet(data / "steps.parquet")) == 6
    runs = claims.rows(data / "runs.csv")
    assert [each.name for each in claims.checks(claim, runs)] == ["tiny.language-model"]
    said = "\n".join(claims.section(claim, runs, [], []))
    assert "- collapsed 0 of 8 against 0 of 8: 0.000 [−0.453, 0.453], Fisher's p 1: undecided." in said
    assert "**Reproduced, in miniature, at 0.1 M and at 135 M parameters, on errand.**" in said
    assert "1.000 1.000 1.000" in said
    assert "**Reproduced, in miniature, on errand.**" in "\n".join(
        claims.section(claim, [row for row in runs if row["claim"] == claim.name], [], [])
    )
    said = "\n".join(claims.checked(check, runs))
    assert "#### tiny.language-model\n\nWith a pretrained language model. Hash" in said
    assert "**Reproduced, with a pretrained model of 135 M parameters, on errand.**" in said
    assert list(claims.checked(check, [])) == []
