"""A release gate: the rules of a policy applied to a comparison of two sides, with an answer for each rule and for all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from xml.etree import ElementTree

import numpy as np
import polars as pl

from analysis.measure.bounded import CHANCE
from analysis.measure.comparison import ALL, ComparedSide, mean_by_seed, played_by, scores_of
from analysis.measure.gate import (
    Answer,
    Decision,
    Needed,
    difference_of_seeds,
    difference_of_tasks,
    ratio_of_seeds,
    ratio_of_tasks,
    share_at_most,
    untested,
)
from analysis.measure.interval import finite
from userrl.comparison.gate.clusters import ID_STEM, with_clusters
from userrl.comparison.gate.costs import largest_cost, unknown_costs, with_costs, without_limit
from userrl.comparison.gate.policy import GatePolicy, GateRule
from userrl.comparison.report import ComparisonReport, different_settings, settings_by_gym, task_scores, withheld_gyms
from userrl.machine.foreign_text import plain
from userrl.reports.document import Block, Document, Heading, Items, Text
from userrl_core.errors import ConfigError
from userrl_core.number_format import number
from userrl_core.suggest import nearest
from warehouse import Warehouse

STATUS = {"PASS": 0, "FAIL": 3, "INCONCLUSIVE": 4}
"""Exit status of ``userrl compare --policy``. 1 and 2 are errors."""
_COUNTED: dict[str, Answer] = {"inconclusive": "INCONCLUSIVE", "fail": "FAIL", "pass": "PASS"}


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The answer to one rule.

    decision: from the data alone. answer: the decision, or what the policy counts an undecided rule as. left_out: tasks or
    seeds that only one side has. unit: tasks, clusters or seeds. about: the data of the unit, in words. cap: the largest cost
    of a conversation of B that the test assumes. withheld: gyms of the rule that are not tested, with the settings that differ.
    missing: tasks of A that B did not play, or of which a conversation of B has no score; over seeds, of each seed.
    """

    rule: GateRule
    level: float
    answer: Answer
    decision: Decision
    unit: str
    left_out: int = 0
    about: str = ""
    cap: float | None = None
    withheld: str = ""
    missing: int = 0

    @property
    def sentence(self) -> str:
        """The answer in words. For an undecided rule it says how much data would decide."""
        if self.decision.reason and math.isnan(self.decision.p_kept):
            text = f"not tested: {self.decision.reason}"
        elif self.rule.kind == "collapsed":
            text = self._of_share()
        elif self.rule.kind == "cost":
            text = self._of_cost()
        else:
            text = self._of_difference()
        if self.left_out:
            text += f"; {self.left_out} {self.unit.replace('clusters', 'tasks')} that only one side has are left out"
        if self.withheld:
            text += f"; not tested at gyms whose protocols differ ({self.withheld})"
            text += ", so all tasks do not pass" if self.decision.answer == "INCONCLUSIVE" else ""
        if self.missing:
            over = " (each seed counts)" if self.unit == "seeds" else ""
            text += f"; B has no score, or not all scores, of {self.missing} tasks of A{over}"
            text += ", so the rule does not pass" if self.decision.answer == "INCONCLUSIVE" else ""
            text += ". The same evaluation again plays only these"
        if self.answer != self.decision.answer:
            text += f"; the policy counts an undecided rule as {self.answer}"
        more = would_decide(self.decision.needed, self.decision.interval.units) if self.decision.needed else ""
        return f"{text}.{f' {more}' if more else ''}"

    @property
    def _sample(self) -> str:
        return f"(level {self.level:g}, {self.decision.interval.units} {self.unit}{self.about})"

    def _of_difference(self) -> str:
        interval, bound = self.decision.interval, number(self.decision.bound, sign=True)
        estimate, low, high = (number(value, sign=True) for value in (interval.estimate, interval.low, interval.high))
        if self.decision.answer == "PASS":
            return f"B − A is {estimate} and above {low}; the rule needs more than {bound} {self._sample}"
        if self.decision.answer == "FAIL":
            return f"B − A is {estimate} and below {high}; the rule needs more than {bound} {self._sample}"
        return f"B − A is {estimate}, between {low} and {high}; the rule needs more than {bound} {self._sample}"

    def _of_share(self) -> str:
        interval = self.decision.interval
        count = round(interval.estimate * interval.units)
        return (
            f"{count} of {interval.units} seeds of B collapsed, a share between {number(interval.low)} and "
            f"{number(interval.high)}; the rule allows {self.rule.number:g} (level {self.level:g})"
        )

    def _of_cost(self) -> str:
        interval = self.decision.interval
        cap = "" if self.cap is None else f"; a conversation of B has at most {self.cap:,g} {self.rule.measured}"
        if self.unit == "seeds":
            cap = "; this is Student's t, which rules out no rare runs that cost much more"
        return (
            f"B needs {interval.estimate:.2f} x the {self.rule.measured} of A in total, between {interval.low:.2f} and "
            f"{interval.high:.2f}; the rule allows {self.rule.number:g} x {self._sample}{cap}"
        )


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """The answers to all rules. notes: caveats about the comparison."""

    baseline: str
    candidate: str
    results: tuple[RuleResult, ...]
    notes: tuple[str, ...]

    @property
    def answer(self) -> Answer:
        """FAIL if a rule fails, else INCONCLUSIVE if one is undecided, else PASS."""
        answers = {result.answer for result in self.results}
        return "FAIL" if "FAIL" in answers else "INCONCLUSIVE" if "INCONCLUSIVE" in answers else "PASS"

    @property
    def exit_status(self) -> int:
        """The exit status of the command."""
        return STATUS[self.answer]

    def document(self) -> Document:
        """Return the gate as a page."""
        return Document(f"Gate: {self.candidate} compared with {self.baseline}", tuple(self.blocks()))

    def blocks(self) -> Iterator[Block]:
        """Yield the rules, the notes and, last, the answer."""
        yield Items(tuple(f"{result.answer}: {result.rule.title}. {result.sentence}" for result in self.results))
        yield Text(f"A is {self.baseline}, B is {self.candidate}.")
        if self.notes:
            yield Items(self.notes)
        yield Text(self.answer)

    def as_json(self) -> dict[str, Any]:
        """Return the answers with their numbers."""
        return {
            "answer": self.answer,
            "baseline": self.baseline,
            "candidate": self.candidate,
            "rules": [_as_json(result) for result in self.results],
            "notes": list(self.notes),
        }

    def junit(self) -> str:
        """Return JUnit XML: a test case for each rule. FAIL is a failure, INCONCLUSIVE an error."""
        answers = [result.answer for result in self.results]
        suite = ElementTree.Element(
            "testsuite",
            name="userrl compare",
            tests=str(len(answers)),
            failures=str(answers.count("FAIL")),
            errors=str(answers.count("INCONCLUSIVE")),
        )
        for result in self.results:
            classname = plain(f"{self.candidate} compared with {self.baseline}")
            case = ElementTree.SubElement(suite, "testcase", classname=classname, name=plain(result.rule.title))
            kind = {"FAIL": "failure", "INCONCLUSIVE": "error"}.get(result.answer, "system-out")
            element = ElementTree.SubElement(case, kind)
            element.text = plain(result.sentence)
            if kind != "system-out":
                element.set("message", plain(result.sentence))
                element.set("type", result.answer)
        ElementTree.indent(suite)
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suite, encoding="unicode")}\n'


def apply_gate(warehouse: Warehouse, report: ComparisonReport, policy: GatePolicy) -> GateAnswer:
    """Apply a policy to the comparison of a candidate B with a baseline A. Raises ConfigError with one sentence."""
    if len(report.sides) != 2:
        raise ConfigError("gate.bad_sides", f"A gate compares two sides of ours, not {len(report.sides)}.")
    a, b = report.sides
    if report.comparison.question == "none":
        raise ConfigError(
            "gate.bad_sides",
            "One side is a single run and the other a recipe over several seeds, so nothing is paired. Compare runs with "
            "runs, or recipes with recipes.",
        )
    table = task_scores(warehouse, report.sides).filter(pl.col("which") == policy.checkpoint)
    if policy.cluster is not None:
        table = with_clusters(warehouse, table, policy.cluster)
    results = tuple(_result(warehouse, report, policy, rule, table) for rule in policy.all_rules)
    return GateAnswer(a.name, b.name, results, tuple(_notes(warehouse, report, policy)))


def _result(
    warehouse: Warehouse, report: ComparisonReport, policy: GatePolicy, rule: GateRule, table: pl.DataFrame
) -> RuleResult:
    level = policy.level_of(rule)
    if rule.kind == "collapsed":
        decision = _collapsed(report, rule, level)
        return RuleResult(rule, level, _counted(policy, rule, decision), decision, "seeds")
    populations = _populations(table)
    if rule.population not in populations:
        raise ConfigError(
            "gate.bad_policy",
            f"The sides have no tasks '{rule.population}'{nearest(rule.population, populations)}. "
            f"A population is one of: {', '.join(populations)}.",
        )
    withheld = withheld_gyms(report)
    why, table = settings_by_gym(withheld), table.filter(~pl.col("gym").is_in(list(withheld)))
    if why and (table.filter("shared").is_empty() or rule.population not in _populations(table)):
        open_rule = untested(f"the protocols of the sides differ ({why})", rule.number)
        return RuleResult(rule, level, _counted(policy, rule, open_rule), open_rule, "tasks")
    measured = _measured(warehouse, policy, rule, table)
    pair = _of_seeds if report.comparison.question == "recipes" else _of_tasks
    result = pair(report, policy, rule, measured)
    result = replace(
        result, withheld=why if rule.population == ALL else "", missing=_missing(warehouse, report, policy, rule, table)
    )
    if (result.withheld or result.missing) and result.decision.answer == "PASS":
        # A rule does not pass on a part of its tasks: B may have failed at those without a score.
        result = replace(result, decision=replace(result.decision, answer="INCONCLUSIVE"))
    return replace(result, answer=_counted(policy, rule, result.decision))


def _missing(
    warehouse: Warehouse, report: ComparisonReport, policy: GatePolicy, rule: GateRule, table: pl.DataFrame
) -> int:
    """Count the tasks of A without a full score of B. For recipes each seed counts, of the seeds that both sides have."""
    a, b = report.sides
    a_scores, b_scores = (played_by(table, side, policy.checkpoint, rule.population) for side in (a, b))
    scored = b_scores.join(_unscored(warehouse, b, policy), on=["run_id", "task"], how="anti")
    if report.comparison.question == "checkpoints":
        return len(a_scores.join(scored, on="task", how="anti"))
    a_scores = a_scores.filter(pl.col("seed").is_in([run.seed for run in b.runs]))
    return len(a_scores.join(scored, on=["seed", "task"], how="anti"))


def _populations(table: pl.DataFrame) -> list[str]:
    tiers = {tier for tier in table["tier"] if not tier.endswith(" ")}
    return list(dict.fromkeys([ALL, *sorted(set(table["gym"])), *sorted(tiers)]))


def _counted(policy: GatePolicy, rule: GateRule, decision: Decision) -> Answer:
    """Return the decision, or what the policy counts an undecided rule as."""
    return _COUNTED[policy.undecided_of(rule)] if decision.answer == "INCONCLUSIVE" else decision.answer


def _collapsed(report: ComparisonReport, rule: GateRule, level: float) -> Decision:
    candidate = report.sides[1].name
    collapses = next(
        (side_collapses for side_collapses in report.comparison.collapses if side_collapses.side == candidate), None
    )
    if collapses is None:
        return untested(f"{candidate} was not trained by RL, so no seed of it can collapse", rule.number)
    return share_at_most(len(collapses.seeds), collapses.share.units, rule.number, level)


def _measured(warehouse: Warehouse, policy: GatePolicy, rule: GateRule, table: pl.DataFrame) -> pl.DataFrame:
    """Return the table with the rule's metric in `scores` (of the attempts) and `score` (their mean); null if unknown."""
    if rule.kind == "cost":
        return with_costs(warehouse, rule.measured, table)
    if not rule.measured.startswith("pass^"):
        low, high = policy.scores
        if not table["scores"].explode().is_between(low, high).all():
            raise ConfigError(
                "gate.score_range",
                f"A score lies outside [{low:g}, {high:g}]. Set scores: [smallest, largest] in the policy.",
            )
        return table
    k = int(rule.measured.removeprefix("pass^"))
    fewest = min((len(row) for row in table["scores"].to_list()), default=k)
    if fewest < k:
        raise ConfigError(
            "gate.bad_policy",
            f"{rule.measured} needs {k} attempts at every task; one has {fewest}. Evaluate with --attempts {k}.",
        )
    shares = [math.comb(list(row).count(1), k) / math.comb(len(row), k) for row in table["scores"].to_list()]
    return table.with_columns(score=pl.Series(shares), scores=pl.Series([[share] for share in shares]))


def _of_tasks(report: ComparisonReport, policy: GatePolicy, rule: GateRule, table: pl.DataFrame) -> RuleResult:
    level = policy.level_of(rule)
    a_scores, b_scores = (scores_of(table, side, policy.checkpoint, rule.population) for side in report.sides)
    both = a_scores.join(b_scores, on="task").sort("task")
    a_tasks, b_tasks = (
        set(played_by(table, side, policy.checkpoint, rule.population)["task"]) for side in report.sides
    )
    clusters = both["cluster"].to_list() if policy.cluster is not None else None
    result = partial(
        RuleResult,
        rule,
        level,
        "INCONCLUSIVE",
        unit="tasks" if clusters is None else "clusters",
        left_out=len(a_tasks ^ b_tasks),
        about="" if clusters is None else f" of {len(both)} tasks by {policy.cluster}",
    )
    if len(both) < 2:
        return result(decision=untested("the sides share fewer than two tasks", rule.number))
    if rule.kind != "cost":
        a, b = both["scores"].to_list(), both["scores_right"].to_list()
        averaged, reach = not rule.measured.startswith("pass^"), _reach(policy, rule)
        decision = difference_of_tasks(a, b, _bound(rule), level, reach=reach, averaged=averaged, clusters=clusters)
        return result(decision=decision)
    if (unknown := unknown_costs(both, rule)) is not None:
        return result(decision=unknown)
    a, b = both["score"].to_list(), both["score_right"].to_list()
    caps = largest_cost(both, rule, "A"), largest_cost(both, rule, "B")
    if caps[0] is None or caps[1] is None:
        return result(decision=without_limit(rule, a, b))
    decision = ratio_of_tasks(a, b, rule.number, level, (caps[0], caps[1]), clusters=clusters)
    return result(decision=decision, cap=caps[1])


def _of_seeds(report: ComparisonReport, policy: GatePolicy, rule: GateRule, table: pl.DataFrame) -> RuleResult:
    level = policy.level_of(rule)
    a_scores, b_scores = (scores_of(table, side, policy.checkpoint, rule.population) for side in report.sides)
    a_scores, b_scores = (
        a_scores.join(b_scores, on=["seed", "task"], how="semi"),
        b_scores.join(a_scores, on=["seed", "task"], how="semi"),
    )
    fallen = {collapse.side: set(collapse.seeds) for collapse in report.comparison.collapses}
    a, b = mean_by_seed(a_scores), mean_by_seed(b_scores)
    seeds = sorted(set(a) & set(b))
    compared_seeds = [seed for seed in seeds if not any(seed in collapsed for collapsed in fallen.values())]
    result = partial(
        RuleResult,
        rule,
        level,
        "INCONCLUSIVE",
        unit="seeds",
        left_out=len(set(a) ^ set(b)),
        about=f" whose runs held on both sides; {_collapses(report)}" if fallen else "",
    )
    if rule.kind != "cost":
        differences = np.array([b[seed] - a[seed] for seed in compared_seeds])
        return result(decision=difference_of_seeds(differences, _bound(rule), level, of=len(seeds)))
    if (unknown := unknown_costs(pl.concat([a_scores, b_scores]), rule)) is not None:
        return result(decision=unknown)
    of_a, of_b = (np.array([side[seed] for seed in compared_seeds]) for side in (a, b))
    return result(decision=ratio_of_seeds(of_a, of_b, rule.number, level, of=len(seeds)))


def _collapses(report: ComparisonReport) -> str:
    """Say how many seeds of each side collapsed."""
    letters = {side.name: letter for side, letter in zip(report.sides, "AB", strict=True)}
    counts = [
        f"{len(collapse.seeds)} of {collapse.share.units} of {letters[collapse.side]}"
        for collapse in report.comparison.collapses
    ]
    return f"collapsed and not counted: {', '.join(counts)}"


def _bound(rule: GateRule) -> float:
    return -rule.number if rule.kind == "not_worse" else rule.number


def _reach(policy: GatePolicy, rule: GateRule) -> float:
    return 1.0 if rule.measured.startswith("pass^") else policy.scores[1] - policy.scores[0]


def _notes(warehouse: Warehouse, report: ComparisonReport, policy: GatePolicy) -> Iterator[str]:
    if different := different_settings(report):
        yield f"Settings differ: {settings_by_gym(different)}."
    for side in report.sides:
        yield from side.left_out
        if count := len(_unscored(warehouse, side, policy)):
            yield f"{side.name}: {count} conversations have no score, so they count in no rule."
    kinds = {rule.kind for rule in policy.all_rules}
    if report.comparison.question == "checkpoints" and any(side.runs[0].branch is not None for side in report.sides):
        yield "Each side has one run: the answer is about these checkpoints, and not about their recipes."
    if (
        report.comparison.question == "checkpoints"
        and policy.cluster is None
        and (families := report.comparison.families)
    ):
        yield (
            f"{families}. Variants of one task are no independent tasks, so a rule passes too often: name a cluster in the "
            f"policy (a column or a field of the tasks), such as cluster: {ID_STEM}."
        )
    if report.comparison.question == "recipes":
        if "collapsed" not in kinds:
            yield (
                "The rules are about runs that held. No rule limits the share of collapsed seeds: add "
                "collapsed: {at_most: .1} to the policy."
            )
        if policy.cluster is not None or any(rule.cap is not None for rule in policy.rules):
            yield "Seeds are the unit of recipes, so cluster and cap are not used."


def _unscored(warehouse: Warehouse, side: ComparedSide, policy: GatePolicy) -> pl.DataFrame:
    """Return the run and task of each conversation of a side without a score."""
    pairs = [(run.run_id, run.best if policy.checkpoint == "best" else run.last) for run in side.runs]
    text = """SELECT run_id, concat_ws('/', gym, task_id, task_version) AS task FROM trajectories
              WHERE phase = 'evaluate' AND (NOT admitted OR score IS NULL) AND run_id = $run AND policy = $policy"""
    conversations: list[pl.DataFrame] = [warehouse.sql(text, run=run, policy=name).pl() for run, name in pairs]
    return pl.concat(conversations)


def would_decide(needed: Needed, present: int) -> str:
    """Say how many tasks, attempts or seeds would decide a rule, or that no number is known to."""
    amounts = []
    if needed.tasks is not None:
        amounts.append(f"{max(needed.tasks, present + 1):,} tasks instead of {present:,}")
    if needed.clusters is not None:
        amounts.append(f"{max(needed.clusters, present + 1):,} clusters instead of {present:,}")
    if needed.attempts is not None:
        amounts.append(f"{needed.attempts:,} attempts at each of these tasks")
    if needed.seeds is not None:
        amounts.append(f"{max(needed.seeds, present + 1):,} seeds instead of {present:,}")
    none = "No number of attempts at these tasks would." if needed.attempts_help is False else ""
    if not amounts:
        return none or "The estimate is so near the bound that no practical number would decide."
    text = f"About {', or '.join(amounts)} would decide with a chance of {CHANCE:.0%}."
    return f"{text} {none}".strip()


def _as_json(result: RuleResult) -> dict[str, Any]:
    decision, needed = result.decision, result.decision.needed
    return {
        "rule": result.rule.rule,
        "metric": result.rule.measured,
        "population": result.rule.population,
        "level": result.level,
        "answer": result.answer,
        "from_data": decision.answer,
        **decision.interval.as_json(),
        "bound": decision.bound,
        "p_pass": finite(decision.p_kept),
        "p_fail": finite(decision.p_broken),
        "units": decision.interval.units,
        "unit": result.unit,
        "method": decision.interval.method,
        "left_out": result.left_out,
        "missing": result.missing,
        "cap": result.cap,
        "needed": None
        if needed is None
        else {
            "tasks": needed.tasks,
            "clusters": needed.clusters,
            "attempts": needed.attempts,
            "seeds": needed.seeds,
        },
        "sentence": result.sentence,
    }


def gate_section(gate: GateAnswer) -> Sequence[Block]:
    """Return the gate as the last section of a comparison's page."""
    return (Heading("Gate"), *gate.blocks())
