"""``userrl report``: what a run achieved."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from flows.cli.arguments import Html, Json, RunName
from flows.cli.terminal import plain


def report(run: RunName = "latest", html: Html = None, as_json: Json = False) -> None:
    """Show what a run achieved: demonstrator, SFT and RL side by side on held-out tasks. Of a run without a report, how
    far it came, and exit 1. latest: of those that have a report. people: conversations of people, beside simulated ones.
    """
    from flows.machine.home import warehouse_dir
    from flows.run.reports import of_people, so_far
    from flows.run.reports.document import Document
    from flows.run.run import all_runs, find
    from userrl_core.errors import ConfigError
    from warehouse import open_warehouse

    if run == of_people.RUN:
        _people(html, as_json)
        return
    meant = find(run)
    if run == "latest" and not (meant.folder / "report.json").is_file():
        finished = [each for each in all_runs() if (each.folder / "report.json").is_file()]
        if finished:
            print(
                f"{meant.id} has no report yet, it is {meant.status.state}; this is the newest one that has.",
                file=sys.stderr,
            )
            meant = finished[-1]
    if not (meant.folder / "report.json").is_file():
        if not as_json and html is None and warehouse_dir().is_dir():
            with open_warehouse(warehouse_dir()) as warehouse:
                print(plain(so_far.page(meant, warehouse).text()), end="")
        raise ConfigError(f"Run {meant.id} has no report yet; it is {meant.status.state}.")
    if as_json:
        print((meant.folder / "report.json").read_text())
        return
    if html is None:
        print(plain(meant.report_text), end="")
        if warehouse_dir().is_dir():
            with open_warehouse(warehouse_dir()) as warehouse:
                since = tuple(of_people.beside_simulated(warehouse, meant.id))
            if since:
                print("\n" + plain(Document(of_people.TITLE, since).text()), end="")
        return
    from flows.run.report import Report
    from flows.run.reports.of_run import page

    written = Report.model_validate_json((meant.folder / "report.json").read_text())
    with open_warehouse(warehouse_dir()) as warehouse:
        document = page(written, warehouse)
    print(f"wrote {', '.join(map(str, document.write(Path(html))))}")


def _people(html: str | None, as_json: bool) -> None:
    from flows.machine.home import warehouse_dir
    from flows.run.reports.of_people import as_json as numbers
    from flows.run.reports.of_people import page, paired
    from warehouse import open_warehouse

    with open_warehouse(warehouse_dir()) as warehouse:
        if as_json:
            print(json.dumps(numbers(paired(warehouse)), indent=1))
            return
        document = page(warehouse)
    if html is None:
        print(plain(document.text()), end="")
        return
    print(f"wrote {', '.join(map(str, document.write(Path(html))))}")
