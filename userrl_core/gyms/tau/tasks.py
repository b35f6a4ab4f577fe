"""Tasks of TauGym: the bike desk's own, and the published ones of tau-bench (retail and airline).

A payload holds the domain, where its data lies, what the user wants, the gold actions and the outputs the user must hear.
``unprovable`` says why replaying the gold actions fails, where it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from userrl_core.errors import ConfigError, TaskError
from userrl_core.gyms.released import read_json, text_field
from userrl_core.gyms.tau import airline as tau_airline
from userrl_core.gyms.tau import bikes as tau_bikes
from userrl_core.gyms.tau import bikes_tasks as bikes
from userrl_core.gyms.tau import retail as tau_retail
from userrl_core.gyms.tau.database import Database
from userrl_core.gyms.tau.tools import Domain, ToolError
from userrl_core.records import Task
from userrl_core.seeding import Split, content_hash, split_of, validation_of

SET_SIZE, SET_SEED = 200, 7
VALIDATION = 0.1
"""Share of our non-test tasks held out."""

TABLES = {"retail": ("users", "orders", "products"), "airline": ("users", "flights", "reservations")}
FILES: tuple[tuple[str, str, Split], ...] = (
    ("retail", "train", "train"),
    ("retail", "dev", "validation"),
    ("retail", "test", "test"),
    ("airline", "test", "test"),
)
RELEASED_ROWS = Path("gyms/TauGym/taugym/data")
OPENINGS = {
    "retail": "Hi! I need some help with an order of mine.",
    "airline": "Hi! I need some help with a flight reservation.",
}


def tasks(split: str, *, domain: str = "bikes") -> Sequence[Task]:
    """Our tasks of a split. Raises ConfigError for another domain than ours; import the published ones."""
    if domain != "bikes":
        raise ConfigError(f"TauGym has no tasks of its own for '{domain}'; import the published ones, or use 'bikes'.")
    return [task for task in _all() if task.split == split]


def generate(n: int, seed: int) -> list[Task]:
    """n tasks of the bike desk. Raises ConfigError when the desk's bookings give fewer."""
    found = [_own(payload) for payload in bikes.payloads(n, seed)]
    if len(found) < n:
        raise ConfigError(f"The bike desk gives only {len(found)} different tasks with this seed; {n} were asked for.")
    return found


def load_published(root: Path) -> list[Task]:
    """The published tasks, from a copy of tau-bench (``root/retail``, ``root/airline``) or of UserRL (``root/gyms``).

    tau-bench: train, dev (as validation) and test as published. UserRL: its train and test rows with their openings; it
    has no database, so they are playable with tau-bench's beside it (``root/../tau-bench``) or with the gym's option
    ``database``. Gold actions are replayed: a write that fails marks its task as not provable. Raises TaskError naming
    file, index and field.
    """
    if (root / RELEASED_ROWS).is_dir():
        return _released(root)
    found = []
    for name, part, split in FILES:
        path, database = root / name / f"tasks_{part}.json", str((root / name).resolve())
        place = domain(name, database)
        for index, row in enumerate(read_json(path, list)):
            payload = _read(row, path, index)
            payload.update(domain=name, database=database, opening=OPENINGS[name])
            payload["unprovable"] = _why_unprovable(place, payload)
            prefix = name if part == "test" else f"{name}-{part}"
            found.append(Task("tau", f"{prefix}-{index:03d}", split, payload, "published:tau-bench", name))
    return found


def _released(root: Path) -> list[Task]:
    found = []
    for part in ("train", "test"):
        path = root / RELEASED_ROWS / f"tau_{part}.json"
        for index, row in enumerate(read_json(path, list)):
            key, line = text_field(row, "id", path, index), text_field(row, "obs", path, index)
            name = key.split("-", 1)[0]
            if name not in TABLES:
                raise TaskError(f"{path}, entry {index}: field 'id' ({key}) names no known desk.")
            info = row.get("info")
            payload = _read(info.get("task") if isinstance(info, dict) else None, path, index)
            folder = (root.parent / "tau-bench" / name).resolve()
            payload.update(domain=name, database=str(folder) if folder.is_dir() else None, opening=line, unprovable="")
            if folder.is_dir():
                payload["unprovable"] = _why_unprovable(domain(name, str(folder)), payload)
            split: Split = "test" if part == "test" else validation_of(content_hash(["tau", key]))
            found.append(Task("tau", key, split, payload, "published:userrl", name))
    return found


@lru_cache(maxsize=8)
def domain(name: str, database: str | None) -> Domain:
    """A desk with its tools, policy and data; loaded once. Raises TaskError when its files are not there."""
    policy = (Path(__file__).parent / "policies" / f"{name}.txt").read_text(encoding="utf-8")
    if name == "bikes":
        return Domain(name, tau_bikes.TOOLS, tau_bikes.WRITES, tau_bikes.SCHEMAS, policy, bikes.tables())
    if database is None or not Path(database).is_dir():
        raise TaskError(f"The {name} desk's database is not at {database}; import the tasks again from where it lies.")
    module = tau_retail if name == "retail" else tau_airline
    folder = Path(database)
    base = {table: read_json(folder / f"{table}.json", dict) for table in TABLES[name]}
    schemas = tuple(read_json(folder / "tools.json", list))
    return Domain(name, module.TOOLS, module.WRITES, schemas, policy, base)


def replay(place: Domain, actions: Sequence[dict[str, Any]]) -> tuple[Database, list[str]]:
    """The database after the gold writes, and what failed. A failed write leaves the database as it was."""
    database, failed = Database(place.base), []
    for action in actions:
        if action["name"] in place.writes:
            try:
                place.carry_out(database, action["name"], action["kwargs"])
            except ToolError as error:
                failed.append(f"gold action {action['name']} fails on replay: {error}")
    return database, failed


def _why_unprovable(place: Domain, payload: dict[str, Any]) -> str:
    return "; ".join(replay(place, payload["actions"])[1])


def _read(row: Any, path: Path, index: int) -> dict[str, Any]:
    instruction = text_field(row, "instruction", path, index)
    actions, outputs = row.get("actions"), row.get("outputs")
    if not isinstance(actions, list) or not all(_is_action(action) for action in actions):
        raise TaskError(f"{path}, entry {index}: field 'actions' must be a list of {{name, kwargs}}.")
    if not isinstance(outputs, list) or not all(isinstance(output, str) for output in outputs):
        raise TaskError(f"{path}, entry {index}: field 'outputs' must be a list of texts.")
    return {"instruction": instruction, "actions": actions, "outputs": outputs}


def _is_action(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str) and isinstance(value.get("kwargs"), dict)


@lru_cache(maxsize=1)
def _all() -> list[Task]:
    return generate(SET_SIZE, SET_SEED)


def _own(payload: dict[str, Any]) -> Task:
    name = content_hash(["tau", payload["instruction"]])
    return Task("tau", name, split_of(name, validation=VALIDATION), payload, tier="bikes")
