"""Tasks from the trajectories of APIGen-MT (Prabhakar et al. 2025; TARL 2.3): ShareGPT rows with function calls and
observations.

The agent's calls are the gold calls. Those that change something must succeed on the domain's own data. The
instruction is the template `inferred` until a model writes a better one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from userrl_core.errors import TaskError
from userrl_core.gyms.released import read_rows
from userrl_core.gyms.tau.synthesis.variants import WRITES, of
from userrl_core.gyms.tau.tasks import OPENINGS, TABLES, load_domain
from userrl_core.records import Task
from userrl_core.seeding import content_hash, validation_of

SOURCE = "synthesised:apigen-mt"
SPEAKERS = {"human": "Customer", "gpt": "Agent", "function_call": "Agent calls", "observation": "Tool"}


@dataclass(frozen=True, slots=True)
class Recorded:
    """A task and the text of its source conversation."""

    task: Task
    conversation: str


def recorded(path: Path, data: Path) -> Iterator[Recorded]:
    """Yield the tasks of a file of trajectories, each once, in its order. Conversations without a change are left out.

    data: tau-bench's folder, with the databases of retail and airline. Raises TaskError with file, entry and problem.
    """
    seen_ids: set[str] = set()
    for number, row in enumerate(read_rows(path), 1):
        task_record = _recorded(row, f"{path}, entry {number}", data)
        if task_record is not None and task_record.task.id not in seen_ids:
            seen_ids.add(task_record.task.id)
            yield task_record


def _recorded(row: Any, where: str, data: Path) -> Recorded | None:
    turns = row.get("conversations") if isinstance(row, dict) else None
    if not isinstance(turns, list) or not all(isinstance(t, dict) and isinstance(t.get("value"), str) for t in turns):
        raise TaskError(
            "chats.invalid", f"{where}: field 'conversations' must be a list of turns with 'from' and 'value'."
        )
    calls = [_call(turn["value"], where) for turn in turns if turn.get("from") == "function_call"]
    domain = _domain_of({name for name, _ in calls})
    if domain is None or not any(name in WRITES[domain] for name, _ in calls):
        return None
    folder = str((data / domain).resolve())
    tools = load_domain(domain, folder).tools
    actions = [{"name": name, "kwargs": arguments} for name, arguments in calls if name in tools]
    payload = {
        "domain": domain,
        "database": folder,
        "opening": next((t["value"] for t in turns if t.get("from") == "human"), OPENINGS[domain]),
        "instruction": "",
        "actions": actions,
        "outputs": [],
        "unprovable": "",
    }
    key = content_hash([SOURCE, domain, actions])
    task = of(Task("tau", key, validation_of(key), payload, SOURCE, domain), "inferred")
    transcript = [f"{SPEAKERS[t['from']]}: {t['value']}" for t in turns if t.get("from") in SPEAKERS]
    return Recorded(task, "\n".join(transcript))


def _call(text: str, where: str) -> tuple[str, dict[str, Any]]:
    try:
        value = json.loads(text)
        arguments = value["arguments"]
        return str(value["name"]), dict(json.loads(arguments) if isinstance(arguments, str) else arguments)
    except (ValueError, KeyError, TypeError):
        raise TaskError(
            "chats.invalid", f"{where}: a function_call must be JSON with 'name' and 'arguments'."
        ) from None


def _domain_of(called: set[str]) -> str | None:
    """Return the domain whose writes were called; None if no domain or both match."""
    domains = [name for name in TABLES if called & WRITES[name]]
    return domains[0] if len(domains) == 1 else None
