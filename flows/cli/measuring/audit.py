"""``userrl audit credit``, ``judge``, ``user`` and ``grounded``: audits of the training signal and of users."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from flows.cli.arguments import Html, Json, RunName, json_object
from flows.cli.terminal import plain, plain_json

app = typer.Typer(
    name="audit",
    help="Audit the training signal and the users: credit rules, turn judges, simulated users.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def _root() -> None: ...


@app.command()
def credit(
    who: Annotated[
        list[str],
        typer.Argument(metavar="WHO...", help="Runs, or folders of their checkpoints, such as the SFT checkpoint."),
    ],
    gym: Annotated[str | None, typer.Option(help="The gym. Default: the run's only training gym.")] = None,
    groups: Annotated[
        int, typer.Option(min=2, help="Number of training tasks; each has one group of trajectories.")
    ] = 40,
    group: Annotated[int, typer.Option(min=2, help="Trajectories per task.")] = 8,
    k: Annotated[int, typer.Option("--k", min=1, help="Continuations of each prefix in each half.")] = 8,
    horizon: Annotated[
        int | None, typer.Option(help="Maximum number of agent turns. Default: that of the checkpoint's stage.")
    ] = None,
    goal: Annotated[
        str, typer.Option(help="Return that the table measures: sum (of rewards), r2g, or score (the gym's).")
    ] = "sum",
    loss: Annotated[
        str, typer.Option(help="Loss aggregation in the table: trajectory_mean or token_mean.")
    ] = "trajectory_mean",
    seed: Annotated[int, typer.Option(help="Seed of the task choice and of all random draws.")] = 0,
    as_json: Json = False,
) -> None:
    """Compare every credit rule with the true advantage of turns, estimated from continuations of real conversations.

    Example: userrl audit credit latest --gym errand --groups 40
    """
    import userrl
    from userrl.audits.credit import check_table
    from userrl.evaluation.frozen import frozen

    check_table(goal, loss)
    for name in who:
        frozen(name)  # refuse a wrong name before the first audit
    audits = []
    for name in who:
        audits.append(userrl.audit_credit(name, gym=gym, groups=groups, group=group, k=k, horizon=horizon, seed=seed))
        if not as_json:
            print(audits[-1].table(goal, loss))
    if as_json:
        print(plain_json([credit_audit.as_json() for credit_audit in audits], indent=1))


@app.command()
def judge(
    run: RunName,
    who: Annotated[
        str | None,
        typer.Option(
            "--judge",
            help="The judge: rule, a model's name, or JSON with the recipe's judge keys. Default: the run's own.",
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Number of times each conversation is judged.")] = 2,
    phase: Annotated[
        str, typer.Option(help="Phase of the conversations: train, validate, evaluate or distill.")
    ] = "train",
    most: Annotated[int, typer.Option(min=1, help="Maximum number of conversations, spread over the run.")] = 100,
    as_json: Json = False,
) -> None:
    """Compare a turn judge with the rule judge, and with its own repeated readings.

    Example: userrl audit judge latest --repeats 3
    """
    import userrl

    done = userrl.audit_judge(run, _judge(who), repeats=repeats, phase=phase, most=most)
    print(plain_json(done.as_json(), indent=1) if as_json else done)
    if not done.marked:
        raise typer.Exit(1)


@app.command()
def user(
    run: RunName,
    phase: Annotated[
        str | None,
        typer.Option(
            help="Phase of the conversations: train, validate, evaluate, distill or play. Default: evaluate; play for people."
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="people|people:chitchat|FILE|RUN",
            help="Also show the distance from these users: people, strangers who chat (people:chitchat, 8 MB, fetched once), a "
            "file that `userrl import` reads, or a run.",
        ),
    ] = None,
    mix: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|RUN",
            help="Also find the mixture of RUN's users and these that is nearest to --against. May be repeated.",
        ),
    ] = None,
    acts: Annotated[
        Literal["auto", "patterns", "encoder", "judge"],
        typer.Option(help="Who reads the words. Default: the encoder where it was fetched, else patterns."),
    ] = "auto",
    judge: Annotated[
        str | None,
        typer.Option("--judge", help="With --acts judge: the served model, or JSON with the options of its server."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the errors of users, and whose error each failed conversation shows.

    The audit is stored in the table user_features and shown in the run's report.

    Example: userrl audit user latest --against people
    """
    import userrl

    done = userrl.audit_user(run, phase=phase, against=against, mix=mix or (), acts=acts, judge=_judge(judge))
    print(plain_json(done.as_json(), indent=1) if as_json else plain(str(done)), end="\n" if as_json else "")


@app.command()
def grounded(
    run: RunName,
    phase: Annotated[
        str, typer.Option(help="Phase of the conversations: train, validate, evaluate or distill.")
    ] = "evaluate",
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Split success into grounded answers (everything needed was told) and lucky ones, and show their price in questions.

    Example: userrl audit grounded latest --html grounded.html
    """
    from userrl.audits.grounded import audit_grounded

    done = audit_grounded(run, phase=phase)
    if html is not None:
        done.document().write(Path(html))
    print(plain_json(done.as_json(), indent=1) if as_json else plain(str(done)))


def _judge(text: str | None) -> str | dict[str, Any] | None:
    """Return a judge as the library takes it: a name, or the recipe's judge keys. Raises ConfigError for broken JSON."""
    if text is None or not text.lstrip().startswith("{"):
        return text
    keys: dict[str, Any] = json_object(text, "Give --judge a name, or the judge's keys in JSON.")
    return keys
