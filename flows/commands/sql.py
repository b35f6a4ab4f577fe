"""``userrl sql``: ask the warehouse."""

from __future__ import annotations

import json
import sys
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
    root: Annotated[Path | None, typer.Option("--warehouse", help="Folder of the warehouse.")] = None,
) -> None:
    """Ask one question; running experiments are included up to this moment."""
    import duckdb

    from warehouse import open_warehouse

    try:
        with open_warehouse(root) as warehouse:
            table = warehouse.arrow(sys.stdin.read() if text == "-" else text)
    except (UserRLError, duckdb.Error) as error:
        typer.echo(f"userrl sql: {str(error).strip()}", err=True)
        raise typer.Exit(1) from None
    total = table.num_rows
    print_rows(table.slice(0, limit), Format.JSON if as_json else format)
    if total > limit:
        typer.echo(f"{limit} of {total} rows; --limit {total} shows all.", err=True)


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
