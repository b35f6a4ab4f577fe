"""``userrl evaluate``: play held-out tasks."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from flows.cli.arguments import Json
from flows.cli.terminal import plain


def evaluate(
    checkpoint: Annotated[
        str, typer.Argument(help="A checkpoint's folder, a run, latest, or demonstrator.")
    ] = "latest",
    recipe: Annotated[str, typer.Option(help="Whose gyms, horizon and prompts count; auto: the run's own.")] = "auto",
    profile: Annotated[str, typer.Option(help="Sizes and machine; auto: by machine and recipe.")] = "auto",
    gym: Annotated[list[str] | None, typer.Option(help="A gym to play; may be repeated.")] = None,
    horizon: Annotated[int | None, typer.Option(help="Most agent turns.")] = None,
    tasks: Annotated[int | None, typer.Option(help="Test tasks per gym.")] = None,
    attempts: Annotated[int | None, typer.Option(help="Trajectories per task.")] = None,
    model: Annotated[str | None, typer.Option(help="A served model in place of a checkpoint.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Its OpenAI-compatible server.")] = None,
    user: Annotated[str | None, typer.Option(help="Who answers: rule, openai, or JSON with kind and options.")] = None,
    seed: Annotated[int, typer.Option(help="Fixes every draw.")] = 0,
    as_json: Json = False,
) -> None:
    """Play held-out tasks with a checkpoint, a served model or the demonstrator."""
    from flows.evaluate import evaluate_here
    from flows.run.request import EvaluateRequest

    report = evaluate_here(
        EvaluateRequest(
            checkpoint=checkpoint,
            recipe=recipe,
            profile=profile,
            gyms=gym,
            horizon=horizon,
            tasks=tasks,
            attempts=attempts,
            model=model,
            base_url=base_url,
            user=json.loads(user) if user and user.startswith("{") else user,
            seed=seed,
        )
    )
    if as_json:
        print(report.model_dump_json(indent=1))
        return
    for actor, rows in report.table.items():
        for name, row in rows.items():
            score = "not scored" if row.score is None else f"{row.score:.3f} ± {row.stderr:.3f}"
            print(f"{plain(actor)}  {name}  {score}  ({row.attempts} trajectories, {row.rejected} rejected)")
            for reason, count in row.reasons.items():
                print(f"  rejected {count} times: {plain(reason)}")
    print(f"every turn: userrl sql \"from trajectories where run_id = '{report.run}'\"")
    if all(row.score is None for rows in report.table.values() for row in rows.values()):
        raise typer.Exit(1)
