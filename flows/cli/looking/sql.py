"""``userrl sql``: ask the warehouse."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.answers.rows import ENDINGS, Format, Rows, save, show
from flows.cli.terminal import plain, refusals
from userrl_core.errors import ConfigError

app = typer.Typer(add_completion=False, help="Ask the warehouse in SQL.")

SHOWN, KEPT = 200, 1_000_000
"""Most rows on a screen and in a file, unless --limit says otherwise."""

SLOW_SECONDS, MANY_FILES = 3.0, 1000
"""From when on an answer is slow, and files are many."""


@app.command(name="sql")
def sql(
    text: Annotated[
        str | None,
        typer.Argument(help="One SELECT (also DESCRIBE, EXPLAIN, PIVOT); '-' reads it from stdin. Without: a prompt."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Rows as a JSON list of objects.")] = False,
    format: Annotated[
        Format | None, typer.Option("--format", help="How rows are written; by --out's ending, else table.")
    ] = None,
    vertical: Annotated[bool, typer.Option("--vertical", help="A line for each column of each row.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write the rows to this file.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Most rows; 200, a million with --out.")] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="Most time the answer may take.")] = 60.0,
    search: Annotated[bool, typer.Option("--search", help="TEXT is words to find in turns, not SQL.")] = False,
    root: Annotated[Path | None, typer.Option("--warehouse", help="Folder of the warehouse.")] = None,
) -> None:
    """Ask one question; running experiments are included up to this moment. `from dictionary` says what there is."""
    from warehouse.files.layout import check_exists, default_root

    root = root or default_root()
    wanted = Format.JSON if as_json else Format.VERTICAL if vertical else format
    wanted = wanted or (ENDINGS.get(out.suffix, Format.TABLE) if out else Format.TABLE)
    limit = limit or (KEPT if out else SHOWN)
    with refusals("sql"):
        if wanted is Format.PARQUET and out is None:
            raise ConfigError("Parquet is for files: add --out rows.parquet.")
        if text is None and sys.stdin.isatty():
            from flows.cli.answers.prompt import converse
            from userrl.machine.home import home

            check_exists(root)
            converse(_SqlSession(root, wanted, limit, seconds).answer, home() / "sql_history")
        elif search:
            _search(root, text or sys.stdin.read(), wanted, out, limit, seconds)
        else:
            _ask(root, sys.stdin.read() if text in (None, "-") else str(text), wanted, out, limit, seconds)


class _SqlSession:
    """What holds from one question of a prompt to the next."""

    def __init__(self, root: Path, format: Format, limit: int, seconds: float) -> None:
        self._root, self._format, self._limit, self._seconds = root, format, limit, seconds

    def answer(self, text: str) -> None:
        """Show one answer, or say in a sentence why there is none."""
        if text in (Format.VERTICAL, Format.TABLE):
            self._format = Format(text)
            return
        try:
            with refusals("sql"):
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
    more = f"; there are more, --limit {limit * 10} shows more of them" if answer.truncated else ""
    moment = time.strftime("%H:%M:%S", time.localtime(answer.as_of))
    where = f" in {out}" if out else ""
    typer.echo(f"{len(answer.rows)} rows{where} as of {moment}, running experiments included{more}.{cut}", err=True)


def _advise(root: Path) -> None:
    """After a slow answer: what would make it quicker, if anything would."""
    from warehouse.files.layout import take_snapshot

    sealed = sum(map(len, take_snapshot(root).sealed.values()))
    if sealed > MANY_FILES:
        advice = "`userrl warehouse compact` makes few of them, and queries quicker"
        typer.echo(f"note: {sealed:,} files of ended runs lie here; {advice}.", err=True)


def _search(root: Path, text: str, format: Format, out: Path | None, limit: int, seconds: float) -> None:
    import duckdb

    from warehouse import open_warehouse

    with refusals("sql", duckdb.Error), open_warehouse(root) as warehouse:
        matches = warehouse.search(text, limit=limit, seconds=seconds)
        newer = warehouse.unindexed()
    rows = Rows(matches.columns, matches.fetchall(), [str(kind) for kind in matches.types])
    cut = _deliver(rows, format, out)
    typer.echo(f"{len(rows.values)} turns, newest first; {newer} newer turns are not indexed yet.{cut}", err=True)


def _deliver(rows: Rows, format: Format, out: Path | None) -> str:
    """Print or write rows; what the closing line must add about columns that were cut."""
    if out is not None:
        save(rows, format, out)
        return ""
    note = show(rows, format)
    return "" if note is None else f" {note[0].upper()}{note[1:]}."
