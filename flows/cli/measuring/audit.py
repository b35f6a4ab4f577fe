"""``userrl audit judge``, beside `credit`: a judge of turns over stored conversations, beside the rule judge and beside itself.

Nothing is trained and nothing is stored: the question is whether the judge is worth training with, and what it costs.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.arguments import Json, RunName
from flows.cli.measuring.credit import credit
from flows.cli.measuring.stored import stored_conversations
from flows.cli.terminal import plain, plain_json

if TYPE_CHECKING:
    from userrl_core.judging.audit import Agreement
    from userrl_core.judging.judge import TurnJudge
    from userrl_core.records import Judgement, Trajectory
    from userrl_core.rewards.judge import JudgeConfig

app = typer.Typer(name="audit", help="Audits of what training learns from.", no_args_is_help=True, add_completion=False)


@app.callback()
def _root() -> None: ...


app.command()(credit)


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
    from curricula.load import from_resolved
    from flows.run.run import find
    from flows.run.tasks import gym_config
    from userrl_core.errors import ConfigError
    from userrl_core.judging.judge import TurnJudge, is_judged

    meant = find(run)
    recipe = from_resolved(meant.info.resolved)
    turn_judge = TurnJudge(_config(who, recipe.judge), gym_config(recipe, evaluation=phase == "evaluate"))
    stored = [each for each in stored_conversations(meant.id, phase, None) if each.turns and is_judged(each.task.gym)]
    if not stored:
        raise ConfigError(
            f"Run {meant.id} has no finished conversation of phase {phase} whose turns can be judged; its gym needs gold calls, as "
            "tau has."
        )
    chosen = [stored[i * len(stored) // min(most, len(stored))] for i in range(min(most, len(stored)))]
    readings = asyncio.run(_read(turn_judge, chosen, repeats))
    result = _result(meant.id, turn_judge.config.model, phase, readings)
    if as_json:
        print(plain_json(result, indent=1))
    else:
        _show(result)
    if not result["marked"]:
        raise typer.Exit(1)


def _config(who: str | None, own: JudgeConfig | None) -> JudgeConfig:
    from curricula.validation import validated
    from flows.run.readiness import refuse_missing_key
    from userrl_core.errors import ConfigError
    from userrl_core.judging.judge import judge_server
    from userrl_core.rewards.judge import JudgeConfig

    if who is None and own is None:
        raise ConfigError("The run's recipe has no judge; name one with --judge.")
    config = own
    if who is not None:
        try:
            values = json.loads(who) if who.lstrip().startswith("{") else {"model": who}
        except json.JSONDecodeError as error:
            raise ConfigError(f"--judge is neither a name nor JSON ({error}).") from None
        config = validated(JudgeConfig, values, "--judge")
    assert config is not None
    if (server := judge_server(config)) is not None:
        refuse_missing_key(server)
    return config


async def _read(judge: TurnJudge, stored: Sequence[Trajectory], repeats: int) -> list[list[Judgement]]:
    """All readings, [conversations][repeats]. The server's own limit says how many are asked at once."""
    from userrl_core.served.client import close_clients

    try:
        return [
            [reading for reading in readings if reading is not None]
            for readings in await asyncio.gather(
                *(asyncio.gather(*(judge.judge(each) for _ in range(repeats))) for each in stored)
            )
        ]
    finally:
        await close_clients()


def _result(run: str, model: str, phase: str, readings: Sequence[Sequence[Judgement]]) -> dict[str, Any]:
    from userrl_core.judging.audit import agreement

    every = [reading for each in readings for reading in each]
    with_rule = [(r.scores, r.rule_scores) for r in every if r.scores is not None and r.rule_scores is not None]
    with_itself = [
        (one.scores, other.scores)
        for each in readings
        for one, other in itertools.combinations(each, 2)
        if one.scores is not None and other.scores is not None
    ]
    calls = [call for reading in every for call in reading.calls]
    prices = [call.price for call in calls]
    return {
        "run": run,
        "judge": model,
        "phase": phase,
        "conversations": len(readings),
        "readings": len(every),
        "marked": len(with_rule),
        "categories": dict(Counter(reading.category for reading in every)),
        "with_rule": _fields(agreement(with_rule)),
        "with_itself": _fields(agreement(with_itself)),
        "price": None if None in prices else sum(price for price in prices if price is not None),
        "prompt_tokens": sum(call.prompt_tokens for call in calls),
        "completion_tokens": sum(call.completion_tokens for call in calls),
        "seconds": sum(call.seconds for call in calls),
        "errors": dict(Counter(call.error for call in calls if call.error)),
    }


def _fields(found: Agreement) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(found), "share": found.share}


def _show(result: dict[str, Any]) -> None:
    unmarked = result["readings"] - result["marked"]
    print(
        f"{plain(result['judge'])} on {result['conversations']} conversations of {result['run']} ({result['phase']}), "
        f"{result['readings']} readings, {unmarked} without usable marks"
    )
    print(f"with the rule judge: {_in_words(result['with_rule'], plain(result['judge']), 'the rule judge')}")
    print(f"with itself:         {_in_words(result['with_itself'], 'the first reading', 'the second')}")
    print("categories: " + ", ".join(f"{kind} {count}" for kind, count in sorted(result["categories"].items())))
    price = "price not known" if result["price"] is None else f"${result['price']:.4f}"
    tokens = f"{result['prompt_tokens']} tokens read and {result['completion_tokens']} written"
    print(f"cost: {price}, {tokens}, {result['seconds']:.1f} s of calls")
    for error, count in result["errors"].items():
        print(f"  no usable reply {count} times: {plain(error)}")


def _in_words(found: dict[str, Any], first: str, second: str) -> str:
    if found["share"] is None:
        return "nothing to compare"
    apart = "" if found["apart"] is None else f" ({found['apart']:.1f} turns apart on average)"
    return (
        f"{found['share']:.1%} of {found['turns']} turns alike; the -1 at the same turn {found['same_turn']} of {found['both']} "
        f"times{apart}, found by {first} alone {found['only_first']}, by {second} alone {found['only_second']}"
    )
