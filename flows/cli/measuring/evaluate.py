"""``userrl evaluate``: play held-out tasks, or a suite; several players, users or horizons make a grid."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.arguments import Json, parse_user
from flows.cli.measuring.suites import list_suites
from flows.cli.terminal import plain_json


def evaluate(
    name: Annotated[
        str, typer.Argument(help="A suite, or else a checkpoint's folder, a run, latest, or demonstrator.")
    ] = "",
    suite: Annotated[str | None, typer.Option(help="A suite by name, NAME:VARIANT for one of its variants.")] = None,
    run: Annotated[list[str] | None, typer.Option(help="Who plays: a run or folder; may be repeated.")] = None,
    model: Annotated[str | None, typer.Option(help="A served model in place of a checkpoint.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Its OpenAI-compatible server.")] = None,
    demonstrator: Annotated[bool, typer.Option("--demonstrator", help="The scripted demonstrator plays.")] = False,
    user: Annotated[
        list[str] | None,
        typer.Option(
            help="""Who answers: rule, openai, or JSON such as '{"kind": "openai", "options": {"model": "gpt-4o"}}' """
            "(docs/gyms.md, Served users); may be repeated."
        ),
    ] = None,
    recipe: Annotated[str, typer.Option(help="Whose gyms, horizon and prompts count; auto: the run's own.")] = "auto",
    profile: Annotated[str, typer.Option(help="Sizes and machine; auto: by machine and recipe.")] = "auto",
    gym: Annotated[list[str] | None, typer.Option(help="A gym to play; may be repeated.")] = None,
    horizon: Annotated[int | None, typer.Option(help="Most agent turns.")] = None,
    turns: Annotated[str | None, typer.Option(help="Several horizons: 4,8,16 or 4..32 (doubling).")] = None,
    tasks: Annotated[int | None, typer.Option(help="Test tasks per gym.")] = None,
    attempts: Annotated[int | None, typer.Option(help="Trajectories per task.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature; 0 is greedy.")] = None,
    seed: Annotated[int, typer.Option(help="Fixes every draw.")] = 0,
    concurrency: Annotated[int | None, typer.Option(help="Conversations and requests at once.")] = None,
    dollars: Annotated[float | None, typer.Option(help="Stop when model calls have cost this much.")] = None,
    hours: Annotated[float | None, typer.Option(help="Stop after this many hours of work.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Play again what was played before.")] = False,
    out: Annotated[str | None, typer.Option(help="Where the plot data goes (.csv), the plot beside it (.svg).")] = None,
    list_all: Annotated[bool, typer.Option("--list", help="Show the suites and their settings.")] = False,
    as_json: Json = False,
) -> None:
    """Play a suite or held-out tasks with a checkpoint, a served model or the demonstrator. Run again, it goes on."""
    from curricula.suites import suite_named

    if name and suite is None and suite_named(name):
        suite, name = name, ""
    if list_all:
        list_suites(suite)
        return
    import userrl

    done = userrl.evaluate(
        [*([name] if name else []), *(run or []), *(["demonstrator"] if demonstrator else [])],
        suite=suite,
        model=model,
        base_url=base_url,
        user=[parse_user(text) for text in user or ()],
        recipe=recipe,
        profile=profile,
        gyms=gym,
        turns=turns or horizon,
        tasks=tasks,
        attempts=attempts,
        temperature=temperature,
        seed=seed,
        concurrency=concurrency,
        dollars=dollars,
        hours=hours,
        fresh=fresh,
        out=out,
    )
    print(plain_json(done.as_json(), indent=1) if as_json else done)
    if not done.scored:
        raise typer.Exit(1)
