"""TauGym's tasks: our own in the bikes domain, and the published ones of tau-bench (retail and airline).

A payload holds the domain, the folder of its data, the user's instruction, the gold actions and the outputs that the user
must be told. ``unprovable`` holds the error where replaying the gold actions fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from userrl_core.errors import ConfigError, TaskError
from userrl_core.gyms.released import read_json, text_field
from userrl_core.gyms.tau import airline, bikes, bikes_tasks, retail
from userrl_core.gyms.tau.database import Database
from userrl_core.gyms.tau.tools import Domain, ToolError
from userrl_core.records import Task
from userrl_core.seeding import Split, content_hash, split_of, validation_of

SET_SIZE, SET_SEED = 200, 7
VALIDATION = 0.1
"""Share of our non-test tasks in the validation split."""

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
    """Our tasks of a split. Raises ConfigError for a domain without tasks of ours."""
    if domain != "bikes":
        raise ConfigError(f"TauGym has no tasks of its own for '{domain}'; import the published ones, or use 'bikes'.")
    return [task for task in _all() if task.split == split]


def generate(n: int, seed: int) -> list[Task]:
    """n tasks of the bikes domain. Raises ConfigError when its bookings give fewer."""
    generated = [_own(payload) for payload in bikes_tasks.payloads(n, seed)]
    if len(generated) < n:
        raise ConfigError(
            f"The bikes domain has only {len(generated)} different tasks with this seed; ask for fewer than {n}."
        )
    return generated


def load_published(root: Path) -> list[Task]:
    """The published tasks, from a copy of tau-bench (``root/retail``, ``root/airline``) or of UserRL (``root/gyms``).

    tau-bench: train, dev (as validation) and test as published. UserRL: its train and test rows with their openings; it
    has no database, so they need tau-bench's next to it (``root/../tau-bench``) or the gym's option ``database``. Gold
    actions are replayed: a failing write marks its task as not provable. Raises TaskError naming file, index and field.
    """
    if (root / RELEASED_ROWS).is_dir():
        return _released(root)
    loaded = []
    for name, part, split in FILES:
        path, database = root / name / f"tasks_{part}.json", str((root / name).resolve())
        domain = load_domain(name, database)
        for index, row in enumerate(read_json(path, list)):
            payload = _read(row, path, index)
            payload.update(domain=name, database=database, opening=OPENINGS[name])
            payload["unprovable"] = _replay_errors(domain, payload)
            prefix = name if part == "test" else f"{name}-{part}"
            loaded.append(Task("tau", f"{prefix}-{index:03d}", split, payload, "published:tau-bench", name))
    return loaded


def _released(root: Path) -> list[Task]:
    loaded = []
    for part in ("train", "test"):
        path = root / RELEASED_ROWS / f"tau_{part}.json"
        for index, row in enumerate(read_json(path, list)):
            key, opening = text_field(row, "id", path, index), text_field(row, "obs", path, index)
            name = key.split("-", 1)[0]
            if name not in TABLES:
                raise TaskError(f"{path}, entry {index}: field 'id' ({key}) names no known domain.")
            info = row.get("info")
            payload = _read(info.get("task") if isinstance(info, dict) else None, path, index)
            folder = (root.parent / "tau-bench" / name).resolve()
            payload.update(
                domain=name, database=str(folder) if folder.is_dir() else None, opening=opening, unprovable=""
            )
            if folder.is_dir():
                payload["unprovable"] = _replay_errors(load_domain(name, str(folder)), payload)
            split: Split = "test" if part == "test" else validation_of(content_hash(["tau", key]))
            loaded.append(Task("tau", key, split, payload, "published:userrl", name))
    return loaded


@lru_cache(maxsize=8)
def load_domain(name: str, database: str | None) -> Domain:
    """A domain with its tools, policy and data; loaded once. Raises TaskError when its files are missing.

    The policy is the released one, ``wiki.md`` beside the domain's tools, and our own text where there is none.
    """
    policy = (Path(__file__).parent / "policies" / f"{name}.txt").read_text(encoding="utf-8")
    if name == "bikes":
        return Domain(name, bikes.TOOLS, bikes.WRITES, bikes.SCHEMAS, policy, bikes_tasks.tables())
    if database is None or not Path(database).is_dir():
        raise TaskError(
            f"The database of the {name} domain is not at {database}; import the tasks again from its new folder."
        )
    module = retail if name == "retail" else airline
    folder = Path(database)
    base = {table: read_json(folder / f"{table}.json", dict) for table in TABLES[name]}
    schemas = tuple(read_json(folder / "tools.json", list))
    if (released := policy_file(folder)).is_file():
        policy = released.read_text(encoding="utf-8")
    return Domain(name, module.TOOLS, module.WRITES, schemas, policy, base)


def policy_file(database: Path) -> Path:
    """Where a domain's released policy lies, there or not."""
    return database / "wiki.md"


def replay(domain: Domain, actions: Sequence[dict[str, Any]]) -> tuple[Database, list[str]]:
    """The database after the gold writes, and the errors of failed ones, which leave it unchanged."""
    database, errors = Database(domain.base), []
    for action in actions:
        if action["name"] in domain.writes:
            try:
                domain.execute(database, action["name"], action["kwargs"])
            except ToolError as error:
                errors.append(f"gold action {action['name']} fails on replay: {error}")
    return database, errors


def _replay_errors(domain: Domain, payload: dict[str, Any]) -> str:
    return "; ".join(replay(domain, payload["actions"])[1])


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
