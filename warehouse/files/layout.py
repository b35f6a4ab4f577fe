"""The layout of a warehouse directory, and consistent snapshots of it for readers.

    FORMAT                                   {"schema": n}: the newest schema that wrote here
    numbers/<n>                              one folder per run number (atomic mkdir)
    trials/<study>.jsonl                     sweep trials
    runs/run=<id>/run.json                   the run's row, written once
    runs/run=<id>/incarnations/<n>           one folder per start of the run (atomic mkdir)
    runs/run=<id>/writers/<n>                one folder per writing process; its file `lock` is held while it lives
    runs/run=<id>/live/<table>.<w>.<s>.jsonl      write-ahead file of writer w, segment s
    runs/run=<id>/sealed/<table>.<w>.<s>.parquet  the same rows, immutable
    packs/<name>.duckdb                      a compacted file ("pack"): many sealed segments as native tables, immutable
    manifest.json                            the valid packs, and the segments in each
    pinned/<any>/run=<id>/...                links that a slow reader holds while it reads (`pinned`)

A segment moves live -> sealed -> packed. Its next form is complete and visible before the previous form is removed. A
reader that lists live, then sealed, then the manifest therefore misses nothing. A segment seen twice is taken in its
later form.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from userrl_core.errors import ConfigError, LogError
from userrl_core.replaced_file import replacing, sync
from userrl_core.user_path import no_folder
from warehouse.files.checksum import intact, stamped

LIVE_LINE_BYTES = 4 * 2**20
"""Maximum length of a line in a live file; longer ones are sealed at once. Readers keep two such buffers per thread
and file list.
"""

REPAIR = "Run `userrl warehouse check --repair`"

_SEGMENT = re.compile(r"^(\w+)\.(\d{5})\.(\d{6})\.(jsonl|parquet)$")
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """A range of one writer's rows of one table, in any form."""

    run_id: str
    table: str
    writer: int
    number: int

    @property
    def stem(self) -> str:
        """Return the file name without its extension."""
        return f"{self.table}.{self.writer:05d}.{self.number:06d}"


STAGING = "importing"
"""The folder of the warehouse that imported runs are written in. No reader looks into it."""
ARRIVING = f"{STAGING}/arriving"
"""The file with the names of the folders that are being moved from there to ``runs``."""


@dataclass(slots=True)
class Snapshot:
    """A reader's view: files by table, packs, and runs; each segment exactly once."""

    live: dict[str, list[Path]] = field(default_factory=dict)
    sealed: dict[str, list[Path]] = field(default_factory=dict)
    packs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The manifest entry of each pack: its segments, and its rows by table."""

    runs: list[Path] = field(default_factory=list)

    @property
    def contents(self) -> tuple[object, ...]:
        """Return the sources of a query. Two snapshots have equal contents if no file moved between them."""
        return (self.live, self.sealed, list(self.packs))

    def files(self) -> Iterator[Path]:
        """Yield all live and sealed files."""
        for form in (self.live, self.sealed):
            for paths in form.values():
                yield from paths

    def without(self, table: str, segments: Set[Segment]) -> Snapshot:
        """Return the files with rows of a table in other segments than these. A pack that also holds other segments
        is included.
        """

        def other(files: dict[str, list[Path]]) -> dict[str, list[Path]]:
            return {table: [path for path in files.get(table, []) if segment_of(path) not in segments]}

        def lacks(entry: dict[str, Any]) -> bool:
            return any(segment not in segments for segment in segments_of(entry, table))

        packs = {name: entry for name, entry in self.packs.items() if lacks(entry)}
        return Snapshot(other(self.live), other(self.sealed), packs)

    def of_writers(self, table: str, writers: Collection[tuple[str, int]]) -> Snapshot:
        """Return the files that may hold rows of a table from these writers, (run_id, writer), and the credits of their runs."""
        runs = {run_id for run_id, _ in writers}
        stems = {(f"run={run_id}", f"{table}.{writer:05d}") for run_id, writer in writers}
        length = len(table) + 6

        def matching(files: dict[str, list[Path]]) -> dict[str, list[Path]]:
            table_files = [p for p in files.get(table, []) if (p.parent.parent.name, p.name[:length]) in stems]
            credits = [p for p in files.get("credits", []) if p.parent.parent.name.removeprefix("run=") in runs]
            return {table: table_files, "credits": credits}

        def may_hold(entry: dict[str, Any]) -> bool:
            # Credits without a turn among what was packed lie in the last pack of that time, outside its segments.
            segments = entry["segments"]
            return entry["rows"].get("credits", 1) > 0 or any(
                str(writer) in segments.get(run_id, {}).get(table, {}) for run_id, writer in writers
            )

        packs = {name: entry for name, entry in self.packs.items() if may_hold(entry)}
        return Snapshot(matching(self.live), matching(self.sealed), packs)


def default_root() -> Path:
    """Return ``$USERRL_HOME/warehouse``, or ``.userrl/warehouse`` in the working directory."""
    return Path(os.environ.get("USERRL_HOME") or ".userrl") / "warehouse"


def check_exists(root: Path) -> None:
    """Raise ConfigError for a missing warehouse."""
    if why := no_folder(root):
        raise ConfigError(
            "warehouse.missing",
            f"There is no warehouse at {root} ({why}). Start a run with `make run`, or name its folder.",
        )


def run_dir(root: Path, run_id: str) -> Path:
    """Return the run's folder. Raises ConfigError for an id that is not a plain folder name."""
    if not _RUN_ID.fullmatch(run_id):
        raise ConfigError(
            "argument.malformed",
            f"Run id {run_id!r} cannot be used. Use at most 128 letters, digits, '.', '_' and '-'.",
        )
    return root / "runs" / f"run={run_id}"


def writer_dir(run: Path, writer: int) -> Path:
    """Return the folder a writer claimed."""
    return run / "writers" / f"{writer:08d}"


def live_path(run: Path, segment: Segment) -> Path:
    """Return the segment's write-ahead file."""
    return run / "live" / f"{segment.stem}.jsonl"


def sealed_path(run: Path, segment: Segment) -> Path:
    """Return the segment's Parquet file."""
    return run / "sealed" / f"{segment.stem}.parquet"


def claim(folder: Path) -> int:
    """Return the next free number in a folder of numbered folders, claimed by atomic mkdir; starts at 1."""
    folder.mkdir(parents=True, exist_ok=True)
    number = max((int(name) for name in _names(folder) if name.isdigit()), default=0) + 1
    while True:
        try:
            (folder / f"{number:08d}").mkdir()
        except FileExistsError:
            number += 1
        else:
            return number


def run_folders(root: Path) -> list[Path]:
    """Return the folders of registered runs. The runs of an import are not listed before all of them have arrived."""
    runs = root / "runs"
    if not runs.is_dir():
        return []
    while True:
        before, names = arriving(root), _names(runs)
        if arriving(root) == before:
            return [runs / name for name in sorted(names) if name.startswith("run=") and name not in before]


def arriving(root: Path) -> frozenset[str]:
    """Return the names of run folders that an import is moving, or was moving when it was killed."""
    try:
        return frozenset((root / ARRIVING).read_text().split())
    except FileNotFoundError:
        return frozenset()


def segment_of(path: Path) -> Segment:
    """Return the segment of a live or sealed file."""
    table, writer, number, _ = path.name.split(".")
    return Segment(path.parent.parent.name.removeprefix("run="), table, int(writer), int(number))


def segments_of(entry: dict[str, Any], of_table: str | None = None) -> Iterator[Segment]:
    """Yield the segments in a pack, from its manifest entry; of one table, or of all."""
    for run_id, tables in entry["segments"].items():
        for table, writers in tables.items():
            if of_table in (None, table):
                for writer, ranges in writers.items():
                    for first, last in ranges:
                        for number in range(first, last + 1):
                            yield Segment(run_id, table, int(writer), number)


def segments_in(run: Path, form: str) -> list[tuple[Segment, Path]]:
    """Return the segments of a run in one form (``live`` or ``sealed``); unfinished temporary files are not listed."""
    folder = run / form
    run_id = run.name.removeprefix("run=")
    try:
        names = _names(folder)
    except FileNotFoundError:
        return []
    parsed = [(name, match) for name in names if (match := _SEGMENT.match(name))]
    return sorted((Segment(run_id, m[1], int(m[2]), int(m[3])), folder / name) for name, m in parsed)


def take_snapshot(root: Path, runs: Set[str] | None = None) -> Snapshot:
    """Return a list of all current files; live before sealed before manifest, see above.

    runs: include only files of these runs, and packs that may hold their rows among others.
    """
    folders = run_folders(root)
    if runs is not None:
        folders = [folder for folder in folders if folder.name.removeprefix("run=") in runs]
    snapshot = Snapshot(runs=folders)
    live = {segment: path for run in snapshot.runs for segment, path in segments_in(run, "live")}
    sealed = {segment: path for run in snapshot.runs for segment, path in segments_in(run, "sealed")}
    manifest = Manifest.read(root)
    # Credits without a turn among what was packed lie in the last pack of that time, outside its segments.
    snapshot.packs = {
        name: entry
        for name, entry in manifest.packs.items()
        if runs is None or not runs.isdisjoint(entry["segments"]) or entry["rows"].get("credits", 1) > 0
    }
    for segment, path in live.items():
        if segment not in sealed and not manifest.pack_of(segment):
            snapshot.live.setdefault(segment.table, []).append(path)
    for segment, path in sealed.items():
        if not manifest.pack_of(segment):
            snapshot.sealed.setdefault(segment.table, []).append(path)
    return snapshot


def _names(folder: Path) -> list[str]:
    return os.listdir(folder)  # noqa: PTH208 (thousands of names a query: plain strings are ten times quicker than Paths)


@dataclass(slots=True)
class Manifest:
    """The valid packs, and the segments in each as ranges: ``{pack: {run: {table: {writer: [[first, last], ...]}}}}``."""

    packs: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, root: Path) -> Manifest:
        """Return the current manifest; empty when nothing was packed yet. Raises LogError when it is lost or broken."""
        path, content = root / "manifest.json", None
        # Twice: the first compaction publishes an empty manifest before its packs, perhaps between our two looks.
        for _ in range(2):
            try:
                content = path.read_bytes()
                break
            except FileNotFoundError:
                if not any((root / "packs").glob("*.duckdb")):
                    return cls()
        if content is None:
            raise LogError("warehouse.damaged", f"{path} is missing, although there are packs. {REPAIR}.")
        try:
            if intact(content) is False:
                raise TypeError("it fails its checksum")
            packs = orjson.loads(content)["packs"]
            if not all(
                isinstance(pack["segments"], dict) and isinstance(pack["rows"], dict) for pack in packs.values()
            ):
                raise TypeError("a pack's entry is no object")
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise LogError("warehouse.damaged", f"{path} cannot be read. {REPAIR}.") from error
        return cls(packs)

    def write(self, root: Path) -> None:
        """Publish by rename, durable when it returns."""
        content = orjson.dumps({"packs": self.packs}, option=orjson.OPT_INDENT_2)
        write_atomically(root / "manifest.json", stamped(content.removesuffix(b"\n}")))

    def holds(self, run_id: str) -> bool:
        """Return whether a pack has segments of the run."""
        return any(run_id in pack["segments"] for pack in self.packs.values())

    def pack_of(self, segment: Segment) -> str | None:
        """Return the pack with the segment, or None."""
        for name, pack in self.packs.items():
            ranges = pack["segments"].get(segment.run_id, {}).get(segment.table, {}).get(str(segment.writer), [])
            if any(first <= segment.number <= last for first, last in ranges):
                return name
        return None


def write_atomically(path: Path, content: bytes) -> None:
    """Write, fsync, rename, fsync the folder: afterwards the file is complete or unchanged."""
    with replacing(path) as file:
        file.write(content)
    sync(path.parent)
