"""What a flow is asked is kept by Prefect, in the warehouse and in files: a key given by mistake is refused before that."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from userrl_core.errors import ConfigError

if TYPE_CHECKING:
    from prefect import Flow

P = ParamSpec("P")
R = TypeVar("R")

_NAME = re.compile(r"(?:^|[._-])(?:api[_-]?key|token|password|secret|authorization)$", re.IGNORECASE)
_KEY = re.compile(r"\b(?:(?:sk|xai|gsk)[-_][A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{30,})")
"""What the keys of known services look like."""


def refuse_keys(parameters: Mapping[str, Any]) -> None:
    """Raise ConfigError where a parameter is called a key or looks like one; the sentence does not hold it."""
    for place, value in _texts(parameters, ()):
        if value and (_KEY.search(value) or (place and _NAME.search(place[-1]))):
            raise ConfigError(
                f"{'.'.join(place) or 'A parameter'} holds a key, and what a run was asked is kept in files and databases; "
                "put the key into an environment variable (OPENAI_API_KEY, or one that api_key_env names) and take it out here."
            )


def keyless(flow: Flow[P, R]) -> Flow[P, R]:
    """The flow, which looks at its parameters also when it is called as a function, before Prefect stores them."""
    from prefect import Flow  # here, since requests are also read where no flow is

    class Keyless(Flow[P, R]):
        def __call__(self, *arguments: Any, **named: Any) -> Any:
            refuse_keys({"": list(arguments), **named})
            return super().__call__(*arguments, **named)

    flow.__class__ = Keyless
    return flow


def _texts(value: Any, place: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], str]]:
    """Every text in a value, with where it stands."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, (*place, str(name)) if name else place)
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _texts(inner, place)
