"""``userrl warehouse``: maintenance and export of the warehouse."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.arguments import Json
from flows.cli.terminal import plain, plain_json

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Compact, check and export the warehouse.")
Root = Annotated[Path | None, typer.Option("--warehouse", help="The warehouse folder.")]


@app.command()
def compact(
    root: Root = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also pack the sealed segments of running experiments.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Seal files of dead writers, pack sealed segments, and update the text index.

    Example: userrl warehouse compact
    """
    from warehouse.upkeep.compact import compact as run

    done = run(_root(root), everything=everything)
    if as_json:
        typer.echo(plain_json(asdict(done)))
        return
    typer.echo(
        f"Packed {done.segments} segments with {done.turns:,} turns into {len(done.packs)} packs in {done.seconds:.1f} s"
        f" ({len(done.merged)} small packs merged); sealed {done.recovered} files of dead writers; "
        f"indexed {done.indexed:,} turns."
    )
    if done.nulled:
        typer.echo(f"{done.nulled} values did not fit their columns and were set to null.")
    if done.torn_bytes:
        typer.echo(
            f"{done.torn_bytes} bytes at the ends of dead writers' files were incomplete lines and were skipped."
        )
    if done.damaged:
        typer.echo(f"{done.damaged} lines failed their checksum and were skipped; their files are in quarantine/.")


@app.command()
def check(
    root: Root = None,
    repair: Annotated[bool, typer.Option("--repair", help="Repair problems that need no guess.")] = False,
    as_json: Json = False,
) -> None:
    """Verify ledgers, keys, gaps and schema versions. Exit with 1 if something is wrong.

    Example: userrl warehouse check --repair
    """
    from warehouse.upkeep.check import check as run

    report = run(_root(root), repair=repair)
    if as_json:
        typer.echo(plain_json(asdict(report) | {"sound": report.sound}))
    else:
        for problem in report.problems:
            typer.echo(plain(f"{'repaired' if problem.repaired else 'WRONG':8}  {problem.kind}: {problem.sentence}"))
        rows = ", ".join(f"{count:,} {table}" for table, count in report.rows.items() if count)
        typer.echo(f"{'Sound' if report.sound else 'Not sound'}: {rows or 'no rows'}.")
        if report.unchecked:
            typer.echo(
                f"{report.unchecked} files of an earlier version have no checksum; in them only unreadable data was detected."
            )
        if not report.sound and not repair:
            typer.echo("Next: userrl warehouse check --repair")
    raise typer.Exit(0 if report.sound else 1)


@app.command()
def stats(root: Root = None, as_json: Json = False) -> None:
    """Count the rows of each table, and the files that hold them.

    Example: userrl warehouse stats
    """
    from warehouse.upkeep.stats import stats as run

    size = run(_root(root))
    if as_json:
        typer.echo(plain_json(asdict(size)))
        return
    typer.echo(f"{size.runs} runs")
    for table, count in size.rows.items():
        typer.echo(f"{count:>14,}  {table}")
    for form, files in size.files.items():
        typer.echo(f"{size.bytes[form] / 1e6:>11.1f} MB  {form} ({files} files)")


@app.command()
def attach(root: Root = None) -> None:
    """Print SQL that attaches all data in any client of DuckDB 2 or newer.

    Rows of running experiments are copied when the script runs. Run it within a minute, because their files are replaced.

    Example: userrl warehouse attach > attach.sql; duckdb -init attach.sql
    """
    from warehouse.query.attach import attach_script

    typer.echo(attach_script(_root(root)))


@app.command()
def export(
    target: Annotated[
        str, typer.Argument(help="A folder or a URL such as s3://bucket/prefix; with --format, a file or folder.")
    ],
    root: Root = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", help="Without --format: key=value for the file system; may be repeated."),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", help="Write one run's conversations as messages, parquet, atif or inspect."),
    ] = None,
    run_name: Annotated[str, typer.Option("--run", help="With --format: the run.")] = "latest",
    phase: Annotated[str, typer.Option(help="With --format: the phase, or all.")] = "evaluate",
    policy: Annotated[str | None, typer.Option(help="With --format: only this policy.")] = None,
    as_json: Json = False,
) -> None:
    """Copy new rows as Parquet for another engine (docs/reference/engines.md), or a run's conversations for another tool.

    Example: userrl warehouse export conversations.jsonl --format messages --run latest
    """
    from userrl.run.progress import ProgressLine

    alive = ProgressLine().alive("exporting")
    if form is not None:
        with alive:
            count, left_out = _conversations(
                _root(root), Path(target), form, run_name, None if phase == "all" else phase, policy
            )
        sentence = f"Wrote {count:,} conversations to {target}."
        written = {"conversations": count, "target": target, "without_consent": left_out}
        typer.echo(plain_json(written) if as_json else sentence + _left_out(left_out))
        if form == "inspect" and not as_json:
            typer.echo(f"Next: inspect view --log-dir {shlex.quote(target)}")
        return
    from userrl.machine.output_files import writing
    from warehouse.query.fetch import quoted
    from warehouse.upkeep.export import export as run

    with alive, writing(target):
        done = run(_root(root), target, options=_options(option))
    if as_json:
        typer.echo(plain_json(asdict(done)))
        return
    sentence = f"Wrote {done.rows:,} rows in {done.objects} objects ({done.bytes / 1e6:.1f} MB) to {target}."
    typer.echo(sentence + _left_out(done.without_consent))
    objects = quoted(f"{target}/**/turns/*/*.parquet")
    typer.echo(f"Next: duckdb -c {shlex.quote(f'SELECT count(*) FROM {objects}')}")


@app.command()
def objects(
    target: Annotated[str, typer.Argument(help="The folder or URL of an export.")],
    table: Annotated[str, typer.Option(help="The table.")] = "turns",
    option: Annotated[
        list[str] | None, typer.Option("--option", help="key=value for the file system; may be repeated.")
    ] = None,
) -> None:
    """List the objects of an export that can be read. Exit with 1 if one was cut off; each is named on stderr.

    Example: userrl warehouse objects s3://bucket/userrl
    """
    from warehouse.upkeep.exported import exported_objects

    listing = exported_objects(target, table, options=_options(option))
    for path in listing.paths:
        typer.echo(plain(path))
    for sentence in listing.damaged:
        typer.echo(plain(sentence), err=True)
    raise typer.Exit(1 if listing.damaged else 0)


@app.command("import")
def import_conversations(
    file: Annotated[Path, typer.Argument(help="A file written by `export --format messages` or `--format parquet`.")],
    root: Root = None,
) -> None:
    """Import exported conversations, as runs of this warehouse with their original ids. Repeating it changes nothing.

    Example: userrl warehouse import conversations.jsonl
    """
    from userrl.machine.hashes import file_hash
    from warehouse.upkeep.exchange.own_exports import bring_in, read_conversations

    counts = bring_in(_root(root), read_conversations(file), digest=file_hash(file) if file.is_file() else "")
    for run, count in counts.items():
        typer.echo(plain(f"{run}: {count:,} conversations"))


def _left_out(count: int) -> str:
    """Return the sentence on conversations that are in no export; "" for none."""
    return f" Left out {count:,} conversations of people who did not consent." if count else ""


def _conversations(
    root: Path, target: Path, form: str, run: str, phase: str | None, policy: str | None
) -> tuple[int, int]:
    """Write the conversations to the target. Return their number, and the number of those without consent."""
    from userrl.machine.output_files import writing
    from userrl_core.errors import ConfigError
    from userrl_core.suggest import nearest
    from warehouse.query.warehouse import open_warehouse
    from warehouse.upkeep.exchange import atif, conversations, inspect_log

    writers = {
        "messages": conversations.write_messages,
        "parquet": conversations.write_parquet,
        "atif": atif.write_atif,
        "inspect": inspect_log.write_inspect,
    }
    with open_warehouse(root) as warehouse:
        if form not in writers:
            raise ConfigError(
                "argument.unknown_value",
                f"There is no format '{form}'{nearest(form, writers)}. Use one of {', '.join(writers)}.",
            )
        exported = list(conversations.conversations(warehouse, run, phase=phase, policy=policy))
        left_out = conversations.without_consent(warehouse, run, phase=phase, policy=policy)
        if not exported:
            raise ConfigError(
                "run.no_conversations",
                f"{left_out:,} conversations of people who did not consent are in no export."
                if left_out
                else f"Run {run} has no such conversation. --phase all takes those of every phase.",
            )
        with writing(target):
            writers[form](exported, target)
    return len(exported), left_out


def _options(texts: list[str] | None) -> dict[str, str]:
    """Return the options by key. Raises ConfigError for one without a value and for a key that is given twice."""
    from userrl_core.errors import ConfigError

    options: dict[str, str] = {}
    for text in texts or []:
        key, is_given, value = text.partition("=")
        if not is_given or key in options:
            raise ConfigError("argument.malformed", f"--option {key}: give each key once, as key=value.")
        options[key] = value
    return options


def _root(root: Path | None) -> Path:
    from warehouse.files.layout import default_root

    return root or default_root()
