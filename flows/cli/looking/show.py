"""``userrl show``: one conversation, turn by turn."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.arguments import Json
from flows.cli.terminal import plain, plain_json
from userrl_core.errors import ConfigError
from userrl_core.number_format import number

if TYPE_CHECKING:
    from warehouse.query.browse import StoredConversation
    from warehouse.query.failure import QueryFailure

LONGEST = 2_000
"""Characters printed of one text without --full."""


def show(
    trajectory: Annotated[str, typer.Argument(metavar="TRAJ", help="The conversation's traj_id.")],
    full: Annotated[
        bool,
        typer.Option("--full", help="Without --json: print long texts in full, and also the opening and the task."),
    ] = False,
    as_json: Json = False,
    root: Annotated[Path | None, typer.Option("--warehouse", help="The warehouse folder.")] = None,
) -> None:
    """Print one conversation with the reward, shaped credit, advantage and cost of each turn.

    A failed conversation begins with where to look: the turn at which the best one on its task differs, and its last
    rewarded turn. `userrl sql "from trajectories"` lists the ids.

    Example: userrl show 1099612295849 --full
    """
    from warehouse import open_warehouse
    from warehouse.query.browse import conversation, rivals
    from warehouse.query.failure import failure

    with open_warehouse(root) as warehouse:
        traj_id = _identifier(trajectory)
        stored = conversation(warehouse, traj_id)
        if stored is None:
            raise ConfigError(
                "run.no_such_trajectory",
                f"There is no trajectory {trajectory}. "
                'See userrl sql "select traj_id, gym, score from trajectories order by logged_at desc limit 20".',
            )
        failed = failure(stored.trajectory, stored.turns, [] if as_json else rivals(warehouse, traj_id))
    if as_json:
        print(plain_json({"trajectory": stored.trajectory, "turns": stored.turns, "task": stored.task}, indent=1))
        return
    for line in lines(stored, failed, full=full):
        print(line)


def _identifier(text: str) -> int:
    """Return the traj_id. Raises ConfigError for anything else, such as a task's id."""
    # A traj_id is a signed 64-bit number. The length is checked first, because int() refuses very long texts.
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) < 2**63:
        return int(text)
    raise ConfigError(
        "argument.malformed",
        f"'{plain(text[:60])}' is not a traj_id, which is a whole number. For the conversations of a task: "
        "userrl sql \"select traj_id, policy, score from trajectories where task_id = 'TASK'\".",
    )


def lines(stored: StoredConversation, failed: QueryFailure | None = None, *, full: bool = False) -> Iterator[str]:
    """Yield the printed lines, and for a failed conversation where it failed. Escape sequences in model text are disarmed."""
    row = stored.trajectory
    yield (
        f"trajectory {row['traj_id']}: {plain(row['gym'])} {plain(row['task_id'])}{_tier(row)}, run {row['run_id']}, {_place(row)}"
        f"attempt {row['attempt'] + 1}"
    )
    yield f"{plain(row['policy'] or 'the agent')} with {_user(row)}: {_outcome(row, stored.turns)}"
    if failed is not None:
        yield from _where(stored, failed)
    if not (row["source"] or "").startswith("imported:"):
        yield from _rules(row["gym"])
    yield ""
    for message in json.loads(row["messages"] or "[]"):
        if full or message["role"] != "system":
            yield from _said(message["role"], message["content"], full)
    for turn_number, turn in enumerate(stored.turns, 1):
        yield ""
        if failed is not None and turn_number == failed.turn and failed.mark:
            yield f"** {failed.mark} **"
        if turn["thought"]:
            yield from _said("reasoning", turn["thought"], full)
        if turn["choice"] is None:
            yield from _said("message (no readable call)", turn["message"], full)
        else:
            yield from _said(plain(turn["choice"]), turn["content"], full)
        yield from _said("reply", turn["observation"], full)
        yield _facts(turn, imported=(row["source"] or "").startswith("imported:"))
    if full and stored.task is not None:
        yield ""
        yield from _said("task", plain_json(stored.task, indent=1), full)
    if failed is not None:
        yield ""
        yield from _next(stored, failed)


def _where(stored: StoredConversation, failed: QueryFailure) -> Iterator[str]:
    """Yield where the conversation left the best one on its task, with both calls."""
    if failed.best is None:
        yield f"Where to look: {failed.rewards or 'see its last turn.'}"
        return
    best = failed.best.trajectory
    policy = plain(best["policy"] or "the agent")
    yield f"Where to look: the best conversation on this task, by {policy}, score {number(best['score'])}, {failed.divergence}"
    if failed.shared < len(stored.turns):
        yield f"  here:              {_in_short(stored.turns[failed.shared])}"
    if failed.shared < len(failed.best.turns):
        yield f"  best conversation: {_in_short(failed.best.turns[failed.shared])}"
    if failed.rewards:
        yield f"  {failed.rewards}"


def _in_short(turn: dict[str, Any]) -> str:
    call = f"{turn['choice'] or 'message'}: {turn['content'] or turn['message'] or ''}"
    return f"{textwrap.shorten(plain(call), 120)} -> {textwrap.shorten(plain(turn['observation'] or ''), 120)}"


def _rules(gym: str) -> Iterator[str]:
    """Yield what the agent is asked to do and what its calls mean. Nothing for a gym that is not installed, or of a file."""
    from userrl_core.gyms.registry import gym_class, names, unavailable

    if gym not in names() or unavailable(gym):
        return
    rules = gym_class(gym)
    yield from _wrapped("goal", rules.goal)
    for choice in rules.choices():
        if choice in rules.choice_help:
            yield from _wrapped(choice, rules.choice_help[choice])
    if rules.success_rule:
        yield from _wrapped("success", rules.success_rule)


def _wrapped(name: str, text: str) -> list[str]:
    return textwrap.wrap(f"{name}: {' '.join(text.split())}", 120, initial_indent="  ", subsequent_indent="    ")


def _next(stored: StoredConversation, failed: QueryFailure) -> Iterator[str]:
    """Yield the commands that look further."""
    from analysis.credit.replay import why_not
    from userrl_core.gyms.registry import names

    row = stored.trajectory
    yield "Next:"
    if failed.best is not None:
        yield f"  userrl show {failed.best.trajectory['traj_id']}   # the best conversation"
    if stored.task is not None and row["gym"] in names() and not why_not(row["gym"], row["user_name"]):
        yield (
            f"  userrl branch {row['traj_id']} --turn {failed.turn}"
            f"   # play it again from turn {failed.turn}, by the run's checkpoint"
        )
    yield f"  userrl audit user {row['run_id']}   # was it the agent or the user, in each failed conversation"


def _tier(row: dict[str, Any]) -> str:
    return f" (tier {plain(row['tier'])})" if row.get("tier") else ""


def _place(row: dict[str, Any]) -> str:
    """Return stage, step and phase; "" for an imported conversation, which has no stage."""
    return "" if row["stage"] is None else f"{row['stage']} step {row['step']} ({row['phase']}), "


def _user(row: dict[str, Any]) -> str:
    imported = row.get("source", "") or ""
    unknown = "a user the file does not name" if imported.startswith("imported:") else "no user"
    return plain(row["user_name"] or unknown)


def _facts(turn: dict[str, Any], *, imported: bool) -> str:
    """Return reward, credit and cost of a turn; of an imported turn only what its file gives."""
    heading = f"-- turn {turn['turn']}"
    signed = [
        f"{name} {number(turn[name], sign=True)}"
        for name in ("reward", "shaped", "advantage")
        if turn[name] is not None
    ]
    tokens, seconds = turn["completion_tokens"], (turn["policy_seconds"], turn["env_seconds"])
    if imported:
        facts = [f"{tokens} tokens"] if tokens is not None else []
        facts += [f"{value:.2f} s" for value in seconds if value is not None]
        return f"{heading}: {', '.join(signed + facts)}" if signed or facts else heading
    policy, env = ("–" if value is None else f"{value:.2f} s" for value in seconds)
    cost = f"{'–' if tokens is None else tokens} tokens, agent {policy}, user {env}"
    return f"{heading}: {', '.join(signed)}; {cost}"


def _earned(row: dict[str, Any], turns: Sequence[dict[str, Any]]) -> str:
    """Return the sum of the turns' rewards where it is not the score."""
    rewards = [turn["reward"] for turn in turns if turn["reward"] is not None]
    same = row["score"] is None or abs(sum(rewards) - row["score"]) < 1e-9
    return "" if same else f" (its turns earned {number(sum(rewards), sign=True)})"


def _outcome(row: dict[str, Any], turns: Sequence[dict[str, Any]]) -> str:
    if row["stop_reason"] is None:
        return "in progress"
    if not row["admitted"]:
        return f"not scored ({plain(str(row['reject_reason']))})"
    allowed = "" if row["horizon"] is None else f" of {row['horizon']}"
    return (
        f"{row['stop_reason']} after {row['turns']}{allowed} turns, score {number(row['score'])}{_earned(row, turns)}"
    )


def _said(speaker: str, text: str | None, full: bool) -> Iterator[str]:
    text = plain(text or "")
    left = len(text) - LONGEST
    if left > 0 and not full:
        text = f"{text[:LONGEST]} ... ({left:,} more characters; --full prints them)"
    yield textwrap.indent(text, "  ", lambda _: True).replace("  ", f"{speaker}: ", 1) if text else f"{speaker}:"
