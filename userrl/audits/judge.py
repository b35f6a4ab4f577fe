"""A turn judge on stored conversations, compared with the rule judge and with itself.

Nothing is trained or stored. The audit shows the judge's reliability and cost.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from analysis.measure.readings import Agreement, agreement
from curricula import Recipe
from curricula.load import from_resolved
from curricula.validation import validated
from userrl.machine.foreign_text import plain
from userrl.machine.home import quiet_process
from userrl.machine.notebook import Printed, Tabular
from userrl.run.readiness import refuse_missing_key
from userrl.run.run import find
from userrl.run.stored import stored_conversations
from userrl.run.tasks import gym_config, judge_of
from userrl_core.errors import ConfigError
from userrl_core.judging.judge import TurnJudge, is_judged, judge_server
from userrl_core.records import Judgement, Trajectory, total_price
from userrl_core.rewards.judge import JudgeConfig
from userrl_core.served.client import close_clients


@dataclass(frozen=True, slots=True)
class JudgeAudit(Printed, Tabular):
    """The agreement of a turn judge with the rule judge and with itself, and the cost of its calls.

    conversations, readings: numbers of judged conversations, and of judgements. marked: readings with usable marks and rule
    marks. price: in dollars, None if the price of a call is unknown. errors: calls without a usable reply, by reason.
    """

    run: str
    judge: str
    phase: str
    conversations: int
    readings: int
    marked: int
    categories: dict[str, int]
    with_rule: Agreement
    with_itself: Agreement
    price: float | None
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    errors: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """Return the audit as JSON."""
        return {**asdict(self), "with_rule": _fields(self.with_rule), "with_itself": _fields(self.with_itself)}

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return the agreement: one row with the rule judge and one with itself."""
        return [
            {"run": self.run, "judge": self.judge, "beside": name, **_fields(agreement)}
            for name, agreement in (("the rule judge", self.with_rule), ("itself", self.with_itself))
        ]

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def audit_judge(
    run: str,
    judge: str | Mapping[str, Any] | None = None,
    *,
    repeats: int = 2,
    phase: str = "train",
    most: int = 100,
) -> JudgeAudit:
    """Compare a turn judge with the rule judge, and with its own repeated readings of stored conversations.

    judge: ``rule``, a model's name, or the recipe's judge keys; by default the run's own. phase: train, validate, evaluate or
    distill. most: maximum number of conversations, spread over the run. Nothing is stored. Raises ConfigError with one
    sentence.
    """
    quiet_process()
    stored_run = find(run)
    recipe = from_resolved(stored_run.info.resolved)
    turn_judge = TurnJudge(_config(judge, recipe), gym_config(recipe, evaluation=phase == "evaluate"))
    stored = [
        trajectory
        for trajectory in stored_conversations(stored_run.id, phase, None)
        if trajectory.turns and is_judged(trajectory.task.gym)
    ]
    if not stored:
        raise ConfigError(
            "judge.no_gold_calls",
            f"Run {stored_run.id} has no finished conversation of phase {phase} whose turns can be judged. Its gym "
            "needs gold calls, as tau has.",
        )
    chosen = [stored[i * len(stored) // min(most, len(stored))] for i in range(min(most, len(stored)))]
    return _audited(stored_run.id, turn_judge.config.model, phase, asyncio.run(_read(turn_judge, chosen, repeats)))


def _config(chosen_judge: str | Mapping[str, Any] | None, recipe: Recipe) -> JudgeConfig:
    if chosen_judge is not None:
        keys = {"model": chosen_judge} if isinstance(chosen_judge, str) else dict(chosen_judge)
        recipe = recipe.model_copy(update={"judge": validated(JudgeConfig, keys, "--judge")})
    config = judge_of(recipe)
    if config is None:
        raise ConfigError("judge.none", "The run's recipe has no judge. Name one with --judge.")
    if (server := judge_server(config)) is not None:
        refuse_missing_key(server)
    return config


async def _read(judge: TurnJudge, stored: Sequence[Trajectory], repeats: int) -> list[list[Judgement]]:
    """Return all readings, [conversations][repeats]. The server's own limit bounds the parallel requests."""
    try:
        return [
            [reading for reading in readings if reading is not None]
            for readings in await asyncio.gather(
                *(asyncio.gather(*(judge.judge(trajectory) for _ in range(repeats))) for trajectory in stored)
            )
        ]
    finally:
        await close_clients()


def _audited(run: str, model: str, phase: str, readings: Sequence[Sequence[Judgement]]) -> JudgeAudit:
    every = [reading for repeats in readings for reading in repeats]
    with_rule = [(r.scores, r.rule_scores) for r in every if r.scores is not None and r.rule_scores is not None]
    with_itself = [
        (first.scores, second.scores)
        for repeats in readings
        for first, second in itertools.combinations(repeats, 2)
        if first.scores is not None and second.scores is not None
    ]
    calls = [call for reading in every for call in reading.calls]
    return JudgeAudit(
        run=run,
        judge=model,
        phase=phase,
        conversations=len(readings),
        readings=len(every),
        marked=len(with_rule),
        categories=dict(Counter(reading.category for reading in every)),
        with_rule=agreement(with_rule),
        with_itself=agreement(with_itself),
        price=total_price(call.price for call in calls),
        prompt_tokens=sum(call.prompt_tokens for call in calls),
        completion_tokens=sum(call.completion_tokens for call in calls),
        seconds=sum(call.seconds for call in calls),
        errors=dict(Counter(call.error for call in calls if call.error)),
    )


def _fields(agreement: Agreement) -> dict[str, Any]:
    return {**asdict(agreement), "share": agreement.share}


def _lines(audit: JudgeAudit) -> Iterator[str]:
    yield (
        f"{plain(audit.judge)} on {audit.conversations} conversations of {audit.run} ({audit.phase}), "
        f"{audit.readings} readings, {audit.readings - audit.marked} without usable marks"
    )
    yield f"with the rule judge: {_in_words(audit.with_rule, plain(audit.judge), 'the rule judge')}"
    yield f"with itself:         {_in_words(audit.with_itself, 'the first reading', 'the second')}"
    yield "categories: " + ", ".join(f"{kind} {count}" for kind, count in sorted(audit.categories.items()))
    price = "price unknown" if audit.price is None else f"${audit.price:.4f}"
    tokens = f"{audit.prompt_tokens} prompt tokens and {audit.completion_tokens} completion tokens"
    yield f"cost: {price}, {tokens}, {audit.seconds:.1f} s of calls"
    for error, count in audit.errors.items():
        yield f"  no usable reply ({count} times): {plain(error)}"


def _in_words(agreement: Agreement, first: str, second: str) -> str:
    if agreement.share is None:
        return "nothing to compare"
    distance = "" if agreement.apart is None else f" ({agreement.apart:.1f} turns apart on average)"
    return (
        f"same mark on {agreement.share:.1%} of {agreement.turns} turns; -1 at the same turn {agreement.same_turn} "
        f"of {agreement.both} times{distance}; -1 only from {first}: {agreement.only_first}, "
        f"only from {second}: {agreement.only_second}"
    )
