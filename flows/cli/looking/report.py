"""``userrl report``: the results of a run."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.cli.arguments import Html, Json, RunName
from flows.cli.terminal import page_text, plain, plain_json

if TYPE_CHECKING:
    from userrl.reports.import_report import ImportedRun


def report(run: RunName = "latest", html: Html = None, as_json: Json = False) -> None:
    """Show a run's results: demonstrator, SFT and RL side by side on held-out tasks.

    For a run without a report, show its progress and exit with 1. latest: the newest run that has a report. people:
    conversations of people compared with simulated users. An imported run has a report of scores, pass^k and costs.

    Example: userrl report latest --html report.html
    """
    from userrl.machine.home import warehouse_dir
    from userrl.reports import people_report
    from userrl.reports.curves import curve_points
    from userrl.reports.document import Document
    from userrl.reports.run_report import REPORT_FILE, has_report, read_report
    from userrl.reports.run_summary import run_summary
    from userrl.reports.users.users_section import TITLE, users_of
    from userrl.run.run import all_runs, find
    from userrl_core.errors import ConfigError
    from warehouse import open_warehouse
    from warehouse.files.layout import run_dir

    if run == people_report.RUN:
        _people(html, as_json)
        return
    try:
        meant = find(run)
    except ConfigError:
        from userrl.reports.import_report import find_imported

        if imported := find_imported(run):
            _imported(imported, html, as_json)
            return
        raise
    if run == "latest" and not has_report(meant):
        finished = [run_candidate for run_candidate in all_runs() if has_report(run_candidate)]
        if finished:
            print(
                f"{meant.id} has no report yet (state: {meant.status.state}). Showing the newest run that has one.",
                file=sys.stderr,
            )
            meant = finished[-1]
    if not has_report(meant):
        if not as_json and html is None and warehouse_dir().is_dir():
            from userrl.reports.run_so_far import run_so_far

            with open_warehouse(warehouse_dir(), run=meant.id) as warehouse:
                print(page_text(run_so_far(meant, warehouse)), end="")
        raise ConfigError("run.no_report", f"Run {meant.id} has no report yet. It is {meant.status.state}.")
    if as_json:
        print(_with_users((meant.folder / REPORT_FILE).read_text(), meant.id))
        return
    report = read_report(meant)
    if html is None:
        if not warehouse_dir().is_dir():
            print(page_text(run_summary(report)), end="")
            return
        # Conversations of people are compared with those of any run.
        of_people = run_dir(warehouse_dir(), people_report.RUN).is_dir()
        with open_warehouse(warehouse_dir(), run=None if of_people else meant.id) as warehouse:
            if report.card is None:
                from userrl.reports.write_report import with_card

                report = with_card(report, warehouse)
            print(page_text(run_summary(report, curve_points(warehouse, meant.id))), end="")
            since = tuple(people_report.beside_simulated(warehouse, meant.id))
            users = Document(TITLE, tuple(users_of(warehouse, meant.id)))
        print("\n" + plain(users.text()), end="")
        if since:
            print("\n" + plain(Document(people_report.TITLE, since).text()), end="")
        return
    from userrl.reports.run_document import run_document

    with open_warehouse(warehouse_dir()) as warehouse:
        document = run_document(report, warehouse)
    print(f"wrote {', '.join(map(str, document.write(Path(html))))}")


def _with_users(report: str, run: str) -> str:
    """Return a report's JSON with the audits of the run's users, if there are any."""
    users = _audited(run)
    return plain_json({**json.loads(report), **({"users": users} if users else {})}, indent=1)


def _audited(run: str) -> list[dict[str, Any]]:
    from userrl.machine.home import warehouse_dir
    from userrl.reports.users.audited import audited_users
    from userrl.reports.users.document import users_json
    from warehouse import open_warehouse

    if not warehouse_dir().is_dir():
        return []
    with open_warehouse(warehouse_dir(), run=run) as warehouse:
        return [users_json(users, conversations=False) for users in audited_users(warehouse, run)]


def _imported(run: ImportedRun, html: str | None, as_json: bool) -> None:
    from userrl.machine.home import warehouse_dir
    from userrl.reports.document import section
    from userrl.reports.import_report import import_document
    from userrl.reports.users.users_section import TITLE, users_of
    from warehouse import open_warehouse

    if as_json:
        print(plain_json({**asdict(run), "users": _audited(run.run)}, indent=1))
        return
    with open_warehouse(warehouse_dir(), run=run.run) as warehouse:
        document = import_document(run, section(TITLE, users_of(warehouse, run.run)))
    if html is None:
        print(plain(document.text()), end="")
    else:
        print(f"wrote {', '.join(map(str, document.write(Path(html))))}")


def _people(html: str | None, as_json: bool) -> None:
    from userrl.machine.home import warehouse_dir
    from userrl.reports.people_report import as_json as numbers
    from userrl.reports.people_report import paired, people_document
    from warehouse import open_warehouse

    with open_warehouse(warehouse_dir()) as warehouse:
        if as_json:
            print(plain_json(numbers(paired(warehouse)), indent=1))
            return
        document = people_document(warehouse)
    if html is None:
        print(plain(document.text()), end="")
        return
    print(f"wrote {', '.join(map(str, document.write(Path(html))))}")
