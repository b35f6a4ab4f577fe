"""Conversations with people are a separate package: without it each entrance names the command that installs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import userrl
from tests.makers import raises
from userrl import people
from userrl_core.installed import same_name


@pytest.fixture
def without_the_package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An environment in which no package offers conversations with people."""
    monkeypatch.setattr(same_name, "entry_points", lambda group: ())
    same_name.offered.cache_clear()
    yield
    same_name.offered.cache_clear()


@pytest.mark.usefixtures("without_the_package")
def test_play_names_the_package_that_is_missing() -> None:
    assert not people.installed()
    with raises("install.missing", "pip install ./packages/userrl-people"):
        userrl.play("turtle")
