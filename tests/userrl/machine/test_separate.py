"""Parts of the library that are separate packages: without one each entrance names the command that installs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import userrl
from tests.makers import raises
from tests.places import ROOT
from userrl.machine.separate import PARTS, installed, part
from userrl_core.installed import same_name


@pytest.fixture
def without_packages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An environment in which no package offers a part."""
    monkeypatch.setattr(same_name, "entry_points", lambda group: ())
    same_name.offered.cache_clear()
    yield
    same_name.offered.cache_clear()


@pytest.mark.usefixtures("without_packages")
@pytest.mark.parametrize("package", PARTS)
def test_a_package_that_is_missing_is_named_with_its_command(package: str) -> None:
    assert not installed(package)
    with raises("install.missing", f"pip install ./packages/{package}."):
        part(package, "anything")


@pytest.mark.usefixtures("without_packages")
def test_play_names_the_package_that_is_missing() -> None:
    with raises("install.missing", "pip install ./packages/userrl-people"):
        userrl.play("turtle")


@pytest.mark.parametrize("package", PARTS)
def test_every_part_is_a_package_of_this_project_and_installed(package: str) -> None:
    assert (ROOT / "packages" / package / "pyproject.toml").is_file()
    assert installed(package)
