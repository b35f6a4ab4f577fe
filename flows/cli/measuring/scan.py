"""``userrl scan``: labels of conversations and turns."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from flows.cli.arguments import Json, RunName
from flows.cli.terminal import plain_json


class With(StrEnum):
    """The labeller."""

    pattern = "pattern"
    function = "function"
    judge = "judge"


class On(StrEnum):
    """The labelled unit."""

    conversation = "conversation"
    turn = "turn"


def scan(
    run: RunName,
    name: Annotated[str, typer.Option(help="The name of the label set.")],
    with_: Annotated[With, typer.Option("--with", help="Without --check: what labels.")] = With.pattern,
    on: Annotated[On, typer.Option(help="Without --check: what is labelled.")] = On.conversation,
    pattern: Annotated[
        str | None, typer.Option(help="With --with pattern: a regular expression; yes where it is found.")
    ] = None,
    function: Annotated[
        str | None, typer.Option(help="With --with function: an entry point of the group userrl.scanners.")
    ] = None,
    rubric: Annotated[
        str | None, typer.Option(help="With --with judge: a question that a judge model answers with yes or no.")
    ] = None,
    model: Annotated[str, typer.Option(help="With --with judge: its model.")] = "gpt-4o",
    base_url: Annotated[str | None, typer.Option(help="With --with judge: the /v1 address of its server.")] = None,
    phase: Annotated[
        str, typer.Option(help="Without --check: phase of the conversations, evaluate, validate, train or distill.")
    ] = "evaluate",
    check: Annotated[
        bool, typer.Option("--check", help="Label nothing; compare the stored labels with a person's.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Label conversations or turns by a pattern, an installed function or a judge model.

    Example: userrl scan latest --name apology --pattern '(?i)sorry' --on turn

    A judge's labels are stored one by one. After a kill, the same command asks only for the missing ones.

    A person labels on the page (userrl view), and --check compares: agreement, sensitivity, specificity and kappa.
    """
    import userrl
    from userrl.audits.check_labels import check_labels
    from userrl_core.errors import ConfigError

    if check:
        if pattern or function or rubric:
            raise ConfigError("argument.conflict", "--check labels nothing. Leave out what labels.")
        checked = check_labels(run, name)
        print(plain_json(checked.as_json(), indent=1) if as_json else checked)
        return
    done = userrl.scan(
        run,
        name=name,
        with_=with_.value,
        on=on.value,
        pattern=pattern,
        function=function,
        rubric=rubric,
        model=model,
        base_url=base_url,
        phase=phase,
    )
    print(plain_json(done.as_json(), indent=1) if as_json else done)
