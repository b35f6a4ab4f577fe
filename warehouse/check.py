"""Does the warehouse hold what it says it holds? Reads everything, and repairs what needs no invention.

Repairs: leftovers are removed, half-sealed segments of dead writers are sealed, an unreadable segment or pack is moved
to ``quarantine/`` (its rows are then missing and reported), a lost manifest is made again from the packs' own ledgers.
Never repaired, only told: duplicate keys and gaps in turn numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from userrl_core.errors import LogError
from warehouse import schema
from warehouse.layout import Manifest, run_folders, segments_in
from warehouse.lock import FolderLock


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


def check(root: Path, *, repair: bool = False) -> Report:
    """Verify files, ledgers, keys, gaps and schema versions. Raises LogError while a compactor is at work."""
    report = Report()
    with FolderLock.take(root / "compactor"):
        manifest = _manifest(root, repair, report)
        _packs(root, manifest, repair, report)
        _segments(root, manifest, repair, report)
        if repair:
            _leftovers(root, manifest, report)
    _contents(root, report)
    return report


def rebuild_manifest(root: Path) -> Manifest:
    """The manifest from the packs' own ledgers: newest packs first, a pack whose segments are held already is left out."""
    manifest = Manifest()
    for path in sorted((root / "packs").glob("*.duckdb"), reverse=True):
        try:
            entry = _entry(path)
        except duckdb.Error:
            continue
        if not any(_overlap(entry["segments"], pack["segments"]) for pack in manifest.packs.values()):
            manifest.packs[path.name] = entry
    return manifest


def _manifest(root: Path, repair: bool, report: Report) -> Manifest:
    packs = list((root / "packs").glob("*.duckdb"))
    try:
        manifest = Manifest.read(root)
        if manifest.packs or not packs or (root / "manifest.json").exists():
            return manifest
        sentence = f"manifest.json is missing beside {len(packs)} packs."
    except LogError as error:
        sentence = str(error)
    if repair:
        manifest = rebuild_manifest(root)
        manifest.write(root)
        report.problems.append(
            Problem("manifest", f"{sentence} It was made again from {len(manifest.packs)} packs.", True)
        )
        return manifest
    report.problems.append(Problem("manifest", sentence))
    return Manifest()


def _packs(root: Path, manifest: Manifest, repair: bool, report: Report) -> None:
    for name, pack in list(manifest.packs.items()):
        path = root / "packs" / name
        report.packs += 1
        sentence = ""
        if not path.exists():
            sentence = f"Pack {name} is in the manifest but not on disk."
        else:
            try:
                found = _entry(path)
                if found["rows"] != pack["rows"]:
                    sentence = f"Pack {name} holds other numbers of rows than the manifest says."
                if found["schema"] > schema.version():
                    sentence = (
                        f"Pack {name} has schema {found['schema']}, this code knows {schema.version()}: update userrl."
                    )
                    report.problems.append(Problem("schema", sentence))
                    continue
            except duckdb.Error as error:
                sentence = f"Pack {name} cannot be read: {str(error).splitlines()[0]}"
        if not sentence:
            continue
        if repair:
            if path.exists():
                _quarantine(root, path)
            del manifest.packs[name]
            manifest.write(root)
            lost = pack["rows"].get("turns", 0)
            sentence += f" It is out of the manifest now; its {lost} turns are missing unless a backup has them."
        report.problems.append(Problem("pack", sentence, repair))


def _segments(root: Path, manifest: Manifest, repair: bool, report: Report) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for run in run_folders(root):
        if not (run / "run.json").exists():
            report.problems.append(Problem("run", f"{run.name} has no run.json: a start that died while registering."))
        for segment, path in segments_in(run, "sealed"):
            if manifest.holds(segment):
                continue
            report.segments += 1
            try:
                stored = pq.read_table(path).schema.metadata or {}
            except (pa.ArrowInvalid, OSError) as error:
                if repair:
                    _quarantine(root, path)
                text = f"Segment {run.name}/{path.name} cannot be read: {str(error).splitlines()[0]}"
                report.problems.append(
                    Problem("segment", text + (" It is in quarantine now." if repair else ""), repair)
                )
                continue
            version = int(stored.get(b"userrl_schema", b"1"))
            if version > schema.version():
                text = f"Segment {path.name} has schema {version}, this code knows {schema.version()}: update userrl."
                report.problems.append(Problem("schema", text))


def _leftovers(root: Path, manifest: Manifest, report: Report) -> None:
    from warehouse.compact import Compaction, recover, remove_leftovers

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
    from warehouse.read import open_warehouse

    with open_warehouse(root) as warehouse:
        for table in schema.LOGGED:
            report.rows[table] = warehouse.arrow(f"SELECT count(*) FROM store.{table}").column(0)[0].as_py()
        for name, sentence, query in _QUESTIONS:
            for row in warehouse.arrow(query).to_pylist():
                report.problems.append(Problem(name, sentence.format(**row)))


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


def _entry(path: Path) -> dict[str, Any]:
    """A pack's manifest entry as its own tables give it. Raises duckdb.Error for a file that cannot be read."""
    with duckdb.connect(":memory:") as con:
        con.execute(f"ATTACH '{str(path).replace(chr(39), chr(39) * 2)}' AS pack (READ_ONLY)")
        segments: dict[str, dict[str, dict[str, list[list[int]]]]] = {}
        for run, table, writer, first, final in con.execute("FROM pack.ledger ORDER BY ALL").fetchall():
            segments.setdefault(run, {}).setdefault(table, {}).setdefault(str(writer), []).append([first, final])
        (version,) = con.execute("SELECT schema_version FROM pack.format").fetchall()[0]
        counted = dict(con.execute("FROM pack.counts").fetchall())
        rows = {t: con.execute(f"SELECT count(*) FROM pack.{t}").fetchall()[0][0] for t in counted}
    made = path.stat()
    return {"segments": segments, "rows": rows, "schema": version, "bytes": made.st_size, "created": made.st_mtime}


def _overlap(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return any(
        first <= other_last and other_first <= last
        for run, table, writer, first, last in _flat(a)
        for other_first, other_last in b.get(run, {}).get(table, {}).get(writer, [])
    )


def _flat(segments: dict[str, Any]) -> Iterator[tuple[str, str, str, int, int]]:
    for run, tables in segments.items():
        for table, writers in tables.items():
            for writer, ranges in writers.items():
                for first, last in ranges:
                    yield run, table, writer, first, last


def _quarantine(root: Path, path: Path) -> None:
    folder = root / "quarantine"
    folder.mkdir(exist_ok=True)
    path.rename(folder / f"{path.parent.parent.name}.{path.name}")
