"""``userrl show``: one conversation, turn by turn."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.arguments import Json
from flows.cli.terminal import plain, plain_json, refusals
from userrl_core.errors import ConfigError
from userrl_core.number_format import number

if TYPE_CHECKING:
    from warehouse.query.browse import StoredConversation

LONGEST = 2_000
"""Characters printed of one text without --full."""


def show(
    trajectory: Annotated[int, typer.Argument(metavar="TRAJ", help="The conversation's traj_id.")],
    full: Annotated[
        bool, typer.Option("--full", help="Print long texts in full, and also the opening and the task.")
    ] = False,
    as_json: Json = False,
    root: Annotated[Path | None, typer.Option("--warehouse", help="The warehouse folder.")] = None,
) -> None:
    """Print one conversation with the reward, shaped credit, advantage and cost of each turn.

    `userrl sql "from trajectories"` lists the ids.

    Example: userrl show 1099612295849 --full
    """
    from warehouse import open_warehouse
    from warehouse.query.browse import conversation

    with refusals(), open_warehouse(root) as warehouse:
        shown = conversation(warehouse, trajectory)
        if shown is None:
            raise ConfigError(
                "run.no_such_trajectory",
                f"There is no trajectory {trajectory}. "
                'See userrl sql "select traj_id, gym, score from trajectories order by logged_at desc limit 20".',
            )
    if as_json:
        print(plain_json({"trajectory": shown.trajectory, "turns": shown.turns, "task": shown.task}, indent=1))
        return
    for line in lines(shown, full=full):
        print(line)


def lines(shown: StoredConversation, *, full: bool = False) -> Iterator[str]:
    """Yield the printed lines. Escape sequences in model text are disarmed."""
    row = shown.trajectory
    yield (
        f"trajectory {row['traj_id']}: {plain(row['gym'])} {plain(row['task_id'])}, run {row['run_id']}, {_place(row)}"
        f"attempt {row['attempt'] + 1}"
    )
    yield f"{plain(row['policy'] or 'the agent')} with {_user(row)}: {_outcome(row)}"
    for message in json.loads(row["messages"] or "[]"):
        if full or message["role"] != "system":
            yield from _said(message["role"], message["content"], full)
    for turn in shown.turns:
        yield ""
        if turn["thought"]:
            yield from _said("reasoning", turn["thought"], full)
        if turn["choice"] is None:
            yield from _said("message (no readable call)", turn["message"], full)
        else:
            yield from _said(plain(turn["choice"]), turn["content"], full)
        yield from _said("reply", turn["observation"], full)
        yield _facts(turn, imported=(row["source"] or "").startswith("imported:"))
    if full and shown.task is not None:
        yield ""
        yield from _said("task", plain_json(shown.task, indent=1), full)


def _place(row: dict[str, Any]) -> str:
    """Return stage, step and phase; "" for an imported conversation, which has no stage."""
    return "" if row["stage"] is None else f"{row['stage']} step {row['step']} ({row['phase']}), "


def _user(row: dict[str, Any]) -> str:
    imported = row.get("source", "") or ""
    unknown = "a user the file does not name" if imported.startswith("imported:") else "no user"
    return plain(row["user_name"] or unknown)


def _facts(turn: dict[str, Any], *, imported: bool) -> str:
    """Return reward, credit and cost of a turn; of an imported turn only what its file gives."""
    place = f"-- turn {turn['turn']}"
    signed = [
        f"{name} {number(turn[name], sign=True)}"
        for name in ("reward", "shaped", "advantage")
        if turn[name] is not None or not imported
    ]
    tokens, seconds = turn["completion_tokens"], (turn["policy_seconds"], turn["env_seconds"])
    if imported:
        known = [f"{tokens} tokens"] if tokens is not None else []
        known += [f"{value:.2f} s" for value in seconds if value is not None]
        return f"{place}: {', '.join(signed + known)}" if signed or known else place
    policy, env = ("–" if value is None else f"{value:.2f}" for value in seconds)
    return f"{place}: {', '.join(signed)}; {'–' if tokens is None else tokens} tokens, {policy} s and {env} s"


def _outcome(row: dict[str, Any]) -> str:
    if row["stop_reason"] is None:
        return "in progress"
    if not row["admitted"]:
        return f"not scored ({plain(str(row['reject_reason']))})"
    allowed = "" if row["horizon"] is None else f" of {row['horizon']}"
    return f"{row['stop_reason']} after {row['turns']}{allowed} turns, score {number(row['score'])}"


def _said(speaker: str, text: str | None, full: bool) -> Iterator[str]:
    text = plain(text or "")
    left = len(text) - LONGEST
    if left > 0 and not full:
        text = f"{text[:LONGEST]} ... ({left:,} more characters; --full prints them)"
    yield textwrap.indent(text, "  ", lambda _: True).replace("  ", f"{speaker}: ", 1) if text else f"{speaker}:"
