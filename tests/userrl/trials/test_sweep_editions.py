"""What a clock's sweeps are called, the winner as a recipe, and the commands that show both."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from curricula import load
from sweeps.results import Winner
from sweeps.space import load_space
from sweeps.study import open_study
from userrl.trials.sweep import ENDED, edition, newest, recipe_text
from userrl_core.errors import ConfigError
from userrl_core.json_files import write_json


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    return tmp_path


def begin(home: Path, name: str, *, ended: bool = False) -> None:
    space = load_space("gamma").model_copy(update={"name": name})
    write_json(home / "sweeps" / name / "space.json", {"space": space.model_dump(mode="json"), "storage": None})
    if ended:
        write_json(home / "sweeps" / name / ENDED, {"at": 0})


def test_the_first_edition_has_the_space_s_own_name_and_seed() -> None:
    space = load_space("gamma")
    assert newest("gamma") == 0
    assert edition(space, renew=True) == space


def test_a_clock_begins_a_new_edition_on_the_next_seed_once_the_last_has_ended(home: Path) -> None:
    space = load_space("gamma")
    begin(home, "gamma", ended=True)
    again = edition(space, renew=True)
    assert (again.name, again.seed) == ("gamma.2", space.seed + 1)
    begin(home, "gamma.2", ended=True)
    assert edition(space, renew=True).name == "gamma.3"


def test_an_edition_that_was_cut_off_is_continued(home: Path) -> None:
    begin(home, "gamma", ended=True)
    begin(home, "gamma.2")
    again = edition(load_space("gamma"), renew=True)
    assert (again.name, again.seed) == ("gamma.2", load_space("gamma").seed + 1)


def test_without_a_clock_the_newest_edition_goes_on(home: Path) -> None:
    begin(home, "gamma", ended=True)
    begin(home, "gamma.10", ended=True)
    begin(home, "gamma-schedule.12")
    assert edition(load_space("gamma"), renew=False).name == "gamma.10"


def test_the_winner_s_recipe_is_one_that_train_loads(tmp_path: Path) -> None:
    space = load_space("gamma-schedule")
    overrides = {"credit.gamma": 0.9, "stages.0.horizon": 4, "stages.1.horizon": 4, "stages.2.horizon": 6}
    path = tmp_path / "best.yaml"
    path.write_text(recipe_text(space, Winner(3, overrides, 0.5, [0.4, 0.6])))
    recipe = load(path, profile=None)
    assert recipe.credit.gamma == 0.9
    assert [row["horizon"] for row in recipe.stage_table()] == [4, 4, 6]
    assert "2 fresh seeds" in yaml.safe_load(path.read_text())["source"]
    original = load(space.recipe, profile=space.profile, overrides=overrides)
    said = {"name", "source", "profile"}
    assert {k: v for k, v in recipe.resolved().items() if k not in said} == {
        k: v for k, v in original.resolved().items() if k not in said
    }


def test_status_shows_the_newest_edition_and_dot_one_the_first(home: Path) -> None:
    from flows.cli.training.sweep import app

    for name in ("gamma", "gamma.2"):
        begin(home, name)
        open_study(load_space("gamma").model_copy(update={"name": name}), home / "sweeps" / name)
    said = CliRunner().invoke(app, ["status", "gamma"])
    assert said.exit_code == 0, said.output
    assert "0 of 4 trials done" in said.output
    assert (home / "sweeps" / "gamma.2" / "journal.log").exists()
    unknown = CliRunner().invoke(app, ["best", "gama"])
    assert isinstance(unknown.exception, ConfigError)
    assert "Known: gamma, gamma.2" in str(unknown.exception)
