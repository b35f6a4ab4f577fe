"""Refusals of options that a command would not read as written: nan, an option given twice, one without effect beside another.

An option's help may begin with its condition: "With --format: the run." The option is then refused where the condition is not met.
Commas separate several conditions: "With --as user, without --run: ...".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import typer

CONDITION = re.compile(r"(with|without) (--[a-z-]+)(?: ([a-z]+))?(?:: |, (?=with))", re.IGNORECASE)
"""A condition at the start of an option's help: its relation, the other option, and that option's value if only one will do."""
READ_BY_LIST = {"evaluate": ("name", "suite"), "cross-play": ("file", "seeds")}
"""The parameters of a command that ``--list`` reads."""


def refuse_unread(command: Any) -> None:
    """Let a command refuse, with exit status 2, options that it would not read as they were written."""
    for option in command.params:
        option.process_value = partial(_finite, option.process_value, option)
    command.parse_args = partial(_parsed, command, command.parse_args)


def conditions(option: Any) -> Iterator[tuple[str, str, str | None]]:
    """Yield the conditions of an option's help: relation (with, without), other option, and value."""
    text, at = getattr(option, "help", None) or "", 0
    while match := CONDITION.match(text, at):
        relation, name, value = match.groups()
        yield relation, name, value
        if match[0].endswith(": "):
            return
        at = match.end()


def _finite(process: Callable[..., Any], option: Any, ctx: Any, text: Any) -> Any:
    """Refuse nan and inf, which pass where typer has no limit."""
    value = process(ctx, text)
    if isinstance(value, float) and not math.isfinite(value):
        raise typer.BadParameter(f"{text} is not a finite number.", ctx=ctx, param=option)
    return value


def _parsed(command: Any, parse: Callable[..., list[str]], ctx: Any, args: list[str]) -> list[str]:
    order = command.make_parser(ctx).parse_args(args=list(args))[2] if args else []
    for option in order:
        if order.count(option) > 1 and not option.multiple and not option.is_flag:
            ctx.fail(f"{option.opts[0]} is given twice. Give it once.")
    leftover_arguments = parse(ctx, args)
    passed_options = [
        option
        for option in command.params
        if getattr(ctx.get_parameter_source(option.name), "name", "") == "COMMANDLINE"
    ]
    by_name = {name: option for option in command.params for name in option.opts}
    for option in passed_options:
        for relation, name, required_value in conditions(option):
            value = ctx.params[by_name[name].name]
            is_met = bool(value) if required_value is None else str(getattr(value, "value", value)) == required_value
            if is_met != (relation.lower() == "with"):
                ctx.fail(
                    f"{option.opts[0]} is read only {relation.lower()} {' '.join(filter(None, (name, required_value)))}."
                )
    if by_name.get("--list") in passed_options:
        for option in passed_options:
            if option.name not in ("listed", "list_all", *READ_BY_LIST.get(command.name, ())):
                ctx.fail(f"{option.opts[0]} is not read with --list.")
    return leftover_arguments
