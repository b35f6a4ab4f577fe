"""verl is imported once for the tests that start it several times."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.forked import interpreter
from tests.userrl_core.training.verl.rig import ENV


@pytest.fixture(scope="session")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The path of an interpreter whose processes need not import verl."""
    with interpreter(tmp_path_factory.mktemp("forked"), ENV) as path:
        yield path
