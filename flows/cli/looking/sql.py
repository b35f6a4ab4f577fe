"""``userrl sql``: SQL queries on the warehouse."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.answers.rows import ENDINGS, Format, Rows, save, show
from flows.cli.terminal import plain, refusals
from userrl_core.errors import ConfigError

app = typer.Typer(add_completion=False, help="Query the warehouse with SQL.")

SHOWN, KEPT = 200, 1_000_000
"""Default limits of --limit: rows on a screen, rows in a file."""

SLOW_SECONDS, MANY_FILES = 3.0, 1000
"""Above these numbers an answer counts as slow, and a note recommends compaction."""


@app.command(name="sql")
def sql(
    text: Annotated[
        str | None,
        typer.Argument(help="One SELECT (also DESCRIBE, EXPLAIN, PIVOT); '-' reads it from stdin. Default: a prompt."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print rows as a JSON list of objects.")] = False,
    format: Annotated[
        Format | None, typer.Option("--format", help="Row format. Default: by the suffix of --out, else table.")
    ] = None,
    vertical: Annotated[bool, typer.Option("--vertical", help="Print one line for each column of each row.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write the rows to this file.")] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, max=10**9, help="Maximum number of rows: 200, or a million with --out."),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, max=86_400.0, help="Time limit of the query.")] = 60.0,
    search: Annotated[bool, typer.Option("--search", help="TEXT is words to find in turns, not SQL.")] = False,
    root: Annotated[Path | None, typer.Option("--warehouse", help="The warehouse folder.")] = None,
) -> None:
    """Run one SQL query. Results include running experiments up to this moment. `from dictionary` lists tables and columns.

    Example: userrl sql "select gym, avg(score) from trajectories group by gym"
    """
    from warehouse.files.layout import check_exists, default_root

    root = root or default_root()
    row_format = Format.JSON if as_json else Format.VERTICAL if vertical else format
    row_format = row_format or (ENDINGS.get(out.suffix, Format.TABLE) if out else Format.TABLE)
    limit = limit or (KEPT if out else SHOWN)
    if as_json + vertical + (format is not None) > 1:
        raise ConfigError("argument.conflict", "--json, --vertical and --format each name a row format. Give one.")
    if out and not (as_json or vertical or format) and out.suffix not in ENDINGS:
        suffixes = ", ".join(ENDINGS)
        raise ConfigError("argument.malformed", f"'{out}' has no suffix of a row format ({suffixes}). Give --format.")
    if row_format is Format.PARQUET and out is None:
        raise ConfigError("argument.missing", "Parquet needs a file. Add --out rows.parquet.")
    if text is None and sys.stdin.isatty():
        if search or out:
            option = "--search" if search else "--out"
            raise ConfigError("argument.missing", f"{option} needs the text in the call; the prompt does not read it.")
        from flows.cli.answers.prompt import converse
        from userrl.machine.home import home

        check_exists(root)
        converse(_SqlSession(root, row_format, limit, seconds).answer, home() / "sql_history")
    elif search:
        _search(root, text or sys.stdin.read(), row_format, out, limit, seconds)
    else:
        _ask(root, sys.stdin.read() if text in (None, "-") else str(text), row_format, out, limit, seconds)


class _SqlSession:
    """Settings that persist between the questions of a prompt."""

    def __init__(self, root: Path, format: Format, limit: int, seconds: float) -> None:
        self._root, self._format, self._limit, self._seconds = root, format, limit, seconds

    def answer(self, text: str) -> None:
        """Print one answer, or a sentence of refusal."""
        if text in (Format.VERTICAL, Format.TABLE):
            self._format = Format(text)
            return
        try:
            with refusals():
                _ask(self._root, text, self._format, None, self._limit, self._seconds)
        except (typer.Exit, KeyboardInterrupt):
            return


def _ask(root: Path, text: str, format: Format, out: Path | None, limit: int, seconds: float) -> None:
    from warehouse.query.sandbox import ask

    began = time.monotonic()
    try:
        answer = ask(root, text, limit=limit, seconds=seconds)
    finally:
        if time.monotonic() - began > min(SLOW_SECONDS, seconds / 2):
            _advise(root)
    rows = Rows(answer.columns, answer.rows, answer.types)
    for note in answer.notes:
        typer.echo(f"note: {plain(note)}", err=True)
    cut = _deliver(rows, format, out)
    more = f"; there are more, use --limit {limit * 10}" if answer.truncated else ""
    moment = time.strftime("%H:%M:%S", time.localtime(answer.as_of))
    where = f" in {out}" if out else ""
    typer.echo(f"{len(answer.rows)} rows{where} as of {moment}, running experiments included{more}.{cut}", err=True)


def _advise(root: Path) -> None:
    """After a slow answer, print how to make it faster, if compaction would help."""
    from warehouse.files.layout import take_snapshot

    sealed = sum(map(len, take_snapshot(root).sealed.values()))
    if sealed > MANY_FILES:
        advice = "`userrl warehouse compact` merges them and makes queries faster"
        typer.echo(f"note: the warehouse has {sealed:,} files of ended runs; {advice}.", err=True)


def _search(root: Path, text: str, format: Format, out: Path | None, limit: int, seconds: float) -> None:
    import duckdb

    from warehouse import open_warehouse

    with refusals(duckdb.Error), open_warehouse(root) as warehouse:
        matches = warehouse.search(text, limit=limit, seconds=seconds)
        newer = warehouse.unindexed()
    rows = Rows(matches.columns, matches.fetchall(), [str(kind) for kind in matches.types])
    cut = _deliver(rows, format, out)
    typer.echo(f"{len(rows.values)} turns, newest first; {newer} newer turns are not indexed yet.{cut}", err=True)


def _deliver(rows: Rows, format: Format, out: Path | None) -> str:
    """Print or write rows. Return the addition to the closing line about columns that were cut."""
    if out is not None:
        save(rows, format, out)
        return ""
    note = show(rows, format)
    return "" if note is None else f" {note[0].upper()}{note[1:]}."
