"""``userrl compare``: a comparison of checkpoints or recipes, and a release gate."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from flows.cli.arguments import Html, Json
from flows.cli.terminal import plain, plain_json


class ComparisonFormat(StrEnum):
    """The form of the output."""

    text = "text"
    markdown = "markdown"
    json = "json"
    junit = "junit"


GATE_ALONE = (ComparisonFormat.markdown, ComparisonFormat.junit)


def compare(
    sides: Annotated[
        list[str],
        typer.Argument(
            metavar="A B ...",
            help="Runs (latest, RUN:SFT), groups ('recipe=naive-sum,seed=*'), served models (model=gpt-4o), published:MODEL.",
        ),
    ],
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Rules that B, compared with A, must keep (YAML). The answer is PASS (exit status 0), FAIL (3) or "
            "INCONCLUSIVE (4).",
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="label:NAME", help="Also compare how often conversations have each label of this set."),
    ] = None,
    format: Annotated[
        ComparisonFormat, typer.Option(help="What is printed; with a policy, markdown and junit are the gate alone.")
    ] = ComparisonFormat.text,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Compare B, C ... with A: runs over their tasks, recipes over their seeds. Collapsed seeds are listed first.

    Published rows are shown separately and never subtracted.

    Example: userrl compare 'recipe=equalized-r2g,seed=*' 'recipe=naive-sum,seed=*'

    A policy file is, for example: rules: [{rule: not worse by more than .02}, {rule: cost at most 1.2 x, metric: tokens}]
    """
    import userrl
    from userrl_core.errors import ConfigError

    if format is ComparisonFormat.junit and policy is None:
        raise ConfigError("argument.missing", "JUnit output lists the rules of a policy. Give --policy FILE.")
    if as_json and format not in (ComparisonFormat.text, ComparisonFormat.json):
        raise ConfigError("argument.conflict", "--json and --format each name what is printed. Give one.")
    if by is not None and html is None and policy is not None and format in GATE_ALONE:
        raise ConfigError(
            "argument.conflict", f"--format {format} is the gate alone, and --by adds to the comparison. Omit one."
        )
    comparison = userrl.compare(*sides, policy=policy, by=by)
    gate = comparison.gate
    if as_json or format is ComparisonFormat.json:
        print(plain_json(comparison.as_json(), indent=1))
    elif format is ComparisonFormat.junit and gate is not None:
        print(gate.junit(), end="")
    elif format is ComparisonFormat.markdown:
        print((comparison.document if gate is None else gate.document()).markdown())
    else:
        print(plain(str(comparison)).rstrip())
    if html is not None:
        print(f"wrote {', '.join(map(str, comparison.write(html)))}", file=sys.stderr)
    if gate is not None and gate.exit_status:
        raise typer.Exit(gate.exit_status)
