"""Flows that refuse API keys among their parameters, before Prefect stores them, and that a person can stop."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from prefect import Flow
from prefect.states import Cancelled

from flows.server.settings import temporary_server
from flows.server.temporary_server import meet_no_other_server
from userrl.run.keys import refuse_keys
from userrl_core.errors import TrainingError

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
    return lambda function: KeylessFlow(_cancelled_when_stopped(function), **options)


def _cancelled_when_stopped(function: Callable[P, R]) -> Callable[P, Any]:
    """Return the function with the state Cancelled as its value where a person stopped the run: that is no failure.

    The state has the error, which Prefect raises for a caller of the flow.
    """

    @functools.wraps(function)
    def call(*arguments: P.args, **keywords: P.kwargs) -> Any:
        try:
            return function(*arguments, **keywords)
        except TrainingError as error:
            if error.code != "run.stopped":
                raise
            return Cancelled(message=str(error), data=error)

    return call
