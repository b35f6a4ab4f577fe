"""The credit actor where a test has no Ray: the same actor, behind a handle that answers at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from userrl_core.training.verl import agent_loop, credit_actor


class _Answer:
    """What a remote call gives: awaited in an agent loop, got with `ray.get` in the driver."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Any:
        yield from ()
        return self.value


def running_actor(patch: pytest.MonkeyPatch) -> credit_actor.CreditActor:
    """An empty actor that agent loops and estimators of this process find."""
    import ray

    found = credit_actor.CreditActor()

    def remote(method: Any) -> Any:
        return SimpleNamespace(remote=lambda *arguments: _Answer(method(*arguments)))

    handle = SimpleNamespace(put=remote(found.put), take=remote(found.take))
    patch.setattr(ray, "get", lambda answer: answer.value)
    patch.setattr(credit_actor, "find_credit_actor", lambda: handle)
    patch.setattr(agent_loop, "find_credit_actor", lambda: handle)
    return found
