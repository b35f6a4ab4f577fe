"""The credit actor where a test has no Ray: the same actor, behind a handle that answers at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from userrl_core.training.verl.credit_actor import ACTOR, CreditActor


class _Answer:
    """What a remote call gives: awaited in an agent loop, got with `ray.get` in the driver."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Any:
        yield from ()
        return self.value


def running_actor(patch: pytest.MonkeyPatch) -> CreditActor:
    """An empty actor that agent loops and estimators of this process find."""
    import ray

    actor = CreditActor()

    def remote(method: Any) -> Any:
        return SimpleNamespace(remote=lambda *arguments: _Answer(method(*arguments)))

    methods = ("put", "take", "offer", "offered", "baseline", "baselines")
    handles = {ACTOR: SimpleNamespace(**{name: remote(getattr(actor, name)) for name in methods})}
    patch.setattr(ray, "is_initialized", lambda: True)
    patch.setattr(ray, "get_actor", handles.__getitem__)
    patch.setattr(ray, "get", lambda answer: answer.value)
    return actor
