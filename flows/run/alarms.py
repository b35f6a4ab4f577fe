"""Collapse alarms: signs in the warehouse that a training run is about to fail, seen while it trains.

Users of the released code report runs whose replies shrink from 2,960 to 315 tokens before the score drops to zero. Each
alarm is a rule over a series of numbers per step; what it does (warn, pause or stop) is the recipe's ``alarms`` block:
``alarms: {reply_length: stop, kl: {threshold: 1.0, action: warn}, entropy: off}``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import duckdb

from flows.run.job import StageJob
from userrl_core.errors import ConfigError, TrainingError, UserRLError
from userrl_core.suggest import nearest
from warehouse import open_warehouse

Action = Literal["warn", "pause", "stop", "off"]
ACTIONS: tuple[Action, ...] = get_args(Action)
EVERY_SECONDS = 10.0
WINDOW = 3
"""Steps that are averaged; a single odd step trips nothing."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One alarm. Trips when the window's mean is ``below`` or ``above`` the threshold, times its best window if relative."""

    what: str
    threshold: float
    side: Literal["below", "above"]
    relative: bool = False


RULES: Mapping[str, Rule] = {
    "reply_length": Rule("replies are less than half as long as they were", 0.5, "below", relative=True),
    "format_valid": Rule("too few replies hold a readable call", 0.8, "below"),
    "entropy": Rule("the policy hardly varies any more (entropy in nats)", 0.001, "below"),
    "kl": Rule("the policy has moved far from where it started (KL in nats)", 2.0, "above"),
    "zero_variance": Rule("nearly all groups have equal scores, so nothing is learnt", 0.95, "above"),
    "null_reward": Rule("too many trajectories could not be scored", 0.1, "above"),
    "user_errors": Rule("too many calls of the user model fail", 0.1, "above"),
}

SERIES = """
with t as (select step, group_id, admitted, score_r2g, traj_id from trajectories where run_id = $run and phase = 'train'),
 groups as (select step, group_id, coalesce(stddev_pop(score_r2g), 0) < 1e-6 as flat from t where admitted group by all),
 replies as (select step, avg(completion_tokens) as reply_length, avg(((flags & 1) = 0)::int) as format_valid
             from turns where run_id = $run and phase = 'train' group by step),
 scored as (select step, avg((not admitted)::int) as null_reward from t group by step),
 varied as (select step, avg(flat::int) as zero_variance from groups group by step),
 numbers as (select step, max(value) filter (where name = 'policy/entropy/mean') as entropy,
                    max(value) filter (where name = 'policy/kl_reference/mean') as kl
             from metrics where run_id = $run group by step),
 calls as (select step, avg((error is not null)::int) as user_errors
           from model_calls where run_id = $run and phase = 'train' and role = 'user' group by step)
select step, reply_length, format_valid, entropy, kl, zero_variance, null_reward, user_errors
from replies left join scored using (step) left join varied using (step) left join numbers using (step)
     left join calls using (step)
where step > 0 order by step
"""


@dataclass(frozen=True, slots=True)
class Alarm:
    """One that tripped."""

    name: str
    step: int
    value: float
    bound: float
    action: Action

    def sentence(self) -> str:
        """For a log line and a report."""
        return f"Alarm {self.name} at step {self.step}: {RULES[self.name].what} ({self.value:.3g}, bound {self.bound:.3g})."


def alarm_rules(alarms: Mapping[str, Any]) -> dict[str, tuple[Rule, Action]]:
    """The recipe's alarms with defaults filled in. Raises ConfigError for an unknown alarm or action."""
    for name in alarms:
        if name not in RULES:
            raise ConfigError(f"There is no alarm '{name}'{nearest(name, RULES)}; there are {', '.join(RULES)}.")
    rules: dict[str, tuple[Rule, Action]] = {}
    for name, rule in RULES.items():
        given = alarms.get(name, {})
        given = {"action": given} if not isinstance(given, Mapping) else given
        # YAML reads a bare `off` as false.
        chosen = "off" if given.get("action") is False else given.get("action", "warn")
        action = next((known for known in ACTIONS if known == chosen), None)
        if action is None:
            raise ConfigError(f"alarms.{name} does '{chosen}'; it can be {', '.join(ACTIONS)}.")
        threshold = float(given.get("threshold", rule.threshold))
        rules[name] = (Rule(rule.what, threshold, rule.side, rule.relative), action)
    return rules


def tripped(rows: Sequence[Mapping[str, Any]], alarms: Mapping[str, tuple[Rule, Action]]) -> list[Alarm]:
    """Alarms that sound at the last of these steps. rows: one mapping per step with ``step`` and a number per alarm."""
    sounding = []
    for name, (rule, action) in alarms.items():
        series = [float(row[name]) for row in rows if row.get(name) is not None]
        if action == "off" or len(series) < WINDOW:
            continue
        means = [sum(series[i : i + WINDOW]) / WINDOW for i in range(len(series) - WINDOW + 1)]
        bound = rule.threshold * max(means) if rule.relative else rule.threshold
        if means[-1] < bound if rule.side == "below" else means[-1] > bound:
            sounding.append(Alarm(name, int(rows[-1]["step"]), means[-1], bound, action))
    return sounding


class AlarmWatch:
    """Looks at the warehouse now and then while a stage trains. Called with every progress line."""

    def __init__(self, job: StageJob, say: Callable[..., None]) -> None:
        self._job = job
        self._say = say
        self._alarms = alarm_rules(job.recipe.alarms)
        self._due = time.monotonic() + EVERY_SECONDS
        self._sounded: set[str] = set()

    def __call__(self) -> None:
        """Raises TrainingError for an alarm that stops the run, or pauses it until it is started again."""
        if self._job.kind != "rl" or time.monotonic() < self._due:
            return
        self._due = time.monotonic() + EVERY_SECONDS
        for alarm in self._look():
            if alarm.name in self._sounded:
                continue
            self._sounded.add(alarm.name)
            self._say(alarm.sentence())
            if alarm.action in ("stop", "pause"):
                how = "stopped the run" if alarm.action == "stop" else "paused the run; start it again to go on"
                raise TrainingError(f"{alarm.sentence()} It {how}.")

    def _look(self) -> list[Alarm]:
        try:
            with open_warehouse(self._job.warehouse) as warehouse:
                result = warehouse.sql(SERIES, run=self._job.run_id)
                rows = [dict(zip(result.columns, row, strict=True)) for row in result.fetchall()]
        except (UserRLError, duckdb.Error, OSError) as error:
            self._say("the alarms could not look at the warehouse: %s", error)
            return []
        return tripped(rows, self._alarms)
