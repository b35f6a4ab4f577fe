"""What ``userrl doctor`` says about packages."""

import pytest

from flows.cli.doctor import _packages
from userrl.machine.separate import PARTS


def test_the_doctor_names_the_packages_that_are_not_installed(without_packages: None) -> None:
    (finding,) = _packages()
    assert not finding.ok
    assert not finding.fatal
    assert all(package in finding.said for package in PARTS)
    assert "pip install ./packages/NAME" in finding.said


def test_the_doctor_says_that_every_package_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("userrl.machine.separate.installed", lambda package: True)
    monkeypatch.setattr("userrl_core.gyms.registry.PACKAGED", {"errand": "userrl-gym-errand"})
    (finding,) = _packages()
    assert (finding.ok, finding.said) == (True, "all installed")
