"""Refusal of API keys in requests, because Prefect, the warehouse and files keep all request values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from userrl_core.errors import ConfigError
from userrl_core.key_names import names_a_key

_KEY = re.compile(
    r"\b(?:(?:sk|xai|gsk)[-_][A-Za-z0-9_-]{16,}"
    r"|hf_[A-Za-z0-9]{30,}"
    r"|AIza[A-Za-z0-9_-]{35}"  # Google
    r"|nvapi-[A-Za-z0-9_-]{20,}"  # NVIDIA
    r"|github_pat_[A-Za-z0-9_]{22,})"
)
"""Keys that detect-secrets does not know."""

_WANDB, _FORTY_HEX = re.compile(r"wandb", re.IGNORECASE), re.compile(r"[0-9a-f]{40}")
"""A wandb key has the form of a commit id, so it counts as a key only under a name of wandb."""


def refuse_keys(parameters: Mapping[str, Any]) -> None:
    """Raise ConfigError if a parameter has the name or the form of a key. The message does not repeat the key."""
    for key_path, value in _texts(parameters, ()):
        if value and (_names_a_key(key_path, value) or _is_a_key(value)):
            raise ConfigError(
                "recipe.holds_key",
                f"{'.'.join(key_path) or 'A parameter'} contains a key, and the parameters of a run are kept in "
                "files and databases. Put the key into an environment variable (OPENAI_API_KEY, or one that "
                "api_key_env names) and remove it here.",
            )


def refuse_unstorable(value: Any, key_path: str = "") -> None:
    """Raise ConfigError for a parameter that no file or database can hold: text that is no UTF-8, or a whole number of more than
    64 bits.
    """
    if isinstance(value, str) and not _is_utf8(value):
        raise ConfigError("argument.malformed", f"{key_path}: {value!a} is not text in UTF-8. Write it in UTF-8.")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ConfigError(
            "argument.out_of_range", f"{key_path}: give a number below 2 to the 63rd, not one of more digits."
        )
    if isinstance(value, Mapping):
        for name, inner in value.items():
            refuse_unstorable(str(name), "a parameter's name")
            refuse_unstorable(inner, f"{key_path}.{name}" if key_path else str(name))
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for inner in value:
            refuse_unstorable(inner, key_path)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _names_a_key(key_path: tuple[str, ...], value: str) -> bool:
    if any(_WANDB.search(name) for name in key_path) and _FORTY_HEX.fullmatch(value):
        return True
    return bool(key_path) and names_a_key(key_path[-1])


def _is_a_key(value: str) -> bool:
    return bool(_KEY.search(value)) or any(next(iter(plugin.analyze_string(value)), None) for plugin in _detectors())


_DETECTORS = (
    *("AWSKey", "BasicAuth", "DiscordBotToken", "GitHubToken", "GitLabToken", "JwtToken", "Mailchimp", "Npm", "OpenAI"),
    *("PrivateKey", "PypiToken", "SendGrid", "Slack", "SquareOAuth", "Stripe", "TelegramBotToken", "TwilioKey"),
)


@cache
def _detectors() -> tuple[Any, ...]:
    """Return detect-secrets' plugins for keys of a fixed form. Its entropy plugins are left out: they take hashes for keys."""
    # Imported when first needed: the import takes longer than all of userrl's.
    from detect_secrets.core.plugins.initialize import from_plugin_classname

    return tuple(from_plugin_classname(f"{name}Detector") for name in _DETECTORS)


def _texts(value: Any, key_path: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], str]]:
    if isinstance(value, str):
        yield key_path, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, (*key_path, str(name)) if name else key_path)
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _texts(inner, key_path)
