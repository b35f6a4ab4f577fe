"""``userrl evaluate``: play held-out tasks, or a suite; several runs, users or horizons at once make a grid."""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated, Any

import typer

from flows.cli.arguments import Json
from flows.cli.terminal import plain, plain_json

SAY_EVERY_SECONDS = 10.0


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
        typer.Option(help="Who answers: rule, openai, or JSON with kind and options; may be repeated."),
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
    list_suites: Annotated[bool, typer.Option("--list", help="Show the suites and their settings.")] = False,
    as_json: Json = False,
) -> None:
    """Play a suite or held-out tasks with a checkpoint, a served model or the demonstrator. Run again, it goes on."""
    from curricula.suites import suite_named
    from curricula.validation import validated
    from flows.cli.measuring.grid import Axes, Grid, horizons, play
    from flows.run.request import EvaluateRequest
    from userrl_core.errors import ConfigError

    if name and suite is None and suite_named(name):
        suite, name = name, ""
    if list_suites:
        return _list(suite)
    asked = [*([name] if name else []), *(run or []), *(["demonstrator"] if demonstrator else [])]
    if model is not None and asked:
        raise ConfigError(f"--model says who plays, and so does {asked[0]}; give one of them.")
    base = {
        "suite": suite,
        "recipe": recipe,
        "profile": profile,
        "gyms": gym,
        "horizon": horizon,
        "tasks": tasks,
        "attempts": attempts,
        "temperature": temperature,
        "model": model,
        "base_url": base_url,
        "seed": seed,
        "concurrency": concurrency,
        "budget": {"money": dollars, "hours": hours} if dollars or hours else None,
        "fresh": fresh,
    }
    axes = Axes(
        who=tuple(asked) or ("latest",),
        users=tuple(as_user(text) for text in user or ()) or (None,),
        turns=horizons(turns, suite) or (horizon,),
    )
    grid = Grid(validated(EvaluateRequest, base, "evaluate"), axes)
    if grid.single is None or out is not None:
        return play(grid, out=out, as_json=as_json, watch=_watch())
    return _one(grid.single, as_json)


def as_user(text: str) -> Any:
    """A user as a request takes it: a kind, or JSON with kind and options. Raises ConfigError for broken JSON."""
    from userrl_core.errors import ConfigError

    if not text.startswith("{"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        raise ConfigError(f'{text} is no JSON; give a user as {{"kind": ..., "options": {{...}}}}.') from None


def _one(request: Any, as_json: bool) -> None:
    """One evaluation: a line for each score, and what it was played on."""
    from curricula.suites import load_suite
    from flows.evaluate import evaluate_here, plan_evaluation
    from flows.run.scores import score_rows

    suite = load_suite(request.suite) if request.suite else None
    planned = plan_evaluation(request)
    report = evaluate_here(planned, _watch())
    gyms = planned.plan.recipe.evaluation_gyms
    rows = score_rows(report.run, planned.actors, gyms, suite.metrics if suite else ())
    unscored = all(row.score is None for row in rows)
    if as_json:
        said = {**report.model_dump(mode="json"), "suite": suite.label if suite else None}
        print(plain_json({**said, "rows": [row.model_dump() for row in rows]}, indent=1))
    else:
        for row in rows:
            print(
                f"{plain(row.actor)}  {row.gym}  {row.interval()}  ({row.trajectories} trajectories, {row.rejected} rejected)"
            )
            for reason, count in _reasons(report, row.actor, row.gym).items():
                print(f"  rejected {count} times: {plain(reason)}")
            print(f"  {plain(row.setting())}")
            if row.more:
                print("  " + ", ".join(f"{key} {value:.4f}" for key, value in row.more.items()))
        print(f"every turn: userrl sql \"from trajectories where run_id = '{report.run}'\"")
    if unscored:
        raise typer.Exit(1)


def _reasons(report: Any, actor: str, gym: str) -> dict[str, int]:
    row = report.table.get(actor, {}).get(gym)
    return dict(row.reasons) if row is not None else {}


def _watch() -> Any:
    """Shows progress on stderr: one line that is rewritten on a terminal, one every ten seconds elsewhere."""
    terminal, due = sys.stderr.isatty(), time.monotonic() + (0.0 if sys.stderr.isatty() else SAY_EVERY_SECONDS)

    def show(line: dict[str, Any]) -> None:
        nonlocal due
        last = line["step"] >= line["total"]
        if time.monotonic() < due and not (last and terminal):
            return
        due = time.monotonic() + (0.0 if terminal else SAY_EVERY_SECONDS)
        text = _progress(line)
        print(f"\r{text}\x1b[K" + "\n" * last if terminal else text, end="" if terminal else "\n", file=sys.stderr)
        sys.stderr.flush()

    return show


def _progress(line: dict[str, Any]) -> str:
    left = line.get("left_seconds")
    cost = f", ${line['dollars']:.2f}" if line.get("dollars") else ""
    reward = "" if line.get("reward") is None else f", score {line['reward']:.3f}"
    eta = "" if left is None or line["step"] >= line["total"] else f", about {_span(left)} left"
    return (
        f"evaluate {line['step']} of {line['total']}, {line.get('per_second', 0.0):.1f} episodes/s{reward}{cost}{eta}"
    )


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _list(word: str | None) -> None:
    """Every suite in a line, or one with each value and its source."""
    from curricula.suites import load_suite, suite_names
    from flows.run.suites import gyms_of
    from userrl_core.gyms.registry import gym_class

    if word is None:
        for name in suite_names():
            suite = load_suite(name)
            print(f"{name}  {suite.about} ({suite.source})")
            if suite.variants:
                print(f"  variants: {', '.join(suite.variants)}")
        return
    suite = load_suite(word)
    print(f"{suite.label}: {suite.about} ({suite.source})")
    shown = suite.model_dump(mode="json", exclude_defaults=True)
    for key, value in shown.items():
        if key in suite.sources:
            print(f"  {key}: {json.dumps(value)}  # {suite.sources[key]}")
    for gym in gyms_of(suite):
        print(f"  success at {gym}: {gym_class(gym).success_rule}")
    for name, change in suite.variants.items():
        print(f"  variant {name}  # {change.get('source', 'ours')}")
