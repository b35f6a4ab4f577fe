"""The refusal of API keys in requests: whatever a flow is asked is kept by Prefect, in the warehouse and in files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from userrl_core.errors import ConfigError

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
