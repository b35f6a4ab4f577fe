"""``userrl bundle``: a static copy of a run's page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.arguments import RunName


def bundle(
    run: RunName = "latest",
    out: Annotated[
        str, typer.Option("--out", metavar="FOLDER", help="A new or empty folder, or an earlier bundle.")
    ] = ("bundle"),
    seed: Annotated[int, typer.Option("--seed", help="Seed that draws the fifty conversations.")] = 0,
    people: Annotated[bool, typer.Option("--with-people", help="Include conversations with people.")] = False,
    imported: Annotated[bool, typer.Option("--with-imported", help="Include conversations of imported tasks.")] = False,
) -> None:
    """Write a static copy of a run's page: report, widest groups and fifty conversations. Open index.html.

    The pages have no scripts and load nothing, so they open from a file and from any web host. At most 20 MB.

    Example: userrl bundle latest --out shared-run
    """
    from userrl.machine.home import warehouse_dir
    from userrl.machine.separate import part
    from userrl.reports.import_report import ImportedRun, find_imported
    from userrl.reports.run_report import read_report
    from userrl.run.run import find
    from warehouse import open_warehouse

    sharing = part("userrl-sharing", "bundle")
    report = find_imported(run) or read_report(find(run))
    with open_warehouse(warehouse_dir()) as warehouse:
        shared = sharing.Shared(people, imported)
        written = sharing.write_bundle(report, warehouse, Path(out), seed=seed, shared=shared)
    if isinstance(report, ImportedRun) and not imported:
        print("Imported conversations are left out. Give --with-imported to include them.")
    left_out = f"; {written.left_out} left out for size" if written.left_out else ""
    print(
        f"wrote {written.folder / 'index.html'}: {written.groups} groups, {written.conversations} conversations, "
        f"{written.size / 1e6:.1f} MB{left_out}"
    )
