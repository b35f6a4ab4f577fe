"""``userrl evaluate``: evaluation on held-out tasks or a suite. Several policies, users or horizons make a grid."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.arguments import Json, name_or_json, parse_user
from flows.cli.terminal import plain_json
from userrl_core.json_files import json_text


def evaluate(
    name: Annotated[str, typer.Argument(help="A suite, a checkpoint's folder, a run, latest, or demonstrator.")] = "",
    suite: Annotated[str | None, typer.Option(help="A suite's name, or NAME:VARIANT for one of its variants.")] = None,
    run: Annotated[
        list[str] | None, typer.Option(help="A run or checkpoint folder to evaluate; may be repeated.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="""A served model to evaluate instead of a checkpoint: its name, or JSON with options of its server such """
            """as '{"model": "gpt-4o", "max_tokens": 512, "timeout": 300}' (docs/users.md, Served users)."""
        ),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(help="With --model: the /v1 address of its OpenAI-compatible server.")
    ] = None,
    demonstrator: Annotated[bool, typer.Option("--demonstrator", help="Evaluate the scripted demonstrator.")] = False,
    user: Annotated[
        list[str] | None,
        typer.Option(
            help="""The user: rule, openai, or JSON such as '{"kind": "openai", "options": {"model": "gpt-4o"}}' """
            "(docs/users.md, Served users); may be repeated."
        ),
    ] = None,
    recipe: Annotated[
        str, typer.Option(help="The recipe that sets gyms, horizon and prompts; auto: the run's own.")
    ] = "auto",
    profile: Annotated[
        str, typer.Option(help="Profile of sizes and machine; auto: chosen by machine and recipe.")
    ] = "auto",
    gym: Annotated[list[str] | None, typer.Option(help="A gym to evaluate on; may be repeated.")] = None,
    horizon: Annotated[int | None, typer.Option(min=1, help="Without --turns: maximum number of agent turns.")] = None,
    turns: Annotated[str | None, typer.Option(help="Several horizons: 4,8,16 or 4..32 (doubling).")] = None,
    tasks: Annotated[int | None, typer.Option(help="Test tasks per gym.")] = None,
    attempts: Annotated[int | None, typer.Option(help="Trajectories per task.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature; 0 is greedy.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random draws.")] = 0,
    concurrency: Annotated[int | None, typer.Option(help="Number of parallel conversations and requests.")] = None,
    dollars: Annotated[float | None, typer.Option(help="Stop when model calls have cost this much.")] = None,
    hours: Annotated[float | None, typer.Option(help="Stop after this many hours of work.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Repeat conversations that were already played.")] = False,
    out: Annotated[
        str | None,
        typer.Option(help="Write the plot data to this .csv file, and the plot to an .svg file of the same name."),
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="Show the suites and their settings.")] = False,
    as_json: Json = False,
) -> None:
    """Evaluate a checkpoint, a served model or the demonstrator on held-out tasks or a suite.

    The same command again continues an evaluation that was stopped.

    Example: userrl evaluate latest --tasks 50
    """
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
        model=None if model is None else name_or_json(model, 'Give a model as {"model": ..., "base_url": ...}.'),
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


def list_suites(suite_name: str | None) -> None:
    """Print every suite on one line, or one suite with each value and its source."""
    from curricula.suites import load_suite, suite_names
    from userrl.protocols.suite import still_different
    from userrl.run.suites import gyms_of
    from userrl_core.gyms.registry import gym_class

    if suite_name is None:
        for name in suite_names():
            suite = load_suite(name)
            print(f"{name}  {suite.about} ({suite.source})")
            if suite.variants:
                print(f"  variants: {', '.join(suite.variants)}")
        return
    suite = load_suite(suite_name)
    print(f"{suite.label}: {suite.about} ({suite.source})")
    values = suite.model_dump(mode="json", exclude_defaults=True)
    for key, value in values.items():
        if key in suite.sources:
            print(f"  {key}: {json_text(value)}  # {suite.sources[key]}")
    for gym in gyms_of(suite):
        print(f"  success at {gym}: {gym_class(gym).success_rule}")
    for sentence in still_different(suite):
        print(f"  {sentence}")
    for name, change in suite.variants.items():
        print(f"  variant {name}  # {change.get('source', 'ours')}")
