"""The credit book where a test has no Ray: the same book, behind a handle that answers at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from userrl_core.training.verl import agent_loop
from userrl_core.training.verl import credit_actor as book


class _Answer:
    """What a remote call gives: awaited in an agent loop, got with `ray.get` in the driver."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Any:
        yield from ()
        return self.value


def running_book(patch: pytest.MonkeyPatch) -> book.CreditBook:
    """An empty book that agent loops and estimators of this process find."""
    import ray

    found = book.CreditBook()

    def remote(method: Any) -> Any:
        return SimpleNamespace(remote=lambda *arguments: _Answer(method(*arguments)))

    handle = SimpleNamespace(put=remote(found.put), take=remote(found.take))
    patch.setattr(ray, "get", lambda answer: answer.value)
    patch.setattr(book, "find_book", lambda: handle)
    patch.setattr(agent_loop, "find_book", lambda: handle)
    return found
