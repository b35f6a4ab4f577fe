"""Does the warehouse hold what it says it holds? Reads everything, and repairs what needs no invention.

Repairs: leftovers are removed, half-sealed segments of dead writers are sealed, an unreadable segment or pack is moved
to ``quarantine/`` (its rows are then missing and reported), a lost manifest is made again from the packs' own ledgers, a
pack that it does not name is listed again. Never repaired, only told: duplicate keys, gaps in turn numbers, lost run rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from userrl_core.errors import LogError
from warehouse import schema
from warehouse.files.encode import fitting
from warehouse.files.layout import Manifest, run_folders, segments_in
from warehouse.files.lock import FolderLock
from warehouse.files.pack_metadata import (
    Holders,
    first_line,
    needed,
    overlap,
    pack_entry,
    quarantine,
    read_whole,
    rebuild_manifest,
    unlisted,
)
from warehouse.files.runs import format_version, read_run, write_format


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be: kind (one word or two), a sentence, and whether it was repaired."""

    kind: str
    sentence: str
    repaired: bool = False


@dataclass(slots=True)
class Report:
    """What a check found, and how much it looked at."""

    problems: list[Problem] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    packs: int = 0
    segments: int = 0

    @property
    def sound(self) -> bool:
        """Nothing is wrong that was not repaired."""
        return all(problem.repaired for problem in self.problems)


def check(root: Path, *, repair: bool = False, whole: bool = True) -> Report:
    """Verify files, ledgers, keys, gaps and schema versions. Raises LogError while a compactor is at work.

    whole: read every value of every pack, not only keys and counts.
    """
    report = Report()
    if not root.is_dir():
        raise LogError(f"There is no warehouse at {root}; start a run with `make run`, or name its folder.")
    with FolderLock.take(root / "compactor"):
        _format(root, repair, report)
        manifest = _manifest(root, repair, report)
        if manifest is None:
            return report
        _packs(root, manifest, repair, whole, report)
        _unlisted(root, manifest, repair, report)
        _runs(root, report)
        _segments(root, manifest, repair, report)
        if repair:
            _leftovers(root, manifest, report)
    try:
        _contents(root, report)
    except (duckdb.Error, LogError) as error:
        # What is damaged and was not repaired is told already.
        if not any(problem.kind in ("pack", "segment") and not problem.repaired for problem in report.problems):
            report.problems.append(Problem("contents", f"The rows cannot be read: {first_line(error)}."))
    return report


def _format(root: Path, repair: bool, report: Report) -> None:
    try:
        format_version(root)
    except LogError as error:
        if repair:
            write_format(root)
        report.problems.append(Problem("format", str(error), repair))


def _manifest(root: Path, repair: bool, report: Report) -> Manifest | None:
    """The manifest in force, made again where it was lost; None when it is lost and stays so."""
    try:
        return Manifest.read(root)
    except LogError as error:
        sentence = str(error)
    if not repair:
        report.problems.append(Problem("manifest", sentence))
        return None
    manifest, unreadable = rebuild_manifest(root)
    quarantine(root, unreadable)
    manifest.write(root)
    sentence = sentence.partition("; run ")[0]
    text = f"{sentence}. It was made again from {len(manifest.packs)} packs."
    report.problems.append(Problem("manifest", text, True))
    for path in unreadable:
        text = f"Pack {path.name} cannot be read and is in quarantine; its rows are missing unless a backup has them."
        report.problems.append(Problem("pack", text, True))
    return manifest


def _packs(root: Path, manifest: Manifest, repair: bool, whole: bool, report: Report) -> None:
    for name, pack in list(manifest.packs.items()):
        path = root / "packs" / name
        report.packs += 1
        sentence = ""
        if not path.exists():
            sentence = f"Pack {name} is in the manifest but not on disk."
        else:
            try:
                found = pack_entry(path)
                if found["rows"] != pack["rows"]:
                    sentence = f"Pack {name} holds other numbers of rows than the manifest says."
                if found["schema"] > schema.version():
                    sentence = (
                        f"Pack {name} has schema {found['schema']}, this code knows {schema.version()}: update userrl."
                    )
                    report.problems.append(Problem("schema", sentence))
                    continue
            except LogError as error:
                sentence = str(error).partition("; run ")[0] + "."
            if not sentence and whole and (why := read_whole(path)) is not None:
                sentence = f"Pack {name} cannot be read: {why}."
        if sentence:
            _drop_pack(root, manifest, name, sentence, repair, report)


def _drop_pack(root: Path, manifest: Manifest, name: str, sentence: str, repair: bool, report: Report) -> None:
    if repair:
        if (root / "packs" / name).exists():
            quarantine(root, [root / "packs" / name])
        lost = manifest.packs.pop(name)["rows"].get("turns", 0)
        manifest.write(root)
        sentence += f" It is out of the manifest now; its {lost} turns are missing unless a backup has them."
    report.problems.append(Problem("pack", sentence, repair))


def _unlisted(root: Path, manifest: Manifest, repair: bool, report: Report) -> None:
    """Packs that the manifest does not name although rows are in them alone: listed again where nothing would double."""
    for path in unlisted(root, manifest):
        try:
            if not needed(root, path, Holders(root, manifest)):
                continue
            entry = pack_entry(path)
        except LogError as error:
            sentence = str(error).partition("; run ")[0] + "."
        else:
            turns = entry["rows"].get("turns", 0)
            sentence = f"Pack {path.name} with {turns} turns is not in the manifest."
            if not any(overlap(entry["segments"], pack["segments"]) for pack in manifest.packs.values()):
                if repair:
                    manifest.packs[path.name] = entry
                    manifest.write(root)
                    sentence += " It is again."
                report.problems.append(Problem("pack", sentence, repair))
                continue
            sentence += " Other packs have some of its segments, but not all."
        if repair:
            quarantine(root, [path])
            sentence += " It is in quarantine now."
        report.problems.append(Problem("pack", sentence, repair))


def _runs(root: Path, report: Report) -> None:
    for run in run_folders(root):
        try:
            row = read_run(run)
        except LogError as error:
            report.problems.append(Problem("run", str(error)))
            continue
        if row is None:
            report.problems.append(Problem("run", f"{run.name} has no run.json: a start that died while registering."))
            continue
        kinds = {column.name: column.type for column in schema.tables()["runs"].columns.values()}
        if fitting(kinds, row)[1]:
            report.problems.append(
                Problem("run", f"{run.name}/run.json has values beyond their columns; they read as null.")
            )


def _segments(root: Path, manifest: Manifest, repair: bool, report: Report) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from warehouse.files.seal import NULLED

    for run in run_folders(root):
        for segment, path in segments_in(run, "sealed"):
            if manifest.holds(segment):
                continue
            report.segments += 1
            try:
                stored = pq.read_table(path).schema.metadata or {}
            except (pa.ArrowException, OSError) as error:
                if repair:
                    quarantine(root, [path])
                text = f"Segment {run.name}/{path.name} cannot be read: {first_line(error)}."
                report.problems.append(
                    Problem("segment", text + (" It is in quarantine now." if repair else ""), repair)
                )
                continue
            if nulled := int(stored.get(NULLED, b"0")):
                text = f"Segment {run.name}/{path.name}: {nulled} values did not fit their columns and were stored as null."
                report.problems.append(Problem("values", text, True))
            version = int(stored.get(b"userrl_schema", b"1"))
            if version > schema.version():
                text = f"Segment {path.name} has schema {version}, this code knows {schema.version()}: update userrl."
                report.problems.append(Problem("schema", text))


def _leftovers(root: Path, manifest: Manifest, report: Report) -> None:
    from warehouse.upkeep.compact import Compaction, recover, remove_leftovers

    removed = remove_leftovers(root, manifest)
    if removed:
        text = f"{len(removed)} files that a killed compaction or writer left were removed."
        report.problems.append(Problem("leftovers", text, True))
    done = Compaction()
    for run in run_folders(root):
        for path in recover(run, done):
            path.unlink(missing_ok=True)
    if done.recovered:
        text = f"{done.recovered} live files of dead writers were sealed; {done.torn_bytes} bytes were half a line."
        report.problems.append(Problem("live files", text, True))


def _contents(root: Path, report: Report) -> None:
    from warehouse.query.connection import open_warehouse

    found = []
    with open_warehouse(root) as warehouse:
        for table in schema.LOGGED:
            report.rows[table] = warehouse.arrow(f"SELECT count(*) FROM store.{table}").column(0)[0].as_py()
        for name, sentence, query in _QUESTIONS:
            found += [Problem(name, sentence.format(**row)) for row in warehouse.arrow(query).to_pylist()]
    report.problems += found


_QUESTIONS = (
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
