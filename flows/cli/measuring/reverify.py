"""``userrl reverify``: new scores for stored conversations under another judge or changed rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from flows.cli.arguments import Json, RunName, parse_user
from flows.cli.terminal import plain_json
from flows.cli.training.recipe import parse_changes
from userrl_core.errors import ConfigError


def reverify(
    run: RunName,
    judge: Annotated[str | None, typer.Option(help="The judge: rule, openai, or JSON with kind and options.")] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="A changed rule: GYM.FIELD=VALUE; may be repeated.")
    ] = None,
    gym: Annotated[list[str] | None, typer.Option(help="Only this gym; may be repeated.")] = None,
    phase: Annotated[
        str, typer.Option(help="Phase of the conversations: evaluate, validate, train or distill.")
    ] = "evaluate",
    as_json: Json = False,
) -> None:
    """Score stored conversations again under another judge or changed rules. No conversation is repeated.

    Example: userrl reverify latest --judge rule
    """
    import userrl

    judged_by = None if judge is None else parse_user(judge)
    done = userrl.reverify(run, judge=judged_by, changes=_changes(change or ()), gyms=gym or (), phase=phase)
    print(plain_json(done.as_json(), indent=1) if as_json else done)
    if not done.scored:
        raise typer.Exit(1)


def _changes(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Parse changes such as ``tau.check_outputs=true`` into a mapping by gym. Raises ConfigError for anything else."""
    changes: dict[str, dict[str, Any]] = {}
    for key, value in parse_changes(texts).items():
        name, dot, field = key.partition(".")
        if not dot or not field:
            raise ConfigError("argument.malformed", f"Write a changed rule as tau.check_outputs=true, not '{key}'.")
        changes.setdefault(name.strip(), {})[field.strip()] = value
    return changes
