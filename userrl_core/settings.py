"""The base of all settings: a frozen pydantic model that refuses unknown keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MOST = 10**6
Count = Annotated[int, Field(gt=0, le=MOST)]
"""A number of things to play or train on. A run with more than a million never ends, or does not fit into memory."""

LONGEST_NAME = 100
"""Bytes of a name that a folder gets. A file system allows 255, and other words may follow it."""


def _folder_name(name: str) -> str:
    if not name.isprintable() or "/" in name or name[:1] in ("", ".") or len(name.encode()) > LONGEST_NAME:
        raise ValueError(f"give a name of one line without '/', at most {LONGEST_NAME} bytes, that begins with no dot")
    return name


FolderName = Annotated[str, AfterValidator(_folder_name)]
"""A name that is also the name of a folder: what is stored under it stays in the folder of its kind."""


class Settings(BaseModel):
    """A frozen block of values; an unknown key is an error."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        defer_build=True,  # until it is used: a process uses few of these models, and half as a part of another
        protected_namespaces=(),
        allow_inf_nan=False,
        hide_input_in_errors=True,  # a key that is refused must not stand in a traceback
        serialize_by_alias=True,
    )

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy as pydantic does, but drop `cached_property` values computed from the replaced fields."""
        copy = super().model_copy(update=update, deep=deep)
        for name in copy.__dict__.keys() - type(self).model_fields.keys():
            del copy.__dict__[name]
        return copy


def refuse_truth_values(values: Any, model: Any) -> None:
    """Raise ValueError, with the key, for a truth value that became a number: pydantic takes true as 1.

    values: as a person wrote them. model: what pydantic made of them.
    """
    if (key := next(_truth_values(values, model), None)) is not None:
        raise ValueError(f"{key[1:]} is a truth value (true, yes or on in YAML); give a number")


def _truth_values(value: Any, model: Any, key: str = "") -> Iterator[str]:
    """Yield the keys of these truth values, each after a dot."""
    if isinstance(value, bool):
        if isinstance(model, (int, float)) and not isinstance(model, bool):
            yield key
    elif isinstance(value, Mapping):
        fields = (
            {info.alias or name: getattr(model, name) for name, info in type(model).model_fields.items()}
            if isinstance(model, BaseModel)
            else model
        )
        if isinstance(fields, Mapping):
            for name in (name for name in value if name in fields):
                yield from _truth_values(value[name], fields[name], f"{key}.{name}")
    elif isinstance(value, (list, tuple)) and isinstance(model, (list, tuple)):
        for index, pair in enumerate(zip(value, model, strict=False)):
            yield from _truth_values(*pair, f"{key}.{index}")
