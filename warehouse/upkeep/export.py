"""Export of the warehouse to a shared file system or an object store, as Parquet for any engine.

    <target>/home=<id>/<table>/run=<id>/w<writer>-<first seq>-<last seq>.parquet

A warehouse draws its id at its first export, so that several machines may export to one target at the same time, also runs of
the same name. A target whose first export had no such folder (up to 26 November 2026) stays as it is.

Objects are written whole, once, and never renamed, replaced or locked, but for the run ``people``, which each export writes
anew. Their names show what is exported already. A killed export therefore continues where it stopped, and the next one adds
only new rows. Only packed rows are copied (`export` compacts first). A turn is exported once, with the credits known when it
was packed. Later credits are in ``credits``, and rewinds are in ``events``, as in the warehouse.

A person's conversation is left out unless it has its consent when it is packed. So export while no person is in a conversation.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as pq

from userrl_core.errors import ConfigError
from userrl_core.replaced_file import sync
from warehouse import schema
from warehouse.files.layout import write_atomically
from warehouse.query.warehouse import Warehouse, open_warehouse
from warehouse.upkeep.compact import compact

OBJECT_ROWS = 500_000
_NAME = re.compile(r"w(\d+)-(\d+)-(\d+)\.parquet$")


@dataclass(slots=True)
class Export:
    """The result of one export. without_consent: conversations of people that are not in it."""

    objects: int = 0
    rows: int = 0
    bytes: int = 0
    without_consent: int = 0


def export(root: Path, target: str, *, options: dict[str, Any] | None = None, object_rows: int = OBJECT_ROWS) -> Export:
    """Write the data that the target (a folder or any fsspec URL, for example ``s3://bucket/prefix``) does not have yet.

    options: for the file system (endpoint_url, key ...). object_rows: maximum rows in one object. Only one export per
    target at a time. Raises ConfigError.
    """
    files, base = open_target(target, options)
    compact(root, everything=True)
    if not _without_homes(files, base):
        base = f"{base}/home={home_id(root)}"
    result = Export()
    with open_warehouse(root) as warehouse:
        consented = [row["traj_id"] for row in warehouse.rows("FROM consented()")]
        for table in schema.LOGGED:
            _table(warehouse, table, files, base, object_rows, result, consented)
        _runs(warehouse, files, base, result)
        people = "run_id = 'people' AND 'human' IN (policy, user_name) AND traj_id NOT IN (FROM consented())"
        result.without_consent = warehouse.rows(f"SELECT count(*) AS n FROM trajectories WHERE {people}")[0]["n"]
    return result


def open_target(target: str, options: Mapping[str, Any] | None) -> tuple[Any, str]:
    """Return the file system of a target and the path in it. Raises ConfigError for a target that cannot be used."""
    try:
        files, base = fsspec.core.url_to_fs(target, **(options or {}))
    except (ImportError, ValueError) as error:
        raise ConfigError("export.bad_target", f"The target {target!r} cannot be used: {error}.") from error
    return files, base.rstrip("/")


def home_id(root: Path) -> str:
    """Return the id of the warehouse in exports: 16 hex digits, drawn once."""
    path = root / "home_id"
    if not path.is_file():
        draft = root / f".home_id.{os.getpid()}.{os.urandom(4).hex()}.tmp"
        write_atomically(draft, os.urandom(8).hex().encode())
        # link fails where the file exists: of two first exports at once, both use the id of one.
        with suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
        sync(root)
    return path.read_text()


def _without_homes(files: Any, base: str) -> bool:
    """Return whether the target was begun by a version that did not tell homes apart."""
    files.invalidate_cache()
    return any(files.exists(f"{base}/{table}") for table in (*schema.LOGGED, "runs"))


def _table(
    warehouse: Warehouse, table: str, files: Any, base: str, object_rows: int, result: Export, consented: list[int]
) -> None:
    packed = warehouse.packed(table)
    exported = _exported(files, f"{base}/{table}")
    # The conversations of people are in the run `people`. It is written anew, because consent comes later or is withdrawn.
    columns = warehouse.arrow(f"SELECT * FROM ({packed}) LIMIT 0").column_names
    traj_id = "(fields->>'traj_id')::BIGINT" if table == "events" else "traj_id" if "traj_id" in columns else None
    if traj_id is not None:
        condition = f"run_id <> 'people' OR {traj_id} IS NULL OR list_contains({consented}::BIGINT[], {traj_id})"
        packed = f"SELECT * FROM ({packed}) WHERE {condition}"
        people = f"{base}/{table}/run=people"
        # A target without homes may hold the people of several.
        if base.rpartition("/")[2].startswith("home=") and files.exists(people):
            exported = {key: last for key, last in exported.items() if key[0] != "people"}
            for path in files.find(people):
                files.rm_file(path)
    writers = warehouse.arrow(f"SELECT DISTINCT run_id, writer FROM ({packed}) ORDER BY ALL").to_pylist()
    for run, writer in ((row["run_id"], row["writer"]) for row in writers):
        last = exported.get((run, writer), 0)
        while True:
            part = warehouse.arrow(
                f"SELECT * FROM ({packed}) WHERE run_id = $run AND writer = $writer AND seq > $last "
                f"ORDER BY seq LIMIT {object_rows}",
                run=run,
                writer=writer,
                last=last,
            )
            if part.num_rows == 0:
                break
            first, last = part["seq"][0].as_py(), part["seq"][-1].as_py()
            _put(files, f"{base}/{table}/run={run}/w{writer:05d}-{first:012d}-{last:012d}.parquet", part, result)


def _runs(warehouse: Warehouse, files: Any, base: str, result: Export) -> None:
    for row in warehouse.arrow("SELECT run_id FROM runs").to_pylist():
        path = f"{base}/runs/run={row['run_id']}/run.parquet"
        if not files.exists(path):
            _put(files, path, warehouse.arrow("SELECT * FROM runs WHERE run_id = $run", run=row["run_id"]), result)


def _exported(files: Any, folder: str) -> dict[tuple[str, int], int]:
    """Return the last exported seq of each (run, writer), from the names of existing objects."""
    files.invalidate_cache()
    last: dict[tuple[str, int], int] = {}
    for path in files.find(folder) if files.exists(folder) else []:
        if match := _NAME.search(path):
            key = (path.rsplit("/", 2)[-2].removeprefix("run="), int(match[1]))
            last[key] = max(last.get(key, 0), int(match[3]))
    return last


def _put(files: Any, path: str, rows: Any, result: Export) -> None:
    buffer = io.BytesIO()
    pq.write_table(rows, buffer, compression="zstd", row_group_size=50_000)
    content = buffer.getvalue()
    if "file" in files.protocol:
        # A local file can be cut off by a kill, which an object cannot: write it aside first.
        files.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        try:
            files.pipe_file(f"{path}.part", content)
        except OSError:
            Path(f"{path}.part").unlink(missing_ok=True)
            raise
        files.mv(f"{path}.part", path)
    else:
        files.pipe_file(path, content)
    result.objects += 1
    result.rows += rows.num_rows
    result.bytes += len(content)
