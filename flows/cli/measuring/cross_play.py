"""``userrl cross-play``: agents trained on populations of users, each evaluated on every population."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.arguments import Json
from flows.cli.terminal import plain, plain_json

app = typer.Typer(add_completion=False)


@app.command("cross-play")
def cross_play(
    file: Annotated[str, typer.Argument(help="A study's YAML file, such as lab/studies/user_populations.yaml.")],
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Seeds per training population. Fewer than the study's give no verdict.")
    ] = None,
    parallel: Annotated[int, typer.Option(min=1, help="Number of parallel runs.")] = 2,
    listed: Annotated[bool, typer.Option("--list", help="Show the study's hash and size, and run nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Train one agent per population of users, and evaluate each on every population. Run again, it continues.

    The file is registered with its hash before the first run. A page, a picture and the data are written to the home.

    Example: userrl cross-play lab/studies/user_populations.yaml
    """
    if listed:
        print(plain(_plan(file, seeds)))
        return
    import userrl
    from userrl.machine.interrupts import stoppable

    with stoppable("stopped; its runs leave checkpoints. Run it again to go on"):
        done = userrl.cross_play(file, seeds=seeds, parallel=parallel)
    print(plain_json(done.as_json(), indent=1) if as_json else plain(str(done)))


def _plan(file: str, seeds: int | None) -> str:
    from curricula.claims.cross_play import load_cross_play

    study = load_cross_play(file)
    count = seeds or study.seeds
    runs = count * len(study.train)
    evaluations = count * (len(study.train) + study.same_cold_start) * len(study.evaluate)
    roles = f"shifted: {', '.join(study.shifted)}; unseen trait: {', '.join(study.unseen)}"
    contrasts = ", ".join(f"{more} − {than}" for more, than in study.contrasts)
    return (
        f"{study.name}, hash {study.hash}: {study.text}\n"
        f"trained with: {', '.join(study.train)}; seeds {study.first_seed} to {study.first_seed + count - 1}\n"
        f"evaluated with: {', '.join(study.evaluate)} ({roles})\n"
        f"contrasts on {', '.join(study.contrasted)}: {contrasts}\n"
        f"{runs} runs, {evaluations} evaluations of {study.evaluation_tasks} tasks"
    )
