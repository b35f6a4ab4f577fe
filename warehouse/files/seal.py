"""Conversion of write-ahead lines to a Parquet segment.

pyarrow reads the lines in C++ without holding the GIL for each value, so a trainer in the same process is hardly
disturbed: about 10 us of CPU a turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from warehouse.files.checksum import stamped_parquet, verified_lines
from warehouse.files.encode import fitting
from warehouse.files.layout import write_atomically
from warehouse.schema import arrow_schema, types

if TYPE_CHECKING:
    import pyarrow as pa

NULLED = b"userrl_nulled"
"""Key in a segment's Parquet metadata: number of values that did not fit their columns and are null."""

DAMAGED = b"userrl_damaged"
"""Key in a segment's Parquet metadata: number of lines left out because they failed their checksum."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """The losses of one sealing. torn_bytes: bytes of incomplete lines. nulled: values that their column cannot hold,
    stored as null.

    damaged: lines that failed their checksum.
    """

    torn_bytes: int = 0
    nulled: int = 0
    damaged: int = 0


def seal(content: bytes, target: Path, table: str) -> Sealed:
    """Write the complete lines of a live file to `target` (zstd Parquet), durable and visible at once by rename.

    An incomplete last line after power loss, unreadable lines, and lines that fail their checksum are left out and
    counted. If a checksum fails, the live file is kept unchanged in ``quarantine/``.
    """
    import pyarrow as pa  # late: whoever only opens a log, as the page does, is spared its 45 MB

    verified = verified_lines(content)
    lines, torn, nulled = verified.trusted, verified.torn_bytes, 0
    if verified.damaged:
        write_atomically(kept_aside(target), content)
    schema = arrow_schema(table)
    try:
        rows = _read(lines, schema)
    except pa.ArrowException:
        fitted, unreadable, nulled = _fitted(lines, table)
        torn += unreadable
        rows = _read(fitted, schema)
    for key, count in ((NULLED, nulled), (DAMAGED, verified.damaged)):
        if count:
            rows = rows.replace_schema_metadata({**(rows.schema.metadata or {}), key: str(count).encode()})
    keys = [name for name in ("traj_id", "turn", "n") if name in schema.names]
    if keys:
        rows = rows.sort_by([(name, "ascending") for name in keys])
    write_segment(target, rows)
    return Sealed(torn, nulled, verified.damaged)


def write_segment(target: Path, rows: pa.Table) -> None:
    """Write rows as a sealed file with its checksum, durable and visible at once by rename."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = pa.BufferOutputStream()
    pq.write_table(rows, buffer, compression="zstd", compression_level=1)
    write_atomically(target, stamped_parquet(buffer.getvalue().to_pybytes()))


def kept_aside(target: Path) -> Path:
    """Return the quarantine path of the live file behind this sealed file, for a file with lines left out."""
    run = target.parents[1]
    return run.parents[1] / "quarantine" / f"{run.name}.{target.stem}.jsonl"


def _read(lines: bytes, schema: pa.Schema) -> pa.Table:
    import pyarrow as pa
    import pyarrow.json as pj

    if not lines:
        return schema.empty_table()
    # One block: a line longer than a block is an error in pyarrow, and a segment is bounded anyway.
    options = pj.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    parse = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    rows = pj.read_json(pa.BufferReader(lines), read_options=options, parse_options=parse)
    return rows.select(schema.names).replace_schema_metadata(schema.metadata)


def _fitted(lines: bytes, table: str) -> tuple[bytes, int, int]:
    """Return the lines with only the values that the table can hold, the bytes of unreadable lines, and the number of values
    that became null.
    """
    fitted_lines, unreadable, nulled = [], 0, 0
    for line in lines.split(b"\n")[:-1]:
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            row = None
        if not isinstance(row, dict):
            unreadable += len(line) + 1
            continue
        fitted, lost = fitting(types(table), row)
        nulled += lost
        fitted_lines.append(orjson.dumps(fitted) + b"\n")
    return b"".join(fitted_lines), unreadable, nulled
