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

from userrl_core.chats.message import ChatMessage, read_message
from userrl_core.chats.rows import messages_of
from userrl_core.chats.values import BrokenFile, mapping
from userrl_core.errors import TaskError
from userrl_core.gyms.released import read_rows
from userrl_core.gyms.tau.tasks import OPENINGS, TABLES, load_domain
from userrl_core.gyms.tau.variants import WRITES, of
from userrl_core.records import Task
from userrl_core.seeding import content_hash, validation_of

SOURCE = "synthesised:apigen-mt"
SPEAKERS = {"user": "Customer", "assistant": "Agent", "tool": "Tool"}


@dataclass(frozen=True, slots=True)
class Recorded:
    """A task and the text of its source conversation."""

    task: Task
    conversation: str


def recorded(path: Path, data: Path) -> Iterator[Recorded]:
    """Yield the tasks of a file of trajectories, each once, in its order. Conversations without a change are left out.

    data: tau-bench's folder, with the databases of retail and airline. Raises TaskError with file, line and problem.
    """
    seen_ids: set[str] = set()
    for where, row in read_rows(path):
        task_record = _recorded(row, where, data)
        if task_record is not None and task_record.task.id not in seen_ids:
            seen_ids.add(task_record.task.id)
            yield task_record


def _recorded(row: Any, where: str, data: Path) -> Recorded | None:
    try:
        messages = [
            part
            for item in messages_of(row, where)
            for part in read_message(mapping(item, where, "a message"), where)
            if part.role in SPEAKERS
        ]
    except BrokenFile as error:
        raise TaskError("chats.invalid", error.fact) from None
    calls = [_call(call, where) for message in messages if message.role == "assistant" for call in message.calls]
    domain = _domain_of({name for name, _ in calls})
    if domain is None or not any(name in WRITES[domain] for name, _ in calls):
        return None
    folder = str((data / domain).resolve())
    tools = load_domain(domain, folder).tools
    actions = [{"name": name, "kwargs": arguments} for name, arguments in calls if name in tools]
    payload = {
        "domain": domain,
        "database": folder,
        "opening": next((message.text for message in messages if message.role == "user"), OPENINGS[domain]),
        "instruction": "",
        "actions": actions,
        "outputs": [],
        "unprovable": "",
    }
    key = content_hash([SOURCE, domain, actions])
    task = of(Task("tau", key, validation_of(key), payload, SOURCE, domain), "inferred")
    return Recorded(task, "\n".join(line for message in messages for line in _lines(message)))


def _lines(message: ChatMessage) -> Iterator[str]:
    """Yield what a message says and calls, each with its speaker."""
    if message.text or not message.calls:
        yield f"{SPEAKERS[message.role]}: {message.text}"
    for name, arguments in message.calls:
        yield f'{SPEAKERS[message.role]} calls: {{"name": {json.dumps(name)}, "arguments": {arguments}}}'


def _call(call: tuple[str, str], where: str) -> tuple[str, dict[str, Any]]:
    name, arguments = call
    try:
        return name, dict(json.loads(arguments))
    except (ValueError, TypeError):
        raise TaskError("chats.invalid", f"{where}: the arguments of the call of {name} are no JSON object.") from None


def _domain_of(called: set[str]) -> str | None:
    """Return the domain whose writes were called; None if no domain or both match."""
    domains = [name for name in TABLES if called & WRITES[name]]
    return domains[0] if len(domains) == 1 else None
