"""A check of the whole warehouse, with repairs that need no invented data.

Repairs: leftovers are removed. Half-sealed segments of dead writers are sealed. An unreadable segment or pack is
moved to ``quarantine/``; its rows are then missing and reported. A lost manifest is rebuilt from the packs' own
ledgers. A pack missing from the manifest is listed again. A rewind with an unknown target is excluded. A
damaged text index is removed, and the next compaction builds it again. A run's row of an earlier version gets a
checksum. Duplicate keys, gaps in turn numbers and lost run rows are reported but never repaired.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from userrl_core.errors import LogError
from userrl_core.replaced_file import sync
from warehouse import schema
from warehouse.files.checksum import intact, intact_parquet, verified_lines
from warehouse.files.encode import fitting
from warehouse.files.layout import (
    Manifest,
    check_exists,
    run_folders,
    sealed_path,
    segments_in,
    segments_of,
)
from warehouse.files.lock import FolderLock
from warehouse.files.packs import first_line, held_elsewhere, pack_entry, read_whole, unlisted_packs
from warehouse.files.runs import format_version, read_run, stamp_run, write_format
from warehouse.files.seal import DAMAGED, NULLED, kept_aside, write_segment
from warehouse.query.superseded import KINDS, readable, unreadable_lines
from warehouse.query.warehouse import Warehouse
from warehouse.schema import literal
from warehouse.search.index import INDEX, damage, indexed_segments, older_layout, remove_index
from warehouse.upkeep.compact import Compaction, alive, recover, remove_leftovers

UNREADABLE = "unreadable rewind"
"""The kind of a rewind that does not say what it voids."""
READ_ERRORS = (pa.ArrowException, OSError, ValueError, KeyError)
"""What reading a Parquet file raises if its bytes were changed. A changed name of a column is a KeyError."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault: its kind (one or two words), a sentence, and whether it was repaired."""

    kind: str
    sentence: str
    repaired: bool = False


@dataclass(slots=True)
class CheckReport:
    """The problems that a check found, and the amount of data it checked."""

    problems: list[Problem] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    packs: int = 0
    segments: int = 0
    unchecked: int = 0
    """Files that an earlier version wrote without a checksum."""

    @property
    def sound(self) -> bool:
        """Return True if every problem was repaired."""
        return all(problem.repaired for problem in self.problems)

    def add(self, kind: str, sentence: str, repaired: bool = False) -> None:
        """Report a problem."""
        self.problems.append(Problem(kind, sentence, repaired))


def check(root: Path, *, repair: bool = False, full: bool = True) -> CheckReport:
    """Verify files, ledgers, keys, gaps and schema versions. Raises LogError while a compactor is running.

    A warehouse that cannot be written has no compactor, and is checked without its lock. full: read every value of every pack,
    not only keys and counts.
    """
    report = CheckReport()
    check_exists(root)
    writable = repair or os.access(root, os.W_OK)
    with FolderLock.take(root / "compactor") if writable else contextlib.nullcontext():
        _format(root, repair, report)
        manifest = _manifest(root, repair, report)
        if manifest is None:
            return report
        for path in (root / "FORMAT", root / "manifest.json"):
            report.unchecked += path.exists() and intact(path.read_bytes()) is None
        _packs(root, manifest, repair, full, report)
        _unlisted(root, manifest, repair, report)
        _runs(root, repair, report)
        _trials(root, report)
        _segments(root, manifest, repair, report)
        _live(root, manifest, repair, report)
        if repair:
            _leftovers(root, manifest, report)
        _rewinds(root, manifest, repair, report)
        _index(root, manifest, repair, full, report)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # what they say is reported
            _contents(root, report)
    except (duckdb.Error, LogError, *READ_ERRORS) as error:
        # What is damaged and was not repaired is reported already.
        if not any(problem.kind in ("pack", "segment") and not problem.repaired for problem in report.problems):
            report.add("contents", f"The rows cannot be read: {first_line(error)}.")
    return report


def _format(root: Path, repair: bool, report: CheckReport) -> None:
    try:
        format_version(root)
    except LogError as error:
        if repair:
            write_format(root)
        report.add("format", str(error), repair)


def _manifest(root: Path, repair: bool, report: CheckReport) -> Manifest | None:
    """Return the current manifest, rebuilt if it was lost; None when it is lost and not repaired."""
    try:
        return Manifest.read(root)
    except LogError as error:
        if not repair:
            report.add("manifest", str(error))
            return None
        lost = _without_advice(error)
    manifest, unreadable = Manifest(), []
    # Newest packs first; a pack with a segment that is held already is left out, and its file stays where it is.
    for path in sorted((root / "packs").glob("*.duckdb"), reverse=True):
        try:
            entry = pack_entry(path)
        except LogError:
            unreadable.append(path)
        else:
            if not any(map(manifest.pack_of, segments_of(entry))):
                manifest.packs[path.name] = entry
    manifest.write(root)
    report.add("manifest", f"{lost} It was rebuilt from {len(manifest.packs)} packs.", True)
    for path in unreadable:
        _quarantine(root, path)
        text = f"Pack {path.name} cannot be read and is in quarantine; its rows are missing unless a backup has them."
        report.add("pack", text, True)
    return manifest


def _packs(root: Path, manifest: Manifest, repair: bool, full: bool, report: CheckReport) -> None:
    for name, listed_entry in list(manifest.packs.items()):
        path = root / "packs" / name
        report.packs += 1
        fault = None
        if not path.exists():
            fault = f"Pack {name} is in the manifest but not on disk."
        else:
            try:
                entry = pack_entry(path)
                if entry["schema"] > schema.version():
                    report.add("schema", f"Pack {name} {_newer(entry['schema'])}")
                    continue
                if entry["rows"] != listed_entry["rows"]:
                    fault = f"Pack {name} holds other numbers of rows than the manifest says."
                elif full and (why := read_whole(path)):
                    fault = f"Pack {name} cannot be read: {why}."
            except LogError as error:
                fault = _without_advice(error)
        if fault is None:
            continue
        if repair:
            if path.exists():
                _quarantine(root, path)
            lost = manifest.packs.pop(name)["rows"].get("turns", 0)
            manifest.write(root)
            fault += f" It is out of the manifest now; its {lost} turns are missing unless a backup has them."
        report.add("pack", fault, repair)


def _unlisted(root: Path, manifest: Manifest, repair: bool, report: CheckReport) -> None:
    """Report packs outside the manifest that hold the only copy of rows; list them again where no row would double."""
    for path in unlisted_packs(root, manifest):
        try:
            if held_elsewhere(root, manifest, path):
                continue
            entry = pack_entry(path)
        except LogError as error:
            sentence = _without_advice(error)
        else:
            sentence = f"Pack {path.name} with {entry['rows'].get('turns', 0)} turns is not in the manifest."
            if not any(map(manifest.pack_of, segments_of(entry))):
                if repair:
                    manifest.packs[path.name] = entry
                    manifest.write(root)
                    sentence += " It is again."
                report.add("pack", sentence, repair)
                continue
            sentence += " Other packs have some of its segments, but not all."
        if repair:
            _quarantine(root, path)
            sentence += " It is in quarantine now."
        report.add("pack", sentence, repair)


def _runs(root: Path, repair: bool, report: CheckReport) -> None:
    """Check the runs' rows. A row of an earlier version lacks a checksum; a repair adds one."""
    stamped = 0
    for run in run_folders(root):
        try:
            row = read_run(run)
            if row is not None and repair:
                stamped += stamp_run(run)
        except LogError as error:
            report.add("run", str(error))
            continue
        if row is None:
            report.add("run", f"{run.name} has no run.json: a start that died while registering.")
            continue
        report.unchecked += intact((run / "run.json").read_bytes()) is None
        if fitting(schema.types("runs"), row)[1]:
            report.add("run", f"{run.name}/run.json has values beyond their columns; they read as null.")
    if stamped:
        report.add("run", f"{stamped} run.json of an earlier version had no checksum; they have one now.", True)


def _trials(root: Path, report: CheckReport) -> None:
    for path in sorted((root / "trials").glob("*.jsonl")):
        # Several versions may have written to it, so a line without a checksum is one of an earlier version.
        checked = [intact(line) for line in path.read_bytes().split(b"\n") if line]
        report.unchecked += None in checked
        if damaged := checked.count(False):
            report.add("trials", f"trials/{path.name}: {damaged} lines fail their checksum.")


def _segments(root: Path, manifest: Manifest, repair: bool, report: CheckReport) -> None:
    for run in run_folders(root):
        for segment, path in segments_in(run, "sealed"):
            if manifest.pack_of(segment):
                continue
            report.segments += 1
            name = f"Segment {run.name}/{path.name}"
            try:
                content = path.read_bytes()
                checked = intact_parquet(content)
                fault = f"{name} fails its checksum." if checked is False else None
                table = pq.read_table(pa.BufferReader(content)) if checked is not False else None
                metadata = {} if table is None else _segment_metadata(segment.table, table)
            except READ_ERRORS as error:
                fault = f"{name} cannot be read: {first_line(error)}."
            if fault is not None:
                if repair:
                    _quarantine(root, path)
                    fault += " It is in quarantine now."
                report.add("segment", fault, repair)
                continue
            report.unchecked += checked is None
            if damaged := metadata.get(DAMAGED, 0):
                text = f"{name}: {damaged} lines failed their checksum when it was sealed; all of them are in {{}}."
                report.add("lines", text.format(kept_aside(path).relative_to(root)), True)
            if nulled := metadata.get(NULLED, 0):
                report.add(
                    "values", f"{name}: {nulled} values did not fit their columns and were stored as null.", True
                )
            if (version := metadata.get(b"userrl_schema", 1)) > schema.version():
                report.add("schema", f"{name} {_newer(version)}")


def _segment_metadata(table: str, content: pa.Table) -> dict[bytes, int]:
    """Return the numbers that a segment states of itself. Raises ValueError if they or a key column cannot be read."""
    if missing := {"run_id"} & schema.types(table).keys() - set(content.column_names):
        raise ValueError(f"it has no column {', '.join(missing)}")
    metadata = content.schema.metadata or {}
    return {key: int(metadata[key]) for key in (DAMAGED, NULLED, b"userrl_schema") if key in metadata}


def _live(root: Path, manifest: Manifest, repair: bool, report: CheckReport) -> None:
    """Report changed lines of live files. `_leftovers` repairs them once their writer has ended."""
    for run in run_folders(root):
        for segment, path in segments_in(run, "live"):
            if manifest.pack_of(segment) or sealed_path(run, segment).exists():
                continue
            with contextlib.suppress(FileNotFoundError):  # sealed meanwhile
                lines = verified_lines(path.read_bytes())
                report.unchecked += bool(lines.trusted) and not lines.checked
                if lines.damaged:
                    mendable = repair and not alive(run, segment.writer)
                    remedy = " It is sealed without them and kept in quarantine now." if mendable else ""
                    text = f"Live file {run.name}/{path.name}: {lines.damaged} lines fail their checksum.{remedy}"
                    report.add("lines", text, mendable)


def _leftovers(root: Path, manifest: Manifest, report: CheckReport) -> None:
    if removed := remove_leftovers(root, manifest):
        report.add("leftovers", f"{len(removed)} files that a killed compaction or writer left were removed.", True)
    compaction = Compaction()
    for run in run_folders(root):
        for path in recover(run, compaction):
            path.unlink(missing_ok=True)
    if compaction.recovered:
        text = f"{compaction.recovered} live files of dead writers were sealed; {compaction.torn_bytes} bytes were half a line."
        report.add("live files", text, True)


def _rewinds(root: Path, manifest: Manifest, repair: bool, report: CheckReport) -> None:
    """Report rewinds that do not say what they void. A repair changes only their kind in the file, to `UNREADABLE`."""
    for run in run_folders(root):
        for segment, path in segments_in(run, "sealed"):
            if segment.table == "events" and path.exists() and not manifest.pack_of(segment):
                with contextlib.suppress(*READ_ERRORS):  # reported as a damaged segment
                    _rewinds_of_segment(path, f"Segment {run.name}/{path.name}", repair, report)
        for segment, path in segments_in(run, "live"):
            if segment.table == "events" and (count := unreadable_lines(path)):
                text = f"{run.name}/{path.name}: {count} lines cannot be read; repair after its writer has ended."
                report.add("rewinds", text)
    for name in list(manifest.packs):
        path = root / "packs" / name
        with contextlib.suppress(duckdb.Error):  # reported as a damaged pack
            _rewinds_of_pack(path, repair, report)


def _index(root: Path, manifest: Manifest, repair: bool, full: bool, report: CheckReport) -> None:
    """Check that the text index is readable and has the turns of every pack (a compaction indexes before it packs)."""
    if (fault := damage(root, full=full)) is not None:
        text = f"The text index {INDEX} is damaged: {fault}. `userrl warehouse compact` rebuilds it."
        if repair:
            remove_index(root)
            text = (
                f"The text index {INDEX} was damaged: {fault}. It was removed; `userrl warehouse compact` rebuilds it."
            )
        report.add("index", text, repair)
        return
    indexed = indexed_segments(root)
    missing = sum(
        not indexed.issuperset(segments_of(entry, "turns"))
        for entry in manifest.packs.values()
        if entry["rows"].get("turns", 0)
    )
    if missing and not older_layout(root):
        report.add(
            "index", f"The text index {INDEX} lacks turns of {missing} packs; `userrl warehouse compact` adds them."
        )


def _rewinds_of_segment(path: Path, name: str, repair: bool, report: CheckReport) -> None:
    if intact_parquet(path.read_bytes()) is False:
        return  # reported as a damaged segment
    table = pq.read_table(path)
    kinds = table.column("kind").to_pylist()
    run_ids, starts, stages, steps = (
        table.column(name).to_pylist() for name in ("run_id", "incarnation", "stage", "step")
    )
    rows = zip(run_ids, starts, stages, steps, kinds, strict=True)
    bad = [row[-1] in KINDS and bool(readable([(*row, None)])[1]) for row in rows]
    if not any(bad):
        return
    if repair:
        renamed = pa.array([UNREADABLE if lost else kind for lost, kind in zip(bad, kinds, strict=True)], pa.string())
        table = table.set_column(table.schema.get_field_index("kind"), "kind", renamed)
        write_segment(path, table)
    report.add("rewinds", _lost_rewinds(name, sum(bad), repair), repair)


def _rewinds_of_pack(path: Path, repair: bool, report: CheckReport) -> None:
    """Repair a pack by a changed copy, because a pack is never written to. Open readers keep the old one."""
    lost = "run_id IS NULL OR incarnation IS NULL OR (stage IS NULL AND (step IS NULL OR kind = 'replay'))"
    bad = f"kind IN ({', '.join(map(literal, KINDS))}) AND ({lost})"
    with duckdb.connect(":memory:") as con:
        con.execute(f"ATTACH {literal(str(path))} AS pack (READ_ONLY)")
        tables = con.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'pack'").fetchall()
        if ("events",) not in tables:
            return
        ((count,),) = con.execute(f"SELECT count(*) FROM pack.events WHERE {bad}").fetchall()
    if not count:
        return
    if repair:
        draft = path.with_name(f".{path.name}")
        shutil.copyfile(path, draft)
        with duckdb.connect(":memory:") as con:
            con.execute(f"ATTACH {literal(str(draft))} AS pack")
            con.execute(f"UPDATE pack.events SET kind = {literal(UNREADABLE)} WHERE {bad}")
            con.execute("CHECKPOINT pack")
            con.execute("DETACH pack")
        sync(draft)
        draft.replace(path)
        sync(path.parent)
    report.add("rewinds", _lost_rewinds(f"Pack {path.name}", count, repair), repair)


def _lost_rewinds(name: str, count: int, repaired: bool) -> str:
    remedy = f" They are events of kind {UNREADABLE!r} now." if repaired else ""
    return f"{name}: {count} rewinds do not say what they void; turns they replaced count twice.{remedy}"


def _quarantine(root: Path, path: Path) -> None:
    """Move a damaged file to quarantine under a unique name; nothing is deleted."""
    folder = root / "quarantine"
    folder.mkdir(exist_ok=True)
    name, number = f"{path.parent.parent.name}.{path.name}", 1
    while (target := folder / (name if number == 1 else f"{name}.{number}")).exists():
        number += 1
    path.rename(target)


def _without_advice(error: LogError) -> str:
    return str(error).partition("; run ")[0] + "."


def _newer(version: int) -> str:
    return f"has schema {version}, this code knows {schema.version()}: update userrl."


def _contents(root: Path, report: CheckReport) -> None:
    with Warehouse(root) as warehouse:
        for table in schema.LOGGED:
            report.rows[table] = warehouse.arrow(f"SELECT count(*) FROM store.{table}").column(0)[0].as_py()
        problems = [
            Problem(kind, sentence.format(**row))
            for kind, sentence, query in _CONTENT_CHECKS
            for row in warehouse.arrow(query).to_pylist()
        ]
    report.problems += problems


_CONTENT_CHECKS = (
    (
        "duplicates",
        "Run {run_id}: {n} rows of turns share their (traj_id, turn) with another, first {first}.",
        """SELECT run_id, sum(n - 1)::BIGINT AS n, min(traj_id) AS first FROM (
               SELECT any_value(run_id) AS run_id, traj_id, count(*) AS n FROM store.turns
               GROUP BY traj_id, turn HAVING count(*) > 1) GROUP BY run_id""",
    ),
    (
        "duplicates",
        "Run {run_id}: {n} rows of trajectories share their traj_id with another, first {first}.",
        """SELECT run_id, sum(n - 1)::BIGINT AS n, min(traj_id) AS first FROM (
               SELECT any_value(run_id) AS run_id, traj_id, count(*) AS n FROM store.trajectories
               GROUP BY traj_id HAVING count(*) > 1) GROUP BY run_id""",
    ),
    (
        "gaps",
        "Run {run_id}: {n} trajectories lack turns between 1 and their last, first {first}.",
        """SELECT run_id, count(*) AS n, min(traj_id) AS first FROM (
               SELECT any_value(run_id) AS run_id, traj_id FROM store.turns GROUP BY traj_id
               HAVING count(DISTINCT turn) <> max(turn)) GROUP BY run_id""",
    ),
    (
        "gaps",
        "Run {run_id}: {n} trajectories say another number of turns than there are, first {first}.",
        """SELECT t.run_id, count(*) AS n, min(t.traj_id) AS first FROM store.trajectories t
           LEFT JOIN (SELECT traj_id, count(*) AS have FROM store.turns GROUP BY traj_id) u USING (traj_id)
           WHERE t.turns <> coalesce(u.have, 0) GROUP BY t.run_id""",
    ),
    (
        "credits",
        "Run {run_id}: {n} credits belong to no turn, first of trajectory {first}.",
        """SELECT run_id, count(*) AS n, min(traj_id) AS first FROM store.credits
           ANTI JOIN store.turns USING (traj_id, turn) GROUP BY run_id""",
    ),
)
