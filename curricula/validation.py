"""A validation error as one sentence for the author of the values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from userrl_core.errors import ConfigError, UserRLError
from userrl_core.served.retry import redact
from userrl_core.settings import refuse_truth_values
from userrl_core.suggest import nearest

M = TypeVar("M", bound=BaseModel)


def validated(kind: type[M], values: Mapping[str, Any], label: str) -> M:
    """Return the model of these values. Raises ConfigError in one sentence that begins with ``label`` if they do not fit."""
    try:
        model = kind.model_validate(dict(values))
    except ValidationError as error:
        raise _config_error(error, f"{label[0].upper()}{label[1:]}: {_sentence(error, kind).rstrip('.')}.") from error
    try:
        refuse_truth_values(values, model)
    except ValueError as error:
        raise ConfigError("recipe.invalid_value", f"{label[0].upper()}{label[1:]}: {error}.") from None
    return model


def block_of(value: object, label: str, key: str) -> Mapping[str, Any]:
    """Return a block of a file, an empty one for null. Raises ConfigError, beginning with ``label``, where it is no mapping."""
    if value is None or isinstance(value, Mapping):
        return value or {}
    sentence = f"{label[0].upper()}{label[1:]}: '{key}' must be a mapping of fields, not {_given(value)}."
    raise ConfigError("recipe.invalid_value", sentence)


def names_of(value: object, label: str, key: str) -> tuple[str, ...]:
    """Return a list of names of a file; a text is one name. Raises ConfigError, beginning with ``label``, for anything else."""
    names = value if isinstance(value, list) else [] if value is None else [value]
    if all(isinstance(name, str) for name in names):
        return tuple(names)
    sentence = f"{label[0].upper()}{label[1:]}: '{key}' must be a list of names, not {_given(value)}."
    raise ConfigError("recipe.invalid_value", sentence)


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
    """Name every problem. Missing keys are named together."""
    problems = error.errors()
    missing_keys = [_where(problem) for problem in problems if problem["type"] == "missing"]
    by_key: dict[str, dict[str, None]] = {}
    for problem in problems:
        if problem["type"] != "missing":
            key, text = _problem(problem, kind)
            by_key.setdefault(key or text, {})[text] = None
    # A key that may have several types has a problem for each.
    texts = [
        key if key in problem_texts else f"{key}: {_alternatives(problem_texts)}"
        for key, problem_texts in by_key.items()
    ]
    if missing_keys:
        are = "is" if len(missing_keys) == 1 else "are"
        texts.insert(0, f"{', '.join(map(repr, missing_keys))} {are} missing")
    return "; ".join(texts[:MAX_PROBLEMS]) + (
        f" (and {len(texts) - MAX_PROBLEMS} more)" if len(texts) > MAX_PROBLEMS else ""
    )


MAX_PROBLEMS = 8
"""Problems that a sentence names."""
MAX_GIVEN = 200
"""Characters of a wrong value that a sentence quotes."""


def _problem(problem: Mapping[str, Any], kind: type[BaseModel]) -> tuple[str, str]:
    """Return the key of a problem and what is wrong with it; no key if the text says it."""
    where = _where(problem)
    if problem["type"] == "extra_forbidden":
        known_keys = _known_keys(kind, problem["loc"])
        near = nearest(str(problem["loc"][-1]), known_keys)
        return "", f"unknown key '{where}'{near}; known here: {', '.join(sorted(known_keys))}"
    if problem["type"] == "union_tag_not_found":
        return "", f"'{where}.kind' is missing; docs/reference/recipe-keys.md has the kinds"
    if problem["type"] == "union_tag_invalid":
        return "", f"{where}.kind must be one of {problem['ctx']['expected_tags'].replace(chr(39), '')}"
    if problem["type"] in ("dict_type", "model_type", "model_attributes_type"):
        return where, f'give keys with values, such as {{"key": 1}} (given: {_given(problem["input"])})'
    message = problem["msg"].removeprefix("Value error, ").rstrip(".").replace("a valid tuple", "a list")
    input_value = problem["input"]
    input_text = f" (given: {_given(input_value)})" if isinstance(input_value, (str, int, float)) else ""
    return (where, f"{message[0].lower()}{message[1:]}{input_text}") if where else ("", message)


def _where(problem: Mapping[str, Any]) -> str:
    return ".".join(str(part) for part in problem["loc"] if part not in _KINDS and not _TYPE.fullmatch(str(part)))


def _alternatives(texts: Iterable[str]) -> str:
    """Join what is wrong for each type that a key may have. They share the beginning and the given value."""
    first, *others = texts
    input_text = first[first.rindex(" (given: ") :] if others and " (given: " in first else ""
    rules = [first, *(text.removeprefix("input should be ") for text in others)]
    return " or ".join(text.removesuffix(input_text) for text in rules) + input_text


def _given(value: object) -> str:
    text = redact(repr(value), "")
    return text if len(text) <= MAX_GIVEN else f"{text[:MAX_GIVEN]}..."


def unknown_key(kind: type[BaseModel], key: str) -> str | None:
    """Return the sentence about a dotted key that a model does not have. None if it has it, or holds values of any key there."""
    models, parts = [kind], key.replace("[", ".").replace("]", "").split(".")
    for number, part in enumerate(parts, 1):
        fields = {info.alias or name: info for model in models for name, info in model.model_fields.items()}
        if not fields:
            return None
        if part not in fields:
            return f"There is no key '{'.'.join(parts[:number])}'{nearest(part, fields)}."
        annotation = fields[part].annotation
        is_free = any(get_origin(kind) in (dict, list, tuple) for kind in (annotation, *get_args(annotation)))
        models = [] if is_free else _models(annotation)
    return None


_KINDS = ("fixed", "scaling_inter", "adaptive")
_TYPE = re.compile(r"(literal|tuple|list|dict|union|nullable|constrained-\w+|function-\w+)\[.*\]|int|float|bool|str")
"""Parts of a problem's place that name a type, where a key may have several."""


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
