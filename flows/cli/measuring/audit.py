"""``userrl audit credit`` and ``userrl audit judge``: audits of what training learns from."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from flows.cli.arguments import Json, RunName
from flows.cli.terminal import plain_json

app = typer.Typer(name="audit", help="Audits of what training learns from.", no_args_is_help=True, add_completion=False)


@app.callback()
def _root() -> None: ...


@app.command()
def credit(
    who: Annotated[
        list[str], typer.Argument(metavar="WHO...", help="Runs, or folders of their checkpoints, such as the SFT's.")
    ],
    gym: Annotated[str | None, typer.Option(help="Where; a run's only training gym by default.")] = None,
    groups: Annotated[int, typer.Option(min=2, help="Training tasks, a group of trajectories each.")] = 40,
    group: Annotated[int, typer.Option(min=2, help="Trajectories of a task.")] = 8,
    k: Annotated[int, typer.Option("--k", min=1, help="Continuations of a prefix in either half.")] = 8,
    horizon: Annotated[int | None, typer.Option(help="Most agent turns; the recipe's last stage's.")] = None,
    goal: Annotated[
        str, typer.Option(help="What a turn is worth, in the table: sum (of rewards), r2g, or the gym's score.")
    ] = "sum",
    loss: Annotated[
        str, typer.Option(help="Loss aggregation in the table: trajectory_mean or token_mean.")
    ] = "trajectory_mean",
    seed: Annotated[int, typer.Option(help="Chooses the tasks and every draw.")] = 0,
    as_json: Json = False,
) -> None:
    """Hold every credit rule against what turns were worth, from continuations of real conversations."""
    import userrl
    from userrl.audits.credit import check_table
    from userrl.evaluation.frozen import frozen

    check_table(goal, loss)
    for name in who:
        frozen(name)  # refuses a wrong name before the first audit
    audits = []
    for name in who:
        audits.append(userrl.audit_credit(name, gym=gym, groups=groups, group=group, k=k, horizon=horizon, seed=seed))
        if not as_json:
            print(audits[-1].table(goal, loss))
    if as_json:
        print(plain_json([each.as_json() for each in audits], indent=1))


@app.command()
def judge(
    run: RunName,
    who: Annotated[
        str | None,
        typer.Option(
            "--judge", help="Who judges: rule, a model's name, or JSON with the recipe's judge keys. The run's own."
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Readings of each conversation.")] = 2,
    phase: Annotated[str, typer.Option(help="Which conversations: train, validate, evaluate, distill.")] = "train",
    most: Annotated[int, typer.Option(min=1, help="At most so many conversations, spread over the run.")] = 100,
    as_json: Json = False,
) -> None:
    """Compare a judge of turns with the rule judge, and with itself on repeated readings."""
    import userrl

    done = userrl.audit_judge(run, _judge(who), repeats=repeats, phase=phase, most=most)
    print(plain_json(done.as_json(), indent=1) if as_json else done)
    if not done.marked:
        raise typer.Exit(1)


def _judge(text: str | None) -> str | dict[str, Any] | None:
    """Return a judge as the library takes it: a name, or the recipe's judge keys. Raises ConfigError for broken JSON."""
    from userrl_core.errors import ConfigError

    if text is None or not text.lstrip().startswith("{"):
        return text
    try:
        keys: dict[str, Any] = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"--judge is neither a name nor JSON ({error}).") from None
    return keys
