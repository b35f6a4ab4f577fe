"""The result card of a run: the answer, held-out scores, differences, alarms and cost. It comes first in every report.

The card is data, stored in ``report.json``. `card_blocks` draws it for a terminal, a page, Markdown and HTML.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from userrl.reports.document import Block, Code, Items, Line, TableBlock, Text
from userrl.run.alarms import remedy
from userrl.run.ending import COLLAPSED, STARTS, ByTask, endings, last_step
from userrl_core.measure.checkpoints import difference_interval, mean_score
from userrl_core.measure.interval import Interval
from userrl_core.number_format import NULL, number, with_limits
from userrl_core.records import branch_of
from warehouse import Warehouse

if TYPE_CHECKING:
    from userrl.reports.run_report import Reached, RunReport

NAMES = {"SFT": "SFT, the cold start", "start": "start"}
"""Names of the policies from which RL starts."""

HORIZON_CLAIM = "short-plateaus"
"""The claim that compares a short horizon with a longer one over many seeds."""

_ALARM = re.compile(r"Alarm (\w+) at step (\d+)(?: of (\w+))?:")


class _Data(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class CardInterval(_Data):
    """A mean or a difference over tasks with its 95 % limits. low, high: None for a single task."""

    estimate: float
    low: float | None
    high: float | None
    tasks: int

    def __str__(self) -> str:
        return with_limits(self._limits)

    @property
    def signed(self) -> str:
        """The difference with a sign."""
        return with_limits(self._limits, sign=True)

    @property
    def _limits(self) -> Interval:
        low, high = (math.nan if limit is None else limit for limit in (self.low, self.high))
        return Interval(self.estimate, low, high, self.tasks, "")


class CardRow(_Data):
    """The scores of one policy. gain: the difference to the cold start, paired by task."""

    policy: str
    step: int | None = None
    validation: float | None = None
    score: CardInterval | None = None
    gain: CardInterval | None = None


class CardOutcome(_Data):
    """The outcome of RL, or of one branch, in a word and in a sentence."""

    branch: str
    outcome: str
    sentence: str


class CardDifference(_Data):
    """The last step of one branch minus the last step of another, paired by task."""

    a: str
    b: str
    difference: CardInterval


class CardAlarm(_Data):
    """An alarm with its branch ("" for stages before the split) and what to do."""

    sentence: str
    branch: str = ""
    remedy: str = ""


class CardCost(_Data):
    """The cost of all stages. tokens: sampled in training. dollars: of served models, None if none was called."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    tokens: int = 0
    dollars: float | None = None
    unpriced_calls: int = 0


class ResultCard(_Data):
    """The result of a run, in the order in which a reader asks for it."""

    start: str = ""
    """Name of the policy from which RL started."""
    test_tasks: int | None = None
    horizon: int | None = None
    rows: tuple[CardRow, ...] = ()
    outcomes: tuple[CardOutcome, ...] = ()
    between: tuple[CardDifference, ...] = ()
    by_horizon: bool = False
    """Whether the branches end at different horizons."""
    alarms: tuple[CardAlarm, ...] = ()
    cost: CardCost = Field(default_factory=CardCost)


def with_card(report: RunReport, warehouse: Warehouse) -> RunReport:
    """Return the report with its card. For a report of an earlier version, the card is made from the warehouse."""
    return report if report.card is not None else report.model_copy(update={"card": make_card(report, warehouse)})


def make_card(report: RunReport, warehouse: Warehouse) -> ResultCard:
    """Make the card of a run from its report and the warehouse."""
    scores = _scores(warehouse, report.run)
    reached: dict[str, tuple[Reached, Reached]] = dict(report.branches)
    if report.best is not None and report.last is not None:
        reached["RL"] = (report.best, report.last)
    start = next((name for name in STARTS if name in scores), "")
    final = {label: scores.get(last_step(label)) or scores.get(label, {}) for label in reached}
    return ResultCard(
        start=start,
        test_tasks=report.test_tasks,
        horizon=report.horizon,
        rows=tuple(_rows(report, warehouse, scores, reached, start)),
        outcomes=tuple(
            CardOutcome(branch=ending.branch, outcome=ending.word, sentence=ending.sentence())
            for ending in sorted(endings(warehouse, report.run).get(report.run, []), key=lambda end: end.branch)
        ),
        between=tuple(
            CardDifference(a=a, b=b, difference=difference)
            for a, b in combinations(report.branches, 2)
            if (difference := _difference(final[a], final[b])) is not None
        ),
        by_horizon=len(_last_horizons(warehouse, report.run, [*report.branches])) > 1,
        alarms=tuple(_alarms(report.alarms, warehouse, report.run)),
        cost=_cost(report, warehouse),
    )


def card_blocks(card: ResultCard) -> Iterator[Block]:
    """Yield the blocks of a card. The first one is the answer."""
    answer = _answer(card)
    if answer:
        fallen = len(card.outcomes) == 1 and card.outcomes[0].outcome == COLLAPSED
        yield Text(answer, strong=True, alarm=fallen)
    sentences = [outcome.sentence for outcome in card.outcomes]
    told = () if card.between or len(sentences) > 1 else sentences
    for outcome in card.outcomes:
        if outcome.outcome == COLLAPSED and outcome.sentence not in told:
            yield Text(outcome.sentence, strong=True, alarm=True)
    for alarm in card.alarms:
        branch = f" Branch {alarm.branch}." if alarm.branch and f" of {alarm.branch}:" not in alarm.sentence else ""
        yield Text(f"{alarm.sentence}{branch}{alarm.remedy and f' {alarm.remedy}'}", strong=True, alarm=True)
    if card.rows:
        yield _table(card)
    items: list[Line] = [
        outcome.sentence for outcome in card.outcomes if outcome.outcome != COLLAPSED and outcome.sentence not in told
    ]
    if len(card.between) > 1:
        items += [_between(difference) for difference in card.between]
    yield Items((*items, _cost_line(card.cost)))


def _answer(card: ResultCard) -> Line:
    """Return the answer to the run's own question: which branch is better, or whether RL improved on the cold start."""
    if card.between:
        return _better_branch(card)
    if len(card.outcomes) == 1:
        return card.outcomes[0].sentence
    if card.outcomes:
        known = [f"{outcome.branch}: {outcome.outcome}" for outcome in card.outcomes if outcome.outcome]
        return f"{'; '.join(known)}." if known else ""
    evaluated = [row for row in card.rows if row.score is not None and row.policy != "demonstrator"]
    if len(evaluated) == 1 and evaluated[0].score is not None:
        return f"{evaluated[0].policy} scores {evaluated[0].score} on {evaluated[0].score.tasks} held-out tasks."
    return ""


def _better_branch(card: ResultCard) -> Line:
    """Return the answer of a fork: the difference that is clearest, and what one seed cannot tell."""

    def clear(between: CardDifference) -> float:
        return abs(between.difference.estimate)

    clearest = max(card.between, key=clear)
    a, b, difference = Code(clearest.a), Code(clearest.b), clearest.difference
    low, high = (math.nan if limit is None else limit for limit in (difference.low, difference.high))
    if low > 0:
        words: tuple[Line, ...] = ("Branch ", b, " beat branch ", a)
    elif high < 0:
        words = ("Branch ", a, " beat branch ", b)
    else:
        words = ("Branches ", b, " and ", a, " do not differ clearly")
    reproduce = f"userrl reproduce {HORIZON_CLAIM if card.by_horizon else '--list'}"
    return (
        *_flat(words),
        ": ",
        *_flat((_between(clearest),)),
        " One seed; ",
        Code(reproduce),
        " compares schedules over seeds." if card.by_horizon else " shows what is compared over seeds.",
    )


def _flat(lines: Sequence[Line]) -> Iterator[str | Code]:
    for line in lines:
        for part in line if isinstance(line, tuple) else (line,):
            assert isinstance(part, str | Code)
            yield part


def _between(between: CardDifference) -> Line:
    tasks = f", same {between.difference.tasks} tasks: {between.difference.signed} at the last step."
    return (Code(between.b), " − ", Code(between.a), tasks)


def _table(card: ResultCard) -> TableBlock:
    gain = any(row.gain for row in card.rows)
    steps = any(row.step is not None for row in card.rows)
    validation = any(row.validation is not None for row in card.rows)
    head = ["policy"]
    head += [name for name, shown in (("step", steps), ("validation", validation)) if shown]
    head += ["held-out [95 %]", *([f"minus {card.start} [95 %]"] if gain else [])]
    rows = []
    for row in card.rows:
        cells: list[Line] = [row.policy]
        cells += [NULL if row.step is None else str(row.step)] if steps else []
        cells += [number(row.validation)] if validation else []
        cells += [NULL if row.score is None else str(row.score)]
        cells += [NULL if row.gain is None else row.gain.signed] if gain else []
        rows.append(tuple(cells))
    tasks = "" if card.test_tasks is None else f"{card.test_tasks} held-out tasks, horizon {card.horizon}. "
    paired = " Differences are paired by task." if gain else ""
    return TableBlock(tuple(head), tuple(rows), f"{tasks}Intervals over tasks.{paired}")


def _cost_line(cost: CardCost) -> str:
    served = "no served model was called" if cost.dollars is None else f"${cost.dollars:.2f} of model calls"
    unpriced = f" ({cost.unpriced_calls:,} calls without a price)" if cost.unpriced_calls else ""
    tokens = f", {cost.tokens:,} tokens sampled in training" if cost.tokens else ""
    return f"Cost: {cost.seconds:,.0f} s of stages, {cost.cpu_seconds:,.0f} CPU seconds{tokens}; {served}{unpriced}."


def _rows(
    report: RunReport,
    warehouse: Warehouse,
    scores: Mapping[str, ByTask],
    reached: Mapping[str, tuple[Reached, Reached]],
    start: str,
) -> Iterator[CardRow]:
    baseline = scores.get(start, {})

    def row(name: str, policy: str, step: int | None = None, validation: float | None = None) -> CardRow:
        gain = None if policy in (*STARTS, "demonstrator") else _difference(baseline, scores.get(policy, {}))
        return CardRow(policy=name, step=step, validation=validation, score=_mean(scores.get(policy, {})), gain=gain)

    shown = set()
    for policy in scores:
        if policy.startswith("scripted"):
            yield row("demonstrator", policy)
            shown.add(policy)
    at_start = _start_validation(warehouse, report.run)
    for name in STARTS[::-1]:
        if name in scores:
            trained = bool(reached) and name == start
            yield row(NAMES[name], name, 0 if trained else None, at_start if trained else None)
            shown.add(name)
    for label, (best, last) in reached.items():
        if best.step == last.step:
            yield row(f"{label}, best and last", label, best.step, best.validation)
        else:
            yield row(f"{label}, best", label, best.step, best.validation)
            yield row(f"{label}, last", last_step(label), last.step, last.validation)
        shown |= {label, last_step(label)}
    for policy in scores:
        if policy not in shown:
            yield row(policy, policy)


def _scores(warehouse: Warehouse, run: str) -> dict[str, dict[str, Sequence[float]]]:
    """Return the held-out scores by policy and task."""
    text = "SELECT policy, concat_ws('/', gym, task_id, task_version), scores FROM task_scores(run := $run)"
    scores: dict[str, dict[str, Sequence[float]]] = {}
    for policy, task, attempts in warehouse.sql(text, run=run).fetchall():
        scores.setdefault(policy, {})[task] = attempts
    return scores


def _mean(scores: ByTask) -> CardInterval | None:
    return _stored(mean_score([scores[task] for task in sorted(scores)])) if scores else None


def _difference(a: ByTask, b: ByTask) -> CardInterval | None:
    tasks = sorted(a.keys() & b.keys())
    return _stored(difference_interval([a[task] for task in tasks], [b[task] for task in tasks])) if tasks else None


def _stored(interval: Interval) -> CardInterval:
    low, high = (limit if math.isfinite(limit) else None for limit in (interval.low, interval.high))
    return CardInterval(estimate=interval.estimate, low=low, high=high, tasks=interval.units)


def _start_validation(warehouse: Warehouse, run: str) -> float | None:
    text = "SELECT avg(score) FROM trajectories WHERE run_id = $run AND phase = 'validate' AND admitted AND step = 0"
    value: float | None = warehouse.sql(text, run=run).fetchall()[0][0]
    return value


def _last_horizons(warehouse: Warehouse, run: str, branches: Sequence[str]) -> set[int]:
    """Return the horizons at which the branches end."""
    text = "SELECT stage, step, max(horizon) FROM trajectories WHERE run_id = $run AND phase = 'train' GROUP BY ALL"
    last: dict[str, tuple[int, int]] = {}
    for stage, step, horizon in warehouse.sql(text, run=run).fetchall():
        if (branch := branch_of(stage or "")) in branches:
            last[branch] = max(last.get(branch, (0, 0)), (step, horizon))
    return {horizon for _, horizon in last.values()}


def _alarms(sentences: Sequence[str], warehouse: Warehouse, run: str) -> Iterator[CardAlarm]:
    """Yield the alarms. An alarm of an earlier version does not name its branch, but its event does."""
    text = "SELECT fields->>'alarm', step, any_value(stage) FROM events WHERE kind = 'alarm' AND run_id = $run GROUP BY ALL"
    stages = {(name, step): stage for name, step, stage in warehouse.sql(text, run=run).fetchall()}
    for sentence in sentences:
        match = _ALARM.match(sentence)
        if match is None:
            yield CardAlarm(sentence=sentence)
            continue
        branch = match[3] or branch_of(stages.get((match[1], int(match[2]))) or "")
        yield CardAlarm(sentence=sentence, branch=branch, remedy=remedy(match[1]))


def _cost(report: RunReport, warehouse: Warehouse) -> CardCost:
    tokens = """SELECT coalesce(sum(completion_tokens), 0) FROM trajectories_all
                WHERE run_id = $run AND phase IN ('train', 'baseline')"""
    calls = "SELECT sum(dollars), sum(unpriced_calls), count(*) FROM cost(run := $run)"
    dollars, unpriced, served = warehouse.sql(calls, run=report.run).fetchall()[0]
    return CardCost(
        seconds=sum(report.seconds.values()),
        cpu_seconds=sum(report.cpu_seconds.values()),
        tokens=int(warehouse.sql(tokens, run=report.run).fetchall()[0][0]),
        dollars=float(dollars or 0.0) if served else None,
        unpriced_calls=int(unpriced or 0),
    )
