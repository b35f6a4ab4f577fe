"""``userrl sql``: ask the warehouse."""

from __future__ import annotations

import csv
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.terminal import plain, plain_json, refusals

app = typer.Typer(add_completion=False, help="Ask the warehouse in SQL.")


class Format(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"


@app.command(name="sql")
def sql(
    text: Annotated[str, typer.Argument(help="One SELECT (also DESCRIBE, EXPLAIN, PIVOT); '-' reads it from stdin.")],
    as_json: Annotated[bool, typer.Option("--json", help="Rows as a JSON list.")] = False,
    format: Annotated[Format, typer.Option("--format", help="table, json, csv or markdown.")] = Format.TABLE,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most rows to print.")] = 200,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="Most time the answer may take.")] = 60.0,
    search: Annotated[bool, typer.Option("--search", help="TEXT is words to find in turns, not SQL.")] = False,
    root: Annotated[Path | None, typer.Option("--warehouse", help="Folder of the warehouse.")] = None,
) -> None:
    """Ask one question; running experiments are included up to this moment."""
    from warehouse import open_warehouse
    from warehouse.files.layout import default_root
    from warehouse.query.sandbox import ask

    root = root or default_root()
    text = sys.stdin.read() if text == "-" else text
    with refusals("sql"):
        if search:
            import duckdb

            with refusals("sql", duckdb.Error), open_warehouse(root) as warehouse:
                matches = warehouse.search(text, limit=limit, seconds=seconds).to_arrow_table()
                newer = warehouse.unindexed()
            found = zip(*(column.to_pylist() for column in matches.columns), strict=True)
            print_rows(matches.column_names, list(found), Format.JSON if as_json else format)
            typer.echo(f"{matches.num_rows} turns, newest first; {newer} newer turns are not indexed yet.", err=True)
            return
        # While the question is asked in a process of its own, this one loads what prints the answer.
        threading.Thread(target=import_module, args=("rich.table",), daemon=True).start()
        answer = ask(root, text, limit=limit, seconds=seconds)
    print_rows(answer.columns, answer.rows, Format.JSON if as_json else format)
    more = f"; there are more, --limit {limit * 10} shows more of them" if answer.truncated else ""
    moment = time.strftime("%H:%M:%S", time.localtime(answer.as_of))
    for note in answer.notes:
        typer.echo(f"note: {plain(note)}", err=True)
    typer.echo(f"{len(answer.rows)} rows as of {moment}, running experiments included{more}.", err=True)


def print_rows(names: Sequence[str], rows: Iterable[Sequence[Any]], format: Format) -> None:
    """Print rows. What models and users said is in it: no markup and no escape sequence of theirs takes effect."""
    rows = list(rows)
    if format is Format.JSON:
        typer.echo(plain_json([dict(zip(names, row, strict=True)) for row in rows], indent=2))
    elif format is Format.CSV:
        # A file gets the text as it is; a terminal must not obey it.
        clean = plain if sys.stdout.isatty() else str
        out = csv.writer(sys.stdout)
        out.writerow(clean(name) for name in names)
        out.writerows([clean(value) if isinstance(value, str) else value for value in row] for row in rows)
    elif format is Format.MARKDOWN:
        lines = [names, ["---"] * len(names), *rows]
        typer.echo(
            "\n".join("| " + " | ".join(_cell(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
        )
    else:
        import rich.box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        shown = Table(box=rich.box.SIMPLE_HEAD)
        for name in names:
            shown.add_column(Text(_cell(name)), overflow="fold")
        for row in rows:
            shown.add_row(*(Text(_cell(value)) for value in row))
        Console().print(shown)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else plain(str(value)).replace("\n", "\\n")
