"""``userrl sql``: ask the warehouse."""

from __future__ import annotations

import json
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from userrl_core.errors import UserRLError

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
    import duckdb

    from warehouse.safe import ask
    from warehouse.store import default_root

    root = root or default_root()
    text = sys.stdin.read() if text == "-" else text
    try:
        if search:
            with open_root(root) as warehouse:
                found = warehouse.search(text, limit=limit).to_arrow_table()
                newer = warehouse.unindexed()
            print_rows(found, Format.JSON if as_json else format)
            typer.echo(f"{found.num_rows} turns, newest first; {newer} newer turns are not indexed yet.", err=True)
            return
        answer = ask(root, text, limit=limit, seconds=seconds)
    except (UserRLError, duckdb.Error) as error:
        typer.echo(f"userrl sql: {str(error).strip()}", err=True)
        raise typer.Exit(1) from None
    print_rows(answer.table, Format.JSON if as_json else format)
    more = f"; there are more, --limit {limit * 10} shows more of them" if answer.truncated else ""
    moment = time.strftime("%H:%M:%S", time.localtime(answer.as_of))
    typer.echo(f"{answer.table.num_rows} rows as of {moment}, running experiments included{more}.", err=True)


def open_root(root: Path) -> Any:
    """The warehouse at a folder; imported late so that other commands start without DuckDB."""
    from warehouse import open_warehouse

    return open_warehouse(root)


def print_rows(table: Any, format: Format) -> None:
    """Print an Arrow table."""
    rows = table.to_pylist()
    names = table.column_names
    if format is Format.JSON:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False, default=str))
    elif format is Format.CSV:
        import csv

        out = csv.writer(sys.stdout)
        out.writerow(names)
        out.writerows([row[name] for name in names] for row in rows)
    elif format is Format.MARKDOWN:
        lines = [names, ["---"] * len(names), *([_cell(row[name]) for name in names] for row in rows)]
        typer.echo("\n".join("| " + " | ".join(line) + " |" for line in lines))
    else:
        import rich.box
        from rich.console import Console
        from rich.table import Table

        shown = Table(box=rich.box.SIMPLE_HEAD)
        for name in names:
            shown.add_column(name, overflow="fold")
        for row in rows:
            shown.add_row(*(_cell(row[name]) for name in names))
        Console().print(shown)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value).replace("\n", "\\n")
