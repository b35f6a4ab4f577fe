"""Flows that refuse API keys among their parameters before Prefect stores them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from userrl.run.keys import refuse_keys

if TYPE_CHECKING:
    from prefect import Flow

P = ParamSpec("P")
R = TypeVar("R")


def keyless(flow: Flow[P, R]) -> Flow[P, R]:
    """The flow, which looks at its parameters also when it is called as a function, before Prefect stores them."""
    from prefect import Flow  # here, since requests are also read where no flow is

    class Keyless(Flow[P, R]):
        def __call__(self, *arguments: Any, **named: Any) -> Any:
            refuse_keys({"": list(arguments), **named})
            return super().__call__(*arguments, **named)

    flow.__class__ = Keyless
    return flow
