"""``userrl train``: train a recipe in this terminal, without a server."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flows.cli.terminal import page_text, plain

TRACKERS = ("tensorboard", "mlflow", "wandb")


def train(
    recipe: Annotated[str | None, typer.Argument(help="A recipe's name, or a YAML file.")] = None,
    profile: Annotated[
        str, typer.Option(help="Profile of sizes and machine; auto: chosen by machine and recipe.")
    ] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of all random draws.")] = 0,
    values: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a value of the recipe; may be repeated."),
    ] = None,
    name: Annotated[str, typer.Option(help="A name for the run. Another name makes another run.")] = "",
    init_from: Annotated[str | None, typer.Option(help="A checkpoint to start from.")] = None,
    until: Annotated[str | None, typer.Option(help="The last stage to run.")] = None,
    hours: Annotated[float | None, typer.Option(help="Stop after this many hours of work, with a checkpoint.")] = None,
    dollars: Annotated[
        float | None, typer.Option(help="Stop when model calls have cost this much, with a checkpoint.")
    ] = None,
    track: Annotated[
        list[str] | None,
        typer.Option(
            "--track",
            help="Without --dry-run: also log to tensorboard, mlflow or wandb, as files in the home; may be repeated.",
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Without --dry-run: start a new run even if one with these values exists.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the stages without training.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the recipes.")] = False,
) -> None:
    """Train a recipe in this terminal. Run it again to reuse finished stages, or to continue after a stop.

    Example: userrl train equalized-r2g --seed 1 --set credit.gamma=0.9
    """
    import userrl
    from flows.cli.training.recipe import parse_changes
    from userrl.machine.interrupts import stoppable
    from userrl.reports.run_summary import at_a_glance, run_summary
    from userrl.stages.train import planned
    from userrl_core.errors import ConfigError

    if listed:
        for recipe_name in userrl.recipes():
            print(recipe_name)
        return
    if recipe is None:
        raise ConfigError("argument.missing", "Name a recipe. `userrl train --list` shows all recipes.")
    trackers = track or []
    if unknown := next((name for name in trackers if name not in TRACKERS), None):
        raise ConfigError(
            "argument.unknown_value", f"There is no tracker '{unknown}'. Use one or more of {', '.join(TRACKERS)}."
        )
    options: dict[str, Any] = {
        "profile": profile, "seed": seed, "name": name, "overrides": parse_changes(values or []), "init_from": init_from,
        "until": until, "hours": hours, "dollars": dollars,
    }  # fmt: skip
    if dry_run:
        print(plain(str(planned(recipe, **options))))
        return
    with stoppable("stopped; the same command continues from the last checkpoint"):
        done = userrl.train(
            recipe,
            **options,
            fresh=fresh,
            wandb="offline" if "wandb" in trackers else "off",
            track=[name for name in trackers if name != "wandb"],  # type: ignore[misc]
        )
    print(page_text(run_summary(done.report)), end="")
    if answer := page_text(at_a_glance(done.report)).strip():
        print(f"\n{answer.splitlines()[0]}")  # again, because a terminal shows the end of the page
