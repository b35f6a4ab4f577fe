"""Small helpers that tests of all folders share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from userrl_core.errors import UserRLError


@contextmanager
def raises(code: str, *facts: str) -> Iterator[pytest.ExceptionInfo[UserRLError]]:
    """Expect one of our errors with this code. facts: texts that its sentence must contain."""
    with pytest.raises(UserRLError) as caught:
        yield caught
    sentence = str(caught.value)
    assert caught.value.code == code, sentence
    missing_facts = [fact for fact in facts if fact not in sentence]
    assert not missing_facts, sentence
