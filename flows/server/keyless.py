"""Flows that refuse API keys among their parameters, before Prefect stores them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from prefect import Flow

from flows.server.settings import temporary_server
from flows.server.temporary_server import meet_no_other_server
from userrl.run.keys import refuse_keys

P = ParamSpec("P")
R = TypeVar("R")


class KeylessFlow(Flow[P, R]):
    """A flow that also checks its parameters when it is called as a function."""

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Run the flow. Raises ConfigError if a parameter holds a key."""
        refuse_keys({"": list(arguments), **keywords})
        if temporary_server():
            meet_no_other_server()
        return super().__call__(*arguments, **keywords)


def keyless_flow(**options: Any) -> Callable[[Callable[P, R]], KeylessFlow[P, R]]:
    """Return a decorator that makes a KeylessFlow of a function. It takes the options of `prefect.flow`."""
    return lambda function: KeylessFlow(function, **options)
