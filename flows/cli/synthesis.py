"""``userrl tasks synthesise`` and ``userrl tasks filter``: new instructions for tasks, and tasks of medium difficulty."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.terminal import plain, refusals
from userrl_core.errors import ConfigError
from userrl_core.gyms.taskfile import read_tasks, write_tasks
from userrl_core.records import Task

if TYPE_CHECKING:
    from userrl_core.served.client import ChatServer

AT_ONCE = 16
"""Tasks written at once."""

Out = Annotated[Path, typer.Option("--out", help="The JSONL file that is written: gyms.NAME.published of a recipe.")]
Model = Annotated[str | None, typer.Option("--model", help="A served model.")]
BaseUrl = Annotated[str | None, typer.Option("--base-url", help="Its OpenAI-compatible server; OpenAI by default.")]


def synthesise(
    out: Out,
    source: Annotated[
        Path | None, typer.Option("--from", help="APIGen-MT trajectories (ShareGPT), or a JSONL file of tau's tasks.")
    ] = None,
    domain: Annotated[str, typer.Option(help="Without --from: our own domain, outfitter or bikes.")] = "outfitter",
    variant: Annotated[
        str, typer.Option(help="inferred, withheld, simplified, or mix: half as they are, half withheld.")
    ] = "mix",
    data: Annotated[Path | None, typer.Option(help="tau-bench's folder; $USERRL_PUBLISHED_DATA's by default.")] = None,
    model: Model = None,
    base_url: BaseUrl = None,
    limit: Annotated[int | None, typer.Option("--limit", help="At most this many tasks.", min=1)] = None,
) -> None:
    """Make tau's tasks anew (TARL appendix A): by templates, or written by --model. What gold calls do not solve is left out."""
    from userrl_core.gyms.tau.synthesis.solvable import why_not
    from userrl_core.gyms.tau.synthesis.variants import MIX, VARIANTS

    with refusals("tasks", OSError):
        if variant not in (*VARIANTS, MIX):
            raise ConfigError(f"There is no variant '{variant}'; there are {', '.join((*VARIANTS, MIX))}.")
        found = _sources(source, domain, data)[:limit]
        good = [(task, conversation) for task, conversation in found if not why_not(task)]
        lost = Counter(why_not(task) for task, _ in found)
        made = asyncio.run(_made(good, variant, _server(model, base_url), lost))
        lost.pop("", None)
        if not made:
            raise ConfigError(
                f"None of {len(found)} tasks can be solved by its gold calls: {next(iter(lost), 'there are none')}."
            )
        write_tasks(out, made)
    typer.echo(f"{len(made):,} of {len(found):,} tasks in {out}.")
    for why, count in lost.most_common(5):
        typer.echo(plain(f"  left out: {count:,} x {why}"))
    typer.echo(f"Next: a recipe plays them with gyms.tau.published: {out}")


def filter_by_difficulty(
    tasks: Annotated[Path, typer.Argument(help="A JSONL file of tasks, such as userrl tasks import writes.")],
    out: Out,
    model: Model = None,
    base_url: BaseUrl = None,
    attempts: Annotated[int, typer.Option(help="Conversations per task.", min=1)] = 4,
    least: Annotated[float, typer.Option(help="Lowest pass rate kept.", min=0.0, max=1.0)] = 0.25,
    most: Annotated[float, typer.Option(help="Highest pass rate kept.", min=0.0, max=1.0)] = 0.75,
    horizon: Annotated[int, typer.Option(help="Most agent turns.", min=1)] = 16,
    temperature: Annotated[float, typer.Option(help="Of sampling.", min=0.0)] = 0.7,
) -> None:
    """Keep the tasks that a model passes sometimes (TARL 3.1: medium difficulty), by its pass rate."""
    from userrl_core.policies.openai import OpenAIPolicy
    from userrl_core.rollout import run_episodes

    with refusals("tasks", OSError):
        if model is None:
            raise ConfigError("A pass rate is somebody's; name the model with --model.")
        all_tasks = read_tasks(tasks)
        server = _server(model, base_url, temperature=temperature)
        played = asyncio.run(run_episodes(all_tasks, OpenAIPolicy(server), horizon=horizon, n=attempts))
        rates: dict[str, list[bool]] = {}
        for trajectory in played:
            if trajectory.admitted:
                rates.setdefault(trajectory.task.key, []).append(trajectory.stop_reason == "success")
        kept = [t for t in all_tasks if t.key in rates and least <= sum(rates[t.key]) / len(rates[t.key]) <= most]
        if not rates:
            why = next((t.reject_reason for t in played if t.reject_reason), "no reason was given")
            raise ConfigError(f"None of the {len(played):,} conversations could be scored ({why}).")
        write_tasks(out, kept)
    typer.echo(f"{len(kept):,} of {len(all_tasks):,} tasks in {out}: {model} passes {least:g} to {most:g} of them.")
    if unscored := len(all_tasks) - len(rates):
        typer.echo(f"  left out: {unscored:,} without a score")


def _sources(path: Path | None, domain: str, data: Path | None) -> list[tuple[Task, str]]:
    """Training tasks, each with the conversation it was taken from, or that its gold calls make."""
    from userrl.machine.home import published_data
    from userrl_core.gyms import tasks as own_tasks
    from userrl_core.gyms.tau.synthesis.apigen import recorded

    if path is not None and path.suffix != ".jsonl":
        return [(each.task, each.conversation) for each in recorded(path, data or published_data() / "tau-bench")]
    found = list(own_tasks("tau", "train", domain=domain)) if path is None else read_tasks(path)
    if wrong := [task.key for task in found if task.gym != "tau"]:
        raise ConfigError(f"Only tau's tasks have gold calls; {wrong[0]} is none of them.")
    return [(task, _gold_conversation(task)) for task in found if task.split == "train"]


def _gold_conversation(task: Task) -> str:
    """What a conversation about the task would be that goes as gold says."""
    from userrl_core.gyms.tau.gym import conversation

    return "\n".join(f"Agent {call.choice}: {call.content}" for call in conversation(task))


def _server(model: str | None, base_url: str | None, **more: Any) -> ChatServer | None:
    from userrl.run.readiness import refuse_missing_key
    from userrl_core.served.client import ChatServer

    if model is None:
        return None
    server = ChatServer(model=model, base_url=base_url, **more)
    refuse_missing_key(server)
    return server


async def _made(
    sources: Sequence[tuple[Task, str]], variant: str, server: ChatServer | None, lost: Counter[str]
) -> list[Task]:
    """The new tasks; counts in `lost` why others are missing."""
    from userrl_core.gyms.tau.synthesis.variants import MIX, one_of, varied
    from userrl_core.gyms.tau.synthesis.written import Writer
    from userrl_core.served.client import close_clients

    if server is None:
        return varied([task for task, _ in sources], variant)
    writer, room = Writer(server), asyncio.Semaphore(AT_ONCE)

    async def one(task: Task, conversation: str) -> Task | None:
        async with room:
            if task.source.startswith("synthesised"):  # its instruction is a template's until a model has read it
                read, why = await writer.write(task, conversation, "inferred")
                task = read or task
            new, why = (task, "") if variant == "inferred" else await writer.write(task, conversation, _kind(variant))
        if new is None:
            lost[why] += 1
            return task if variant == MIX else None
        return one_of(task, new) if variant == MIX else new

    try:
        written = await asyncio.gather(*(one(*source) for source in sources))
    finally:
        await close_clients()
    typer.echo(f"{len(writer.ledger):,} calls of {server.model}.")
    return [task for task in written if task is not None]


def _kind(variant: str) -> Any:
    from userrl_core.gyms.tau.synthesis.variants import MIX

    return "withheld" if variant == MIX else variant
