"""The list of a home's runs: state, scores and outcome."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from analysis.measure.outcome import TRAINED, Ended, in_a_word, in_short
from userrl.machine.home import warehouse_dir
from userrl.run.run import Run, all_runs
from userrl_core.errors import LogError, UserRLError
from userrl_core.json_files import GrowingLines, read_json
from warehouse.files.layout import run_folders
from warehouse.files.runs import IMPORTED, RETIRED, read_run

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class ListedRun:
    """A run in a list. best, last: mean validation scores. ending: the outcome, by branch if there are branches. outcome:
    the same in the width of a column. waits: the holder of its slot.
    """

    run: str
    recipe: str
    profile: str | None
    seed: int
    state: str
    stage: str | None
    best: float | None
    last: float | None
    ending: str | None
    outcome: str | None
    created: float
    waits: str | None
    folder: Path


def runs() -> pl.DataFrame:
    """Return the runs of this home, oldest first, with recipe, profile, seed, state, best and last validation, ending
    and folder.
    """
    import polars as pl

    columns = {
        "run": pl.String, "recipe": pl.String, "profile": pl.String, "seed": pl.Int64, "state": pl.String, "best": pl.Float64,
        "last": pl.Float64, "ending": pl.String, "folder": pl.String,
    }  # fmt: skip
    rows, _ = listed_runs()
    return pl.DataFrame([vars(row) | {"folder": str(row.folder)} for row in rows], schema=columns)


def listed_runs() -> tuple[list[ListedRun], str]:
    """Return the runs, oldest first, and the reason why their endings are unknown, or "".

    A damaged warehouse hides no run.
    """
    runs = all_runs()
    endings, problem = reported_ends(runs), ""
    if others := [run.id for run in runs if run.id not in endings]:
        measured, problem = _measured(others)
        endings |= measured
    rows = []
    for run in runs:
        status, (best, last) = run.status, validation_scores(run.folder)
        ends = () if status.state == "running" else endings.get(run.id, ())
        rows.append(
            ListedRun(
                run=run.id,
                recipe=run.info.recipe,
                profile=run.info.profile,
                seed=run.info.seed,
                state=status.state,
                stage=status.stage,
                best=best,
                last=last,
                ending=in_a_word(ends) or None,
                outcome=in_short(ends) or None,
                created=run.info.created,
                waits=status.waits if status.state == "running" else None,
                folder=run.folder,
            )
        )
    return rows, problem


@dataclass(frozen=True, kw_only=True)
class ListedImport:
    """An imported run in a list. state: tells it from a run of ours. created: Unix seconds of the import."""

    run: str
    name: str
    state: str = IMPORTED
    created: float


def listed_imports() -> list[ListedImport]:
    """Return the imported runs, oldest first. A deleted run is left out, and so is one whose row cannot be read."""
    imports = []
    for folder in run_folders(warehouse_dir()):
        with suppress(LogError):
            row = read_run(folder)
            if row is not None and row.get("kind") == IMPORTED and not (folder / RETIRED).exists():
                imports.append(ListedImport(run=row["run_id"], name=row["name"], created=row["created"]))
    return sorted(imports, key=lambda imported: (imported.created, imported.run))


def reported_ends(runs: Iterable[Run]) -> dict[str, Sequence[Ended]]:
    """Return the endings of the completed runs as their reports have them. Reading them takes no query.

    Runs without a report, and with one of an earlier version, are left out.
    """
    endings: dict[str, Sequence[Ended]] = {}
    for run in runs:
        with suppress(KeyError, TypeError):
            if run.status.state == "completed":
                report = read_json(run.folder / "report.json") or {}
                endings[run.id] = [_reported_end(report, outcome) for outcome in report["card"]["outcomes"]]
    return endings


def _reported_end(report: Mapping[str, Any], outcome: Mapping[str, Any]) -> Ended:
    branch = outcome["branch"]
    best, last = report["branches"][branch] if branch else (report["best"], report["last"])
    card_rows = (
        row
        for row in report["card"]["rows"]
        if re.fullmatch(rf"{re.escape(branch or TRAINED)}, (best and )?last", row["policy"])
    )
    gain = next((row["gain"] for row in card_rows), None)
    interval = SimpleNamespace(**gain) if gain else None  # Interval's module imports numpy
    return Ended(branch, outcome["outcome"], float(best["validation"]), float(last["validation"]), gain=interval)


def measured_ends(root: Path, run_ids: Collection[str]) -> dict[str, Sequence[Ended]]:
    """Return the endings of some runs from their rows in the warehouse. Raises UserRLError, duckdb.Error."""
    if not run_ids or not root.is_dir():
        return {}
    from userrl.run.ending import endings  # imported here, as DuckDB takes longer than the list
    from warehouse import open_warehouse

    with open_warehouse(root, run=run_ids) as warehouse:
        return {run_id: ends for run_id, ends in endings(warehouse).items() if run_id in run_ids}


def _measured(run_ids: Collection[str]) -> tuple[dict[str, Sequence[Ended]], str]:
    """Return the endings, and the reason why they cannot be read, or ""."""
    import duckdb

    try:
        return measured_ends(warehouse_dir(), run_ids), ""
    except (UserRLError, duckdb.Error) as error:
        return {}, str(error)


def validation_scores(run_folder: Path) -> tuple[float | None, float | None]:
    """Return the mean scores of a run's best and last validation so far. None before the first."""
    best = last = None
    for name in sorted(
        (path.parent.name for path in run_folder.glob("stages/rl-*/progress.jsonl")),
        key=lambda n: (int(n.split("-")[1]), n),
    ):
        for line in GrowingLines(run_folder / "stages" / name / "progress.jsonl"):
            score = line.get("validate/score/mean")
            if score is not None:
                best, last = max(score, score if best is None else best), score
        written = read_json(run_folder / "stages" / name / "result.json")
        if written is not None and (chosen := written["value"].get("best")):
            best = float(chosen["score"])
    return best, last
