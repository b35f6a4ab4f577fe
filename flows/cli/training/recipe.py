"""``userrl recipe``: the resolved values of an experiment, before anything runs."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.arguments import Json
from flows.cli.terminal import plain, plain_json
from userrl_core.errors import ConfigError
from userrl_core.number_format import with_limits

if TYPE_CHECKING:
    from curricula import Recipe
    from curricula.gains import Gain

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Show recipes and profiles.")

Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        help="Profile of sizes and machine. auto: chosen by machine and recipe; none: the recipe as published.",
    ),
]


@app.command(name="list")
def list_recipes(as_json: Json = False) -> None:
    """List every recipe: RL steps, gyms, processor minutes, gain over the cold start, source; and every profile.

    Minutes and gain were measured on the laptop profile: the last checkpoint's mean difference over seeds, with its 95 % limits.

    Example: userrl recipe list
    """
    import curricula
    from curricula.gains import gains

    measured = gains()
    recipes = [curricula.load(name, check=False) for name in curricula.recipe_names()]
    controls = {r.name: curricula.load(r.name, profile="laptop", check=False).control for r in recipes}
    if as_json:
        rows = [
            {"name": r.name, "source": r.source, "steps": r.total_steps, "hash": r.hash, "control": controls[r.name]}
            | {"laptop": asdict(measured[r.name]) if r.name in measured else None}
            for r in recipes
        ]
        typer.echo(plain_json({"recipes": rows, "profiles": list(curricula.profile_names())}, indent=2))
        return
    width = max(len(recipe.name) for recipe in recipes)
    typer.echo(f"{'recipe':<{width}}  {'RL steps':<10}  {'gyms':<12}  {'minutes':>8}  {'gain':<22}  source")
    for recipe in recipes:
        figures = _measured(measured.get(recipe.name), "control" if controls[recipe.name] else "")
        typer.echo(plain(f"{recipe.name:<{width}}  {recipe.total_steps:>4} steps  {figures:<46}  {recipe.source}"))
    typer.echo("\nMinutes of one core, and gain over the cold start [95 % limits over seeds]: laptop profile.")
    typer.echo(f"Profiles: {', '.join(curricula.profile_names())}")
    typer.echo("Next: userrl recipe show equalized-r2g")


def _measured(gain: Gain | None, control: str) -> str:
    """Return gyms, minutes and gain of a recipe, or that it is a control."""
    if gain is None:
        return control
    return (
        f"{', '.join(gain.gyms):<12}  {gain.cpu_seconds / 60:>4.1f} min  {control or with_limits(gain, 2, sign=True)}"
    )


@app.command(name="show")
def show(
    name: Annotated[str, typer.Argument(help="A recipe's name, or a YAML file.")],
    profile: Profile = "auto",
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="A recipe value, such as algorithm.lr=1e-4; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the resolved recipe and its sources as JSON.")] = False,
) -> None:
    """Print the stage table, every resolved value with its source, the replaced values, and whether the recipe runs here.

    Example: userrl recipe show equalized-r2g --set algorithm.lr=1e-4
    """
    from userrl.run.readiness import checked_here, drafted_here, forecast, here, verdict

    requested_profile = None if profile == "none" else profile
    host = here()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        drafted = drafted_here(name, requested_profile, parse_changes(changes or []))
        recipe = drafted.recipe
        answer = verdict(recipe, host)
        if answer.kind != "refused" or answer.reason not in ("environment", "judge"):
            recipe = checked_here(drafted)
    if as_json:
        about = {"verdict": answer.kind, "reason": answer.reason, "sentence": answer.sentence}
        typer.echo(plain_json({**as_document(recipe), "here": about}, indent=2))
        return
    for line in as_lines(recipe):
        typer.echo(plain(line))
    estimate = forecast(recipe, host.gpus)
    if estimate is not None:
        typer.echo(estimate)
    typer.echo("")
    if answer.kind == "refused":
        typer.echo(plain(f"This recipe does not run here: {answer.sentence}"))
    else:
        typer.echo(plain(f"Next: {_train(name, profile, changes or [])}"))


def _train(name: str, profile: str | None, changes: list[str]) -> str:
    """Return the command that trains the shown recipe. A recipe shown without a profile gets this machine's profile."""
    options = [] if profile in ("auto", "none", None) else ["--profile", str(profile)]
    return shlex.join(
        ["userrl", "train", name, *options, *(argument for change in changes for argument in ("--set", change))]
    )


def parse_changes(changes: Sequence[str]) -> dict[str, Any]:
    """Parse ``key=value`` words into overrides. Values are read as YAML. Raises ConfigError for a word without ``=``, and for
    a key that is given twice, also within a mapping.
    """
    from curricula.merge import leaves
    from curricula.yaml_files import value_of

    overrides: dict[str, Any] = {}
    change_of: dict[str, str] = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not key:
            raise ConfigError(
                "argument.malformed", f"'{change}' is not a change. Write key=value, such as algorithm.lr=1e-4."
            )
        overrides[key] = value_of(value, key)
        for leaf, _ in leaves({key: overrides[key]}):
            if leaf in change_of:
                raise ConfigError(
                    "argument.malformed", f"'{change_of[leaf]}' and '{change}' both give {leaf}. Keep one."
                )
            change_of[leaf] = change
    return overrides


def as_document(recipe: Recipe) -> dict[str, Any]:
    """Return resolved values, stage table, sources by dotted key, warnings and hash."""
    from curricula.merge import leaves
    from userrl.run.tasks import data_used

    return {
        "name": recipe.name,
        "hash": recipe.hash,
        "control": recipe.control,
        "total_steps": recipe.total_steps,
        "stages": recipe.stage_table(),
        "resolved": recipe.resolved(),
        "sources": {
            key: {"where": recipe.origin(key).where, "citation": recipe.origin(key).citation}
            for key, _ in leaves(recipe.resolved())
        },
        "replaced": [asdict(row) for row in recipe.replaced],
        "data": data_used(recipe),
        "warnings": list(recipe.warnings),
    }


def as_lines(recipe: Recipe) -> Iterator[str]:
    """Yield the same as `as_document`, as lines to read."""
    from curricula.merge import leaves
    from curricula.shown import replacement, shown
    from userrl.run.tasks import data_used

    yield f"{recipe.name} ({recipe.profile or 'as published'}), {recipe.total_steps} RL steps, hash {recipe.hash}"
    inherited = (where := recipe.origin("source").where) not in ("default", "override", f"recipe {recipe.name}")
    yield f"your own; other values from {where}: {recipe.source}" if inherited else recipe.source
    if recipe.control:
        yield f"control: expected to fail, because {recipe.control}"
    yield ""
    yield from stage_lines(recipe)
    yield ""
    for gym, used in data_used(recipe).items():
        yield f"{gym:<11} {used}"
    yield ""
    rows = [(key, shown(value), recipe.origin(key)) for key, value in leaves(recipe.resolved())]
    key_width = max(len(key) for key, _, _ in rows)
    value_width = min(max(len(value) for _, value, _ in rows), 40)
    for key, value, origin in rows:
        came_from = f"{origin.where}: {origin.citation}" if origin.citation else origin.where
        yield f"{key:<{key_width}}  {value:<{value_width}}  {came_from}"
    for sentence in recipe.warnings:
        yield f"warning: {sentence}"
    if recipe.replaced:
        yield ""
        yield "replaced values:"
        yield from (f"  {replacement(row)}" for row in recipe.replaced)


def stage_lines(recipe: Recipe) -> Iterator[str]:
    """Yield the lines of the stage table."""
    from curricula.shown import shown

    if recipe.evolve is not None:
        yield f"No RL stages: {recipe.evolve.iterations} iterations of AgentEvol (sample, keep successes, fine-tune)."
        return
    if not recipe.planned_stages:
        yield "No RL stages: the cold start is the result that is evaluated."
        return
    yield f"{'stage':<6} {'steps':>6} {'from':>5} {'to':>5} {'horizon':>8}  tasks"
    for row in recipe.stage_table():
        mix = (" / " if row["alternate"] else " + ").join(
            gym if weight == 1 else f"{gym} x{weight:g}" for gym, weight in row["mix"].items()
        )
        gates = f"  (ends early: {shown(row['gates'])})" if row["gates"] else _seconds(row)
        yield f"{row['stage']:<6} {row['steps']:>6} {row['first']:>5} {row['last']:>5} {row['horizon']!s:>8}  {mix}{gates}"


def _seconds(row: Mapping[str, Any]) -> str:
    """Return the note for a stage with a limit in seconds. Its steps are numbered to an upper bound, and it ends before."""
    kinds = [kind for kind in ("cpu", "gpu") if row[f"{kind}_seconds"] is not None]
    return "".join(f"  (ends when {row[f'{kind}_seconds']:g} {kind.upper()}-seconds are used)" for kind in kinds)
