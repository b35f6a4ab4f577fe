"""The policy file of a release gate: rules in a short YAML file, checked before anything is compared."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from analysis.measure.comparison import ALL
from curricula.validation import validated
from curricula.yaml_files import read
from userrl_core.errors import ConfigError
from userrl_core.settings import Settings
from userrl_core.suggest import nearest

COSTS = ("dollars", "tokens", "turns", "seconds")
"""Metrics of a cost rule: per conversation, of the agent's own model calls."""
MOST = 1e9
"""Largest number of a rule, and largest cap."""
_METRIC = re.compile(r"pass\^[1-9]\d?")
_NUMBER = r"(\d*\.?\d+)"
_FORMS = {
    "not_worse": re.compile(rf"not worse by more than {_NUMBER}"),
    "better": re.compile(rf"better(?: by more than {_NUMBER})?"),
    "collapsed": re.compile(rf"collapsed share at most {_NUMBER}"),
    "cost": re.compile(rf"cost at most {_NUMBER} ?x"),
}
FORMS = (
    "not worse by more than .02",
    "better",
    "better by more than .02",
    "collapsed share at most .1",
    "cost at most 1.2 x",
)
"""The forms of a rule, with example numbers."""

Undecided = Literal["inconclusive", "fail", "pass"]


class GateRule(Settings):
    """One rule of a gate. It is about B, the candidate, compared with A, the baseline."""

    rule: str
    """One of the forms: not worse by more than .02, better, collapsed share at most .1, cost at most 1.2 x."""

    metric: str = ""
    """score (the default), pass^k, or for a cost rule dollars (its default), tokens, turns or seconds per conversation."""

    cap: float | None = Field(None, gt=0, le=MOST)
    """For a cost rule: the largest possible cost of one conversation. By default the horizon for turns, and the recipe's token
    limit for tokens of our checkpoints. Dollars, seconds and imported conversations have no default."""

    population: str = ALL
    """all tasks, or a gym or tier as `userrl compare` names its rows."""

    level: float | None = Field(None, gt=0, le=0.25)
    """Largest chance that B passes although it breaks the rule; by default the level of the policy."""

    undecided: Undecided | None = None
    """The answer that an undecided rule counts as. Default: the policy's."""

    @field_validator("rule")
    @classmethod
    def _known_rule(cls, text: str) -> str:
        text = " ".join(text.split())
        if not any(form.fullmatch(text) for form in _FORMS.values()):
            raise ValueError(f"'{text}' is not a rule{nearest(text, FORMS)}. Write one of: {'; '.join(FORMS)}")
        return text

    @model_validator(mode="after")
    def _fitting_metric(self) -> GateRule:
        kind, metric = self.kind, self.metric
        if kind == "collapsed" and (metric or self.population != ALL):
            raise ValueError("a collapsed share is about whole runs. Omit metric and population")
        metrics = COSTS if kind == "cost" else ("score", "pass^1", "pass^4")
        if metric and metric not in metrics and not (kind != "cost" and _METRIC.fullmatch(metric)):
            metrics_text = ", ".join(COSTS) if kind == "cost" else "score, pass^1, pass^2, ..."
            raise ValueError(
                f"'{metric}' is not a metric of '{self.rule}'{nearest(metric, metrics)}. Use one of {metrics_text}"
            )
        if kind == "collapsed" and not 0 < self.number < 1:
            raise ValueError("a share is between 0 and 1")
        if kind == "cost" and self.number == 0:
            raise ValueError("a cost cannot be at most 0 x")
        if self.number > MOST:
            raise ValueError(f"the number of a rule is at most {MOST:g}")
        if kind != "cost" and self.cap is not None:
            raise ValueError(f"a cap belongs to a cost rule, not to '{self.rule}'")
        return self

    @property
    def kind(self) -> str:
        """The form of the rule: not_worse, better, collapsed or cost."""
        return next(kind for kind, form in _FORMS.items() if form.fullmatch(self.rule))

    @property
    def number(self) -> float:
        """The number in the rule; 0 for ``better``."""
        match = _FORMS[self.kind].fullmatch(self.rule)
        return float(match[1] or 0) if match else 0.0

    @property
    def measured(self) -> str:
        """The metric, with its default."""
        return self.metric or {"cost": "dollars", "collapsed": "collapsed seeds"}.get(self.kind, "score")

    @property
    def title(self) -> str:
        """The rule with its metric and population, on one line."""
        where = "" if self.kind == "collapsed" else f"{self.measured}, {self.population}: "
        return f"{where}{self.rule}"


class CollapsedLimit(Settings):
    """The limit of the share of collapsed runs."""

    at_most: float = Field(ge=0.001, lt=1)
    """Largest share of B's seeds whose runs collapse."""


class GatePolicy(Settings):
    """The rules that a candidate must keep."""

    rules: tuple[GateRule, ...] = ()
    """The rules. All must pass."""

    collapsed: CollapsedLimit | None = None
    """Limits the share of collapsed seeds too, as the rule ``collapsed share at most`` does."""

    cluster: str | None = None
    """What joins tasks that are variants of one task: gym, tier, source, id_stem, or a field of the task such as family. The
    clusters are then the unit, instead of the tasks."""

    checkpoint: Literal["best", "last"] = "best"
    """The compared checkpoint of a training run: the best on validation, or the last step."""

    level: float = Field(0.05, gt=0, le=0.25)
    """Largest chance that a candidate passes although it breaks a rule."""

    undecided: Undecided = "inconclusive"
    """The answer that a rule counts as if the data cannot decide."""

    scores: tuple[float, float] = (0.0, 1.0)
    """Smallest and largest possible score of a task. The limits of differences depend on this range."""

    @model_validator(mode="after")
    def _rules_and_range(self) -> GatePolicy:
        if not self.all_rules:
            raise ValueError("rules: a gate needs at least one rule")
        if not self.scores[0] < self.scores[1]:
            raise ValueError("scores: give the smallest possible score, then the largest")
        return self

    @property
    def all_rules(self) -> tuple[GateRule, ...]:
        """The rules, with the one that `collapsed` states."""
        if self.collapsed is None:
            return self.rules
        form = f"collapsed share at most {self.collapsed.at_most:.12f}".rstrip("0")
        return (*self.rules, GateRule.model_validate({"rule": form}))

    def level_of(self, rule: GateRule) -> float:
        """Return the level of one rule."""
        return self.level if rule.level is None else rule.level

    def undecided_of(self, rule: GateRule) -> Undecided:
        """Return what the rule counts as if the data cannot decide."""
        return rule.undecided or self.undecided


def read_policy(source: str | Path | Mapping[str, Any] | GatePolicy) -> GatePolicy:
    """Return the policy of a YAML file or a mapping. Raises ConfigError with one sentence that names the key."""
    if isinstance(source, GatePolicy):
        return source
    where = "the policy"
    if isinstance(source, Mapping):
        values = source
    else:
        where = f"the policy {source}"
        try:
            values = read(Path(source))
        except ConfigError as error:
            raise ConfigError("gate.bad_policy", f"The policy {error}") from None
    unknown = next((str(key) for key in values if key not in GatePolicy.model_fields), None)
    if unknown is not None:
        known_keys = GatePolicy.model_fields
        raise ConfigError(
            "gate.bad_policy",
            f"{where[0].upper()}{where[1:]}: unknown key '{unknown}'{nearest(unknown, known_keys)}; "
            f"known here: {', '.join(sorted(known_keys))}.",
        )
    try:
        return validated(GatePolicy, {str(key): value for key, value in values.items()}, where)
    except ConfigError as error:
        raise ConfigError("gate.bad_policy", str(error)) from None
