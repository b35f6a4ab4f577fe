"""The values behind a recipe's hash and a run's id. Fields added later do not change earlier ids.

`first_schema.yaml` lists the keys that a recipe had when runs were first given ids. A key outside that list enters
only if its value differs from its default. A recipe that does not use the key thus keeps its hash, its runs and their
stages.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

FIRST_SCHEMA = Path(__file__).with_name("first_schema.yaml")


SOURCES = {
    "TARL 4.3: 30 GRPO steps on simplified instructions before the full tasks; gyms and credit are UserRL's": "TARL 5: 30 GRPO "
    "steps on simplified instructions before the full tasks; gyms and credit are UserRL's",
}
"""Corrected citations, with the texts that former ids were computed from."""


NEVER = ("data", "data_folder", "control")
"""How tasks were requested and where they were: the identity has the actual source of each gym instead
(`gyms.NAME.published`). And what is expected of the result, which changes nothing in a run.
"""


def identity_values(model: BaseModel) -> dict[str, Any]:
    """Return the model's experiment fields as JSON, without later fields that have their default.

    A citation (``source``) is not an experiment field: correcting it renames no run.
    """
    values = _of_model(model, model.model_dump(mode="json"), "")
    values.pop("source", None)
    return values


def former_identity_values(model: BaseModel) -> dict[str, Any]:
    """Return the values that ids were computed from up to commit f197b02, with the citation.

    Runs of that time are found by them (see `userrl.run.run.known_as`).
    """
    values = _of_model(model, model.model_dump(mode="json"), "")
    if values.get("source") in SOURCES:
        values["source"] = SOURCES[values["source"]]
    return values


def _of_model(model: BaseModel, dumped: Mapping[str, Any], path: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, field in type(model).model_fields.items():
        key, value = field.alias or name, getattr(model, name)
        key_path = f"{path}.{key}".lstrip(".")
        if key_path in NEVER:
            continue
        # `kind` says which of several models this is; two of them may agree in all else.
        later = key_path not in _first_schema() and key != "kind"
        if not later or value != field.get_default(call_default_factory=True):
            values[key] = _of_value(value, dumped[key], key_path)
    return values


def _of_value(value: Any, dumped: Any, path: str) -> Any:
    if isinstance(value, BaseModel):
        return _of_model(value, dumped, path)
    if isinstance(value, (list, tuple)):
        return [_of_value(*pair, f"{path}.*") for pair in zip(value, dumped, strict=True)]
    if isinstance(value, Mapping):
        pairs = zip(value.values(), dumped.items(), strict=True)
        return {key: _of_value(inner, inner_dumped, f"{path}.*") for inner, (key, inner_dumped) in pairs}
    return dumped


@cache
def _first_schema() -> frozenset[str]:
    blocks = yaml.safe_load(FIRST_SCHEMA.read_text())
    return frozenset(f"{block}.{key}".lstrip(".") for block, keys in blocks.items() for key in keys.split())
