"""Checks that keys and passwords stay in the environment: recipes are written to run folders, the warehouse and trackers.

No message here repeats a refused value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args
from urllib.parse import parse_qsl, urlsplit

from pydantic import ValidationError

from userrl_core.errors import ConfigError
from userrl_core.gyms.population import population
from userrl_core.gyms.released_texts import Prompts
from userrl_core.key_names import names_a_key
from userrl_core.served.client import ChatServer, check_extra_body, is_address
from userrl_core.settings import refuse_truth_values
from userrl_core.suggest import nearest

INSTEAD = "set the key in the environment variable that api_key_env names (default: OPENAI_API_KEY)"
USER_OPTIONS = ("prompts", "strategy")
"""Options of a served user besides its server's: whose prompts it gets, and the strategy of tau's customer."""
_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


def check_options(kind: str, options: Mapping[str, Any]) -> None:
    """Raise ValueError for options that this kind of user lacks, for unusable values, and for keys anywhere in them."""
    for name in _names(options):
        if names_a_key(name):
            raise ConfigError(
                "recipe.holds_key",
                f"a recipe must not contain keys, because '{name}' would be stored with it; {INSTEAD}",
            )
    if kind == "human" and options:
        raise ConfigError(
            "user.bad_option", f"a human user has no options, and {', '.join(map(repr, options))} was given; omit them"
        )
    if kind == "openai":
        _check_server(options)


def check_url(url: str, label: str) -> None:
    """Raise ValueError for an address with a user and a password, or with a key among its parameters."""
    if not is_address(url):
        raise ConfigError("model.bad_address", f"{label} is not an address such as http://127.0.0.1:8000/v1")
    parts = urlsplit(url)
    names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    if "@" in parts.netloc or any(map(names_a_key, names)):
        raise ConfigError(
            "recipe.holds_key", f"{label} contains a password or a key, which would be stored with it; {INSTEAD}"
        )


def _check_server(options: Mapping[str, Any]) -> None:
    fields = [*ChatServer.model_fields, *USER_OPTIONS]
    for name in options:
        if name not in fields:
            raise ConfigError(
                "user.bad_option",
                f"an openai user has no option '{name}'{nearest(name, fields)}; it has {', '.join(fields)}",
            )
    if options.get("base_url") is not None:
        check_url(str(options["base_url"]), "base_url")
    if not _VARIABLE.match(str(options.get("api_key_env", "OPENAI_API_KEY"))):
        raise ConfigError(
            "recipe.holds_key", "api_key_env must be the name of an environment variable, not the key itself"
        )
    if options.get("prompts", "ours") not in get_args(Prompts):
        raise ConfigError("user.bad_option", f"prompts must be {' or '.join(get_args(Prompts))}")
    try:
        _server(options)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(
            "user.bad_option", f"option {first['loc'][0]}: {first['msg'].removeprefix('Value error, ').lower()}"
        ) from None


def _server(options: Mapping[str, Any]) -> ChatServer:
    return ChatServer(**{name: value for name, value in options.items() if name not in USER_OPTIONS})


def check_drafted_options(kind: str, options: Mapping[str, Any], ranges: Any, label: str) -> None:
    """Raise ConfigError for options and for ranges of a population that earlier versions took.

    A stored recipe is not asked, so that those of before these rules open. label: the key of the block.
    """
    values: dict[str, Any] = {}
    models: dict[str, Any] = {}
    if kind == "openai":
        check_extra_body(options.get("extra_body"))
        values["options"], models["options"] = options, _server(options)
    if isinstance(ranges, Mapping):
        values["population"], models["population"] = ranges, population(ranges)
    try:
        refuse_truth_values(values, models)
    except ValueError as error:
        raise ConfigError("recipe.invalid_value", f"{label}.{error}.") from None


def _names(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [name for key, inner in value.items() for name in (str(key), *_names(inner))]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [name for inner in value for name in _names(inner)]
    return []
