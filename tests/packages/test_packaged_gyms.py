"""Separate packages: the tables name them; installed gyms are as those of the core, without them stored runs still open."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from curricula import load
from flows.cli.looking.show import lines
from flows.cli.runs import app as runs
from tests.makers import raises
from tests.places import ROOT
from tests.warehouse.makers import play
from userrl.machine.separate import GROUP, PARTS
from userrl.run.readiness import here, verdict
from userrl.run.run import RunDescription, claim
from userrl_core.gyms import make, registry
from userrl_core.gyms.registry import PACKAGED, names, unavailable
from warehouse import TurnLog, open_warehouse
from warehouse.query.browse import conversation

SENTENCE = "Gym 'voice' is a separate package. Install it with pip install ./packages/userrl-gym-voice."
SPOKEN = {
    "gyms.voice": {"tasks": {"domain": "outfitter"}, "config": {"check_outputs": False}},
    "stages": [{"steps": 6, "horizon": 30, "mix": {"voice": 1}}],
    "evaluate.gyms": ["voice"],
}


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing that is installed offers a gym."""
    monkeypatch.setattr(registry, "entry_points", lambda group: ())
    registry.packages.cache_clear()
    yield
    registry.packages.cache_clear()


def test_the_tables_name_the_packages_that_are_there_and_what_each_offers() -> None:
    gyms, parts = {}, []
    for file in ROOT.glob("packages/*/pyproject.toml"):
        project = tomllib.loads(file.read_text())["project"]
        ((group, offered),) = project["entry-points"].items()
        ((name, module),) = offered.items()
        assert (file.parent.name, module) == (project["name"], project["name"].replace("-", "_"))
        if group == "userrl.gyms":
            gyms[name] = project["name"]
        else:
            assert (group, name) == (GROUP, project["name"])
            parts.append(name)
    assert gyms == PACKAGED
    assert sorted(parts) == sorted(PARTS)


def test_every_package_is_held_to_the_types_and_contracts_of_the_rest() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    packages = {*PACKAGED.values(), *PARTS}
    modules = {package.replace("-", "_") for package in packages}
    assert modules <= {*tool["mypy"]["packages"]}
    assert modules <= {*tool["importlinter"]["root_packages"]}
    assert {Path(path).name for path in tool["mypy"]["mypy_path"]} == packages


def test_an_installed_package_s_gym_is_listed_among_ours_by_the_alphabet() -> None:
    ours = [name for name, path in registry.packages().items() if name in PACKAGED or path.startswith("userrl_core.")]
    assert ours == sorted(ours)
    assert ours == list(names()[: len(ours)])
    assert {*PACKAGED} <= {*ours}


@pytest.mark.usefixtures("no_package")
def test_without_its_package_a_gym_is_refused_with_the_command_that_installs_it() -> None:
    assert not {*PACKAGED} & {*names()}
    assert unavailable("voice") == SENTENCE
    for refused in (lambda: make("voice"), lambda: load("tarl", "laptop", SPOKEN)):
        with raises("gym.not_installed") as caught:
            refused()
        assert str(caught.value) == SENTENCE
    recipe = load("tarl", "laptop", SPOKEN, check=False)
    assert verdict(recipe, here()).sentence == SENTENCE


@pytest.mark.usefixtures("no_package")
def test_a_stored_run_of_a_gym_without_its_package_opens_and_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    recipe = load("tarl", "laptop", SPOKEN, check=False)
    run = claim("spoken-s0-1", RunDescription(resolved=recipe.resolved()), fresh=False, flow_run=None)
    with TurnLog.open(tmp_path / "warehouse", run.id) as log:
        traj_id = play(log, [0.0, 1.0], gym="voice").traj_id or 0
    shown = CliRunner().invoke(runs, ["show", run.id])
    assert (shown.exit_code, [line for line in shown.output.splitlines() if "install" in line]) == (
        0,
        [f"to play it: {SENTENCE}"],
    )
    with open_warehouse(tmp_path / "warehouse") as warehouse:
        assert warehouse.sql("select gym, count(*) from turns group by 1").fetchall() == [("voice", 2)]
        stored = conversation(warehouse, traj_id)
        assert stored is not None
        assert next(lines(stored)).startswith(f"trajectory {traj_id}: voice t1, run {run.id}")


def test_a_stored_run_whose_gyms_are_installed_has_nothing_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    recipe = load("tarl", "laptop", SPOKEN, check=False)
    run = claim("spoken-s0-1", RunDescription(resolved=recipe.resolved()), fresh=False, flow_run=None)
    assert "install" not in CliRunner().invoke(runs, ["show", run.id]).output
