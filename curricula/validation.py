"""A validation error as one sentence for the author of the values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from userrl_core.errors import ConfigError, UserRLError
from userrl_core.served.retry import redact
from userrl_core.suggest import nearest

M = TypeVar("M", bound=BaseModel)


def validated(kind: type[M], values: Mapping[str, Any], what: str) -> M:
    """Return the model of these values. Raises ConfigError in one sentence that begins with ``what`` if they do not fit."""
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        raise _config_error(error, f"{what[0].upper()}{what[1:]}: {_sentence(error, kind).rstrip('.')}.") from error


def _config_error(error: ValidationError, sentence: str) -> ConfigError:
    """Return the error for the first problem. A validator of ours that raised an error keeps its code."""
    first = error.errors()[0]
    if first["type"] == "extra_forbidden":
        return ConfigError("recipe.unknown_key", sentence)
    if first["type"] == "missing":
        return ConfigError("recipe.missing_key", sentence)
    raised = first.get("ctx", {}).get("error")
    if isinstance(raised, UserRLError):
        return ConfigError(raised.code, sentence)
    return ConfigError("recipe.invalid_value", sentence)


def _sentence(error: ValidationError, kind: type[BaseModel]) -> str:
    problems = error.errors()
    first = problems[0]
    where = ".".join(str(part) for part in first["loc"] if part not in _KINDS)
    if first["type"] == "extra_forbidden":
        known = _known_keys(kind, first["loc"])
        text = f"unknown key '{where}'{nearest(str(first['loc'][-1]), known)}; known here: {', '.join(sorted(known))}"
    elif first["type"] == "union_tag_invalid":
        text = f"{where}.kind must be one of {first['ctx']['expected_tags'].replace(chr(39), '')}"
    elif first["type"] == "missing":
        missing_keys = [".".join(map(str, each["loc"])) for each in problems if each["type"] == "missing"]
        text = f"{', '.join(map(repr, missing_keys))} {'is' if len(missing_keys) == 1 else 'are'} missing"
        problems = [first, *(each for each in problems if each["type"] != "missing")]
    elif first["type"] in ("dict_type", "model_type", "model_attributes_type"):
        text = f'{where}: give keys with values, such as {{"key": 1}} (given: {redact(repr(first["input"]), "")})'
    else:
        message = first["msg"].removeprefix("Value error, ")
        given = first["input"]
        input_text = f" (given: {redact(repr(given), '')})" if isinstance(given, (str, int, float)) else ""
        text = f"{where}: {message[0].lower()}{message[1:]}{input_text}" if where else message
    text = text.rstrip(".")
    return text if len(problems) == 1 else f"{text} (and {len(problems) - 1} more)"


_KINDS = ("fixed", "scaling_inter", "adaptive")


def _known_keys(kind: type[BaseModel], loc: Sequence[int | str]) -> set[str]:
    models: list[type[BaseModel]] = [kind]
    for part in loc[:-1]:
        inner: list[type[BaseModel]] = []
        for model in models:
            for name, info in model.model_fields.items():
                if part == (info.alias or name):
                    inner += _models(info.annotation)
            tag = model.model_fields.get("kind")
            if tag is not None and tag.default == part:
                inner = [model]
                break
        models = inner or models
    return {info.alias or name for model in models for name, info in model.model_fields.items()}


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models(inner)]
