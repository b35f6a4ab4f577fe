"""Synthesis of new instructions for tau's tasks (TARL appendix A): sources, authors and rejected tasks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from userrl_core.errors import ConfigError
from userrl_core.gyms.taskfile import read_tasks
from userrl_core.gyms.tau.gym import conversation
from userrl_core.gyms.tau.tasks import tasks as own_tasks
from userrl_core.gyms.tau.variants import MIX, VARIANTS, one_of, varied
from userrl_core.records import Task
from userrl_core.served.client import ChatServer, close_clients
from userrl_synthesis.apigen import recorded
from userrl_synthesis.solvable import why_not
from userrl_synthesis.written import Writer

AT_ONCE = 16
"""Tasks written concurrently."""


@dataclass(frozen=True, slots=True)
class Synthesised:
    """Tasks with new instructions.

    found: number of source tasks. lost: reasons for missing tasks. calls: number of model calls.
    """

    tasks: tuple[Task, ...]
    found: int
    lost: Counter[str]
    calls: int = 0


def synthesise(
    source: Path | None, domain: str, variant: str, data: Path, server: ChatServer | None, limit: int | None
) -> Synthesised:
    """Give tau's training tasks new instructions, by templates or by a model. Tasks that their gold calls do not
    solve are left out.

    source: APIGen-MT trajectories, or a JSONL file of tasks; None means the tasks of our own domain. data:
    tau-bench's folder. Raises ConfigError for an unknown variant, and if no task can be solved.
    """
    if variant not in (*VARIANTS, MIX):
        raise ConfigError(
            "task.bad_option", f"There is no variant '{variant}'. Use one of {', '.join((*VARIANTS, MIX))}."
        )
    sources = _sources(source, domain, data)[:limit]
    good = [(task, conversation) for task, conversation in sources if not why_not(task)]
    lost = Counter(why_not(task) for task, _ in sources)
    tasks, calls = asyncio.run(_made(good, variant, server, lost))
    lost.pop("", None)
    if not tasks:
        raise ConfigError(
            "task.not_playable",
            f"None of the {len(sources)} tasks can be solved by its gold calls: "
            f"{next(iter(lost), 'there are no tasks')}.",
        )
    return Synthesised(tuple(tasks), len(sources), lost, calls)


def _sources(path: Path | None, domain: str, data: Path) -> list[tuple[Task, str]]:
    if path is not None and path.suffix != ".jsonl":
        return [(record.task, record.conversation) for record in recorded(path, data)]
    tasks = list(own_tasks("train", domain=domain)) if path is None else read_tasks(path)
    if wrong := [task.key for task in tasks if task.gym != "tau"]:
        raise ConfigError(
            "task.wrong_gym",
            f"Only tasks of tau have gold calls, and {wrong[0]} is from another gym. Give tasks of tau alone.",
        )
    return [(task, _gold_conversation(task)) for task in tasks if task.split == "train"]


def _gold_conversation(task: Task) -> str:
    return "\n".join(f"Agent {call.choice}: {call.content}" for call in conversation(task))


async def _made(
    sources: Sequence[tuple[Task, str]], variant: str, server: ChatServer | None, lost: Counter[str]
) -> tuple[list[Task], int]:
    """Return the new tasks and the number of model calls. `lost` counts the reasons for missing tasks."""
    if server is None:
        return varied([task for task, _ in sources], variant), 0
    writer, room = Writer(server), asyncio.Semaphore(AT_ONCE)
    kind: Any = "withheld" if variant == MIX else variant

    async def one(task: Task, conversation: str) -> Task | None:
        async with room:
            if task.source.startswith("synthesised"):  # its instruction is a template's until a model has read it
                inferred_task, why = await writer.write(task, conversation, "inferred")
                task = inferred_task or task
            new, why = (task, "") if variant == "inferred" else await writer.write(task, conversation, kind)
        if new is None:
            lost[why] += 1
            return task if variant == MIX else None
        return one_of(task, new) if variant == MIX else new

    try:
        new_tasks = await asyncio.gather(*(one(*source) for source in sources))
    finally:
        await close_clients()
    return [task for task in new_tasks if task is not None], len(writer.ledger)
