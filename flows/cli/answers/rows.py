"""Output formats for the rows of an answer.

Rows contain text of models and users. On a terminal, markup and escape sequences in it are disarmed.
"""

from __future__ import annotations

import csv
import io
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TextIO

from rich.cells import cell_len, set_cell_size

from flows.cli.terminal import plain, plain_json
from userrl.machine.output_files import writing
from userrl_core.errors import ConfigError
from userrl_core.json_files import json_text
from userrl_core.replaced_file import replacing

NARROWEST, WIDEST = 10, 60
"""Width of a column in cells: the minimum, and the maximum where space is limited."""

_PLAIN_TYPE = re.compile(r"(?P<base>[A-Z ]+(\(\d+,\s*\d+\))?)(?P<lists>(\[\])*)")
"""A type of DuckDB that is written to Parquet as it is."""
_STORED_INTERVAL = re.compile(r"(\d+ [a-z]+ ?)*(\d+:\d\d:\d\d(\.\d{1,3}0*)?)?")
"""An interval that Parquet holds: without a sign, in milliseconds."""


class Format(StrEnum):
    """An output format for rows."""

    TABLE = "table"
    VERTICAL = "vertical"
    JSON = "json"
    CSV = "csv"
    TSV = "tsv"
    MARKDOWN = "markdown"
    PARQUET = "parquet"


ENDINGS = {
    ".json": Format.JSON,
    ".csv": Format.CSV,
    ".tsv": Format.TSV,
    ".md": Format.MARKDOWN,
    ".parquet": Format.PARQUET,
    ".txt": Format.TABLE,
}


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows with their column names. types: DuckDB's types, if known."""

    names: Sequence[str]
    values: Sequence[Sequence[Any]]
    types: Sequence[str] = ()


def show(rows: Rows, format: Format) -> str | None:
    """Print rows. Return a note if columns or cells were cut to fit the terminal."""
    if format is Format.PARQUET:
        raise ConfigError("argument.missing", "Parquet needs a file. Add --out rows.parquet.")
    if format is Format.TABLE:
        lines, note = table(rows, room())
        print("\n".join(lines))
        return note
    _write(rows, format, sys.stdout, clean=sys.stdout.isatty())
    return None


def save(rows: Rows, format: Format, path: Path) -> None:
    """Write rows to a file, whole or not at all. Raises ConfigError if the file cannot be written."""
    with writing(path), replacing(path) as file:
        if format is Format.PARQUET:
            _parquet(rows, file.name)
        else:
            text = io.TextIOWrapper(file, encoding="utf-8", newline="")
            _write(rows, format, text, clean=False)
            text.detach()


def room() -> int | None:
    """Return the width of the terminal in cells. None if the output is not a terminal; nothing is cut then."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(rows: Rows, width: int | None) -> tuple[list[str], str | None]:
    """Return the lines of a table at most ``width`` wide, and a note on what was left out.

    Long cells end in an ellipsis, and columns in the middle are dropped. The note is None if everything is shown.
    """
    cells = [[plain(name) for name in rows.names], *([_cell(value) for value in row] for row in rows.values)]
    natural = [max(cell_len(line[n]) for line in cells) for n in range(len(rows.names))]
    columns, widths = fitted(natural, width)
    numeric = [
        all(isinstance(row[n], (int, float, type(None))) and not isinstance(row[n], bool) for row in rows.values)
        for n in range(len(natural))
    ]
    lines = []
    for line in cells:
        padded = [_padded(line[n], size, right=numeric[n]) for n, size in zip(columns, widths, strict=True)]
        lines.append("  ".join(_with_gap(padded, columns, "…")).rstrip())
    lines.insert(1, "  ".join(_with_gap(["─" * size for size in widths], columns, " ")).rstrip())
    cut = any(size < natural[n] for n, size in zip(columns, widths, strict=True))
    if len(columns) == len(natural) and not cut:
        return lines, None
    cut_text = (
        f"{len(columns)} of {len(natural)} columns shown" if len(columns) < len(natural) else "long cells are cut"
    )
    return lines, f"{cut_text}; --vertical shows everything, --out FILE saves it"


def fitted(natural: Sequence[int], width: int | None) -> tuple[list[int], list[int]]:
    """Choose the columns that fit in ``width`` cells, and their widths. Two cells separate columns."""
    columns = list(range(len(natural)))
    if width is None:
        return columns, list(natural)
    widths = [min(size, WIDEST) for size in natural]
    min_widths = [min(size, NARROWEST) for size in natural]

    def total_width(sizes: Sequence[int]) -> int:
        gap = 3 if len(columns) < len(natural) else 0
        return sum(sizes[n] for n in columns) + 2 * (len(columns) - 1) + gap

    while len(columns) > 1 and total_width(min_widths) > width:
        columns.pop(len(columns) // 2)
    while (over := total_width(widths) - width) > 0:
        widest = max(columns, key=lambda n: widths[n])
        if widths[widest] <= 1:
            break
        second = max((widths[n] for n in columns if widths[n] < widths[widest]), default=1)
        widths[widest] -= min(over, max(1, widths[widest] - max(second, 1)))
    return columns, [widths[n] for n in columns]


def _with_gap(parts: list[str], columns: Sequence[int], mark: str) -> list[str]:
    """Insert a mark where columns in the middle are missing."""
    jump = next((i for i in range(1, len(columns)) if columns[i] != columns[i - 1] + 1), None)
    return parts if jump is None else [*parts[:jump], mark, *parts[jump:]]


def _padded(text: str, size: int, *, right: bool) -> str:
    length = cell_len(text)
    if length > size:
        return set_cell_size(text, max(0, size - 1)) + "…"
    return " " * (size - length) + text if right else text + " " * (size - length)


def _write(rows: Rows, format: Format, file: TextIO, *, clean: bool) -> None:
    safe = plain if clean else str
    if format is Format.JSON:
        file.write(plain_json([dict(zip(rows.names, row, strict=True)) for row in rows.values], indent=2) + "\n")
    elif format in (Format.CSV, Format.TSV):
        out = csv.writer(file, delimiter="\t" if format is Format.TSV else ",", lineterminator="\n")
        out.writerow(safe(name) for name in rows.names)
        out.writerows(
            [safe(value) if isinstance(value, str) else _plain_value(value) for value in row] for row in rows.values
        )
    elif format is Format.MARKDOWN:
        for line in [rows.names, ["---"] * len(rows.names), *rows.values]:
            file.write("| " + " | ".join(_cell(cell).replace("|", "\\|") for cell in line) + " |\n")
    elif format is Format.VERTICAL:
        file.writelines(line + "\n" for line in _vertical(rows))
    else:
        file.writelines(line + "\n" for line in table(rows, None)[0])


def _vertical(rows: Rows) -> Iterator[str]:
    """Yield one line for each column of each row. A long text continues on the lines below."""
    width = max((cell_len(plain(name)) for name in rows.names), default=0)
    for number, row in enumerate(rows.values, 1):
        yield f"── row {number} " + "─" * 20
        for name, value in zip(rows.names, row, strict=True):
            value = value + 0.0 if isinstance(value, float) else value  # zero without a sign
            first, *more = ("" if value is None else plain(_text(value))).split("\n")
            yield f"{_padded(plain(name), width, right=False)}  {first}".rstrip()
            yield from (f"{' ' * width}  {line}" for line in more)


def _parquet(rows: Rows, path: str) -> None:
    """Write Parquet. Numbers, booleans, dates, intervals and lists of them keep their types where Parquet holds their
    values; all else is text, nested values as JSON.
    """
    import duckdb
    import pyarrow as pa

    from warehouse.files.packs import first_line
    from warehouse.query.fetch import quoted

    arrays, casts = [], []
    for n, kind in enumerate(rows.types):
        base, depth = _in_parquet(kind, [row[n] for row in rows.values])
        texts = pa.string()
        for _ in range(depth):
            texts = pa.list_(texts)
        arrays.append(pa.array([_texts(row[n], depth) for row in rows.values], texts))
        casts.append(f"c{n}::{base}{'[]' * depth} AS {quoted(rows.names[n])}")
    table = pa.Table.from_arrays(arrays, names=[f"c{n}" for n in range(len(arrays))])
    with duckdb.connect() as con:
        try:
            con.from_arrow(table).project(", ".join(casts)).to_parquet(path)
        except duckdb.IOException as error:
            raise OSError(first_line(error)) from None


def _in_parquet(kind: str, values: Sequence[Any]) -> tuple[str, int]:
    """Return the type of a column's elements in Parquet, and how many lists are around each."""
    match = _PLAIN_TYPE.fullmatch(kind)
    if match is None:
        return "VARCHAR", 0
    base, depth = match["base"], match["lists"].count("[")
    if base == "BLOB":
        return "VARCHAR", depth
    if base in ("HUGEINT", "UHUGEINT"):  # DuckDB would write them as DOUBLE
        return "BIGINT" if _all(values, lambda value: -(2**63) <= int(value) < 2**63) else "VARCHAR", depth
    if base == "INTERVAL":
        return base if _all(values, _STORED_INTERVAL.fullmatch) else "VARCHAR", depth
    return base, depth


def _all(value: Any, holds: Callable[[Any], object]) -> bool:
    """Return True if a condition holds for every element of nested lists that is not null."""
    if isinstance(value, list):
        return all(_all(item, holds) for item in value)
    return value is None or bool(holds(value))


def _texts(value: Any, depth: int) -> Any:
    """Return the texts of the elements of nested lists."""
    if value is None:
        return None
    return [_texts(item, depth - 1) for item in value] if depth else _text(value)


def _plain_value(value: Any) -> Any:
    return _text(value) if isinstance(value, (dict, list)) else value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json_text(value) if isinstance(value, (dict, list)) else str(value)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:z.6g}" if isinstance(value, float) else plain(_text(value)).replace("\n", "\\n")
