"""Parts of the library that are separate packages: without one each entrance names the command that installs it."""

from __future__ import annotations

import pytest

import userrl
from tests.makers import raises
from tests.places import ROOT
from userrl.machine.separate import PARTS, installed, part


@pytest.mark.usefixtures("without_packages")
@pytest.mark.parametrize("package", PARTS)
def test_a_package_that_is_missing_is_named_with_its_command(package: str) -> None:
    assert not installed(package)
    with raises("install.missing", f"pip install ./packages/{package}."):
        part(package, "anything")


@pytest.mark.usefixtures("without_packages")
def test_a_verb_names_the_package_that_is_missing() -> None:
    with raises("install.missing", "pip install ./packages/userrl-people"):
        userrl.play("turtle")
    with raises("install.missing", "pip install ./packages/userrl-crossplay"):
        userrl.cross_play("lab/studies/user_populations.yaml")


@pytest.mark.parametrize("package", PARTS)
def test_every_part_is_a_package_of_this_project_and_installed(package: str) -> None:
    assert (ROOT / "packages" / package / "pyproject.toml").is_file()
    assert installed(package)
