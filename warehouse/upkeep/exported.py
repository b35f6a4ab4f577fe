"""What an export's target holds: the objects that can be read, and a sentence about each that cannot.

An object store shows an object when it is whole. A copy by another tool, or a folder whose disk was full, can end early. One
such object makes every engine refuse the whole table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from userrl_core.errors import ConfigError
from warehouse import schema
from warehouse.upkeep.export import open_target


@dataclass(frozen=True, slots=True)
class Objects:
    """The objects of one table. paths: the readable ones, as the file system names them. damaged: a sentence for each other."""

    paths: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)


def exported_objects(target: str, table: str, *, options: Mapping[str, Any] | None = None) -> Objects:
    """Read the end of every object of a table, of all homes. target, options: as in ``export``. Raises ConfigError."""
    if table not in (*schema.LOGGED, "runs"):
        raise ConfigError("argument.unknown_value", f"There is no exported table '{table}'.")
    files, base = open_target(target, options)
    files.invalidate_cache()
    objects = Objects()
    for path in sorted([*files.glob(f"{base}/home=*/{table}/*/*.parquet"), *files.glob(f"{base}/{table}/*/*.parquet")]):
        try:
            with files.open(path, "rb") as opened:
                pq.read_metadata(opened)
        except pa.ArrowInvalid:
            objects.damaged.append(
                f"{path} has {files.size(path):,} bytes and no end of a Parquet file, so it was cut off. Copy it again, or "
                "delete it with the later objects of its writer and export again."
            )
        else:
            objects.paths.append(path)
    return objects
