"""TauGym's tasks: our own of two shops (bikes and outfitter), and the published ones of tau-bench (retail and airline).

A payload holds the domain, the folder of its data, the user's instruction, the gold actions and the required outputs.
``unprovable`` holds the error if replaying the gold actions fails. ``tables`` holds the task's own records, which replace the
domain's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from userrl_core.errors import ConfigError, TaskError
from userrl_core.gyms.released import check_names, read_json, text_field
from userrl_core.gyms.tau import airline, bikes, bikes_tasks, retail
from userrl_core.gyms.tau.database import policy_file
from userrl_core.gyms.tau.outfitter import requests, shop, tiny
from userrl_core.gyms.tau.tools import Domain
from userrl_core.gyms.tau.variants import varied
from userrl_core.gyms.tau.verifier import replay
from userrl_core.records import Task
from userrl_core.seeding import Split, content_hash, split_of, validation_of

Payloads = Callable[[int, int], list[dict[str, Any]]]
OWN: Mapping[str, tuple[Payloads, int, int, float]] = {
    "bikes": (bikes_tasks.payloads, 200, 7, 0.1),
    "outfitter": (requests.payloads, 1200, 11, 0.05),
}
"""Our domains: generator, number of our tasks, seed, and share of validation among non-test tasks."""

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


def tasks(
    split: str,
    *,
    domain: str | None = None,
    tier: str | None = None,
    sizes: Iterable[int] = (1, 2),
    variant: str | None = None,
) -> Sequence[Task]:
    """Return our tasks of a split; the bikes' without a domain.

    tier: ``tiny`` for the outfitter's laptop tier, with tasks of the given sizes; or a domain's name, for commands
    that know only tiers. variant: of training's instructions (`variants`): inferred, withheld, simplified,
    or mix. Validation and test tasks stay as they are. Raises ConfigError for a domain without tasks of ours, and for
    a tier that it does not have.
    """
    domain_name = _meant(domain, tier)
    split_tasks = (
        tiny.tasks(split, sizes)
        if domain_name == tiny.DOMAIN
        else [task for task in _all(domain_name) if task.split == split]
    )
    return varied(split_tasks, variant) if variant is not None and split == "train" else split_tasks


def generate(n: int, seed: int, *, domain: str | None = None, tier: str | None = None) -> list[Task]:
    """Return n tasks of a domain of ours. Raises ConfigError if its data gives fewer."""
    domain_name = _meant(domain, tier)
    if domain_name == tiny.DOMAIN:
        return tiny.generate(n, seed)
    payloads, _, _, validation = OWN[domain_name]
    generated = [_own(payload, validation) for payload in payloads(n, seed)]
    if len(generated) < n:
        raise ConfigError(
            "task.too_few",
            f"The {domain_name} domain has only {len(generated)} different tasks with this seed. Ask for fewer than {n}.",
        )
    return generated


def _meant(domain: str | None, tier: str | None) -> str:
    """Return the requested domain, given by its own name or as a tier."""
    if domain is not None and domain not in OWN:
        raise ConfigError(
            "task.bad_option",
            f"TauGym has no tasks of its own for '{domain}'. Import the published ones, or use one of "
            f"{', '.join(OWN)}.",
        )
    if tier is None:
        return domain or "bikes"
    if tier == "tiny" and domain in (None, "outfitter"):
        return tiny.DOMAIN
    if tier not in OWN or domain not in (None, tier):
        raise ConfigError(
            "task.bad_option", f"The {domain or 'tau'} domain has no tier '{tier}'. Only outfitter has a tier, 'tiny'."
        )
    return tier


def load_published(root: Path) -> list[Task]:
    """Return the published tasks from a copy of tau-bench (``root/retail``, ``root/airline``) or of UserRL (``root/gyms``).

    tau-bench: train, dev (as validation) and test as published. UserRL: its train and test rows with their openings. UserRL
    has no database, so they need tau-bench's next to it (``root/../tau-bench``) or the gym's option ``database``. Gold
    actions are replayed, and a failing write marks its task as not provable. Raises TaskError.
    """
    if (root / RELEASED_ROWS).is_dir():
        return _released(root)
    published = []
    for name, part, split in FILES:
        path, database = root / name / f"tasks_{part}.json", str((root / name).resolve())
        domain = load_domain(name, database)
        for index, row in enumerate(read_json(path, list)):
            payload = _read(row, path, index)
            payload.update(domain=name, database=database, opening=OPENINGS[name])
            payload["unprovable"] = _replay_errors(domain, payload)
            prefix = name if part == "test" else f"{name}-{part}"
            published.append(Task("tau", f"{prefix}-{index:03d}", split, payload, "published:tau-bench", name))
    return _replayable(published)


def domain_tasks(name: str, root: Path) -> tuple[list[Task], str | None]:
    """Return every task of a domain, ours or published, and the folder of its data (None for ours).

    root: tau-bench's folder. Raises ConfigError for an unknown domain, and TaskError if a published one is missing.
    """
    if name in OWN:
        return list(_all(name)), None
    if name == tiny.DOMAIN:
        return [task for split in ("train", "validation", "test") for task in tiny.tasks(split, (1, 2, 3))], None
    if name not in TABLES:
        raise ConfigError(
            "task.bad_option", f"There is no domain '{name}'. Use one of {', '.join((*OWN, tiny.DOMAIN, *TABLES))}."
        )
    if not (root / name).is_dir():
        raise TaskError(
            "task.file_missing",
            f"{root} has no folder {name}. Import the published data with userrl tasks import --from tau-bench.",
        )
    return [task for task in load_published(root) if task.tier == name], str((root / name).resolve())


def _released(root: Path) -> list[Task]:
    published = []
    for part in ("train", "test"):
        path = root / RELEASED_ROWS / f"tau_{part}.json"
        for index, row in enumerate(read_json(path, list)):
            key, opening = text_field(row, "id", path, index), text_field(row, "obs", path, index)
            name = key.split("-", 1)[0]
            if name not in TABLES:
                raise TaskError(
                    "task.invalid_field", f"{path}, entry {index}: field 'id' ({key}) does not name a known domain."
                )
            info = row.get("info")
            payload = _read(info.get("task") if isinstance(info, dict) else None, path, index)
            folder = (root.parent / "tau-bench" / name).resolve()
            payload.update(
                domain=name, database=str(folder) if folder.is_dir() else None, opening=opening, unprovable=""
            )
            if folder.is_dir():
                payload["unprovable"] = _replay_errors(load_domain(name, str(folder)), payload)
            split: Split = "test" if part == "test" else validation_of(content_hash(["tau", key]))
            published.append(Task("tau", key, split, payload, "published:userrl", name))
    return _replayable(published)


def _replayable(published: list[Task]) -> list[Task]:
    """Return the tasks. Raises TaskError for a domain whose tables lack what most tasks need. 23 of retail's fail as released."""
    for name in TABLES:
        failed = [task for task in published if task.tier == name and task.payload["unprovable"]]
        count = sum(task.tier == name for task in published)
        if len(failed) * 2 > count:
            raise TaskError(
                "task.file_unreadable",
                f"{len(failed)} of {count} tasks of {name} do not replay on the tables in {failed[0].payload['database']} "
                f"({failed[0].id}: {failed[0].payload['unprovable']}). Import tau-bench again.",
            )
    return published


@lru_cache(maxsize=8)
def load_domain(name: str, database: str | None) -> Domain:
    """Load a domain with its tools, policy and data, once. Raises TaskError if its files are missing.

    The policy is the released ``wiki.md`` next to the domain's tools, or our own text if that is missing.
    """
    policy = (Path(__file__).parent / "policies" / f"{name}.txt").read_text(encoding="utf-8")
    if name == "bikes":
        return Domain(name, bikes.TOOLS, bikes.WRITES, bikes.SCHEMAS, policy, bikes_tasks.tables())
    if name == "outfitter":
        return Domain(name, retail.TOOLS, retail.WRITES, shop.SCHEMAS, policy, shop.tables())
    if name == tiny.DOMAIN:
        return tiny.domain(policy)
    if database is None or not Path(database).is_dir():
        raise TaskError(
            "task.file_missing",
            f"The database of the {name} domain is not at {database}. Import the tasks again from its new folder.",
        )
    module = retail if name == "retail" else airline
    folder = Path(database)
    base = {table: read_json(folder / f"{table}.json", dict) for table in TABLES[name]}
    schemas = tuple(read_json(folder / "tools.json", list))
    described = [str(tool.get("function", {}).get("name")) for tool in schemas if isinstance(tool, dict)]
    check_names(module.TOOLS, described, f"the {name} domain", str(folder / "tools.json"))
    if (released := policy_file(folder)).is_file():
        policy = released.read_text(encoding="utf-8")
    return Domain(name, module.TOOLS, module.WRITES, schemas, policy, base, checked=False)


def _replay_errors(domain: Domain, payload: dict[str, Any]) -> str:
    return "; ".join(replay(domain, payload["actions"]).errors)


def _read(row: Any, path: Path, index: int) -> dict[str, Any]:
    instruction = text_field(row, "instruction", path, index)
    actions, outputs = row.get("actions"), row.get("outputs")
    if not isinstance(actions, list) or not all(_is_action(action) for action in actions):
        raise TaskError(
            "task.invalid_field", f"{path}, entry {index}: field 'actions' must be a list of {{name, kwargs}}."
        )
    if not isinstance(outputs, list) or not all(isinstance(output, str) for output in outputs):
        raise TaskError("task.invalid_field", f"{path}, entry {index}: field 'outputs' must be a list of texts.")
    return {"instruction": instruction, "actions": actions, "outputs": outputs}


def _is_action(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str) and isinstance(value.get("kwargs"), dict)


@lru_cache(maxsize=len(OWN))
def _all(domain: str) -> list[Task]:
    _, size, seed, _ = OWN[domain]
    return generate(size, seed, domain=domain)


def _own(payload: dict[str, Any], validation: float) -> Task:
    name = content_hash(["tau", payload["instruction"]])
    return Task("tau", name, split_of(name, validation=validation), payload, tier=payload["domain"])
