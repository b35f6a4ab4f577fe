"""Collapse alarms: signs in the warehouse that a training run is about to fail, checked while it trains.

Users of the released code report replies that shrink from 2,960 to 315 tokens before the score drops to zero. Each alarm
is a rule over a series of numbers per step. The recipe's ``alarms`` block sets its action (warn, pause or stop):
``alarms: {reply_length: stop, kl: {threshold: 1.0, action: warn}, entropy: off}``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import duckdb

from analysis.measure.collapse import ValidationScores, fallen
from analysis.measure.collapse_rule import MIN_FALL
from curricula.validation import validated
from userrl_core.errors import ConfigError, TrainingError, UserRLError
from userrl_core.json_files import GrowingLines, append_line
from userrl_core.records import branch_of
from userrl_core.rewards.bias import WARN_ABOVE
from userrl_core.settings import Settings
from userrl_core.suggest import nearest
from warehouse import Warehouse, open_warehouse
from warehouse.write.turn_log import TurnLog

if TYPE_CHECKING:
    from userrl.run.job import StageJob

Action = Literal["warn", "pause", "stop", "off"]
ACTIONS: tuple[Action, ...] = get_args(Action)
EVERY_SECONDS = 10.0
WINDOW = 3
"""Steps in the averaging window, so that a single odd step trips nothing."""


class AlarmSetting(Settings):
    """A recipe's setting of one alarm. `alarm_rules` checks the action."""

    action: object = "warn"
    threshold: float = 0.0


@dataclass(frozen=True, slots=True)
class AlarmRule:
    """One alarm. It trips if the window's mean is ``below`` or ``above`` the threshold, times its best window if relative.

    unless_solved: off while the window's mean success is at least `SOLVED`, because a policy with nothing left to learn also
    varies little. default: the action where a recipe does not name the alarm. It is off for an alarm that sounds in sound runs
    and predicts no collapse (data/claims/README.md). remedy: what to do, as a sentence.
    """

    symptom: str
    threshold: float
    side: Literal["below", "above"]
    relative: bool = False
    unless_solved: bool = False
    default: Action = "warn"
    remedy: str = ""


SOLVED = 0.9


VALIDATION_FELL = "validation_fell"
"""The only alarm over whole validations instead of a window of steps (see `analysis.measure.collapse`)."""

PUSH = "push"
"""The alarm on the mean-advantage bias of the credit rule. Off unless advantages come from grouped credit."""

RULES: Mapping[str, AlarmRule] = {
    "reply_length": AlarmRule(
        "replies are less than half as long as they were",
        0.5,
        "below",
        relative=True,
        remedy="Read the newest conversations. If the replies lost content, lower algorithm.lr or raise algorithm.kl_coef.",
    ),
    "format_valid": AlarmRule(
        "too few replies hold a readable call",
        0.8,
        "below",
        remedy="Read the unreadable replies. Cut ones need a larger algorithm.max_tokens; otherwise lower algorithm.lr or "
        "train the cold start for longer.",
    ),
    "entropy": AlarmRule(
        "the policy's entropy is close to zero (in nats)",
        0.001,
        "below",
        remedy="The policy no longer explores: use an earlier checkpoint, and raise algorithm.entropy_coef or lower algorithm.lr.",
    ),
    "entropy_collapse": AlarmRule(
        "entropy is less than a tenth of its maximum, without success",
        0.1,
        "below",
        relative=True,
        unless_solved=True,
        default="off",
        remedy="Exploration ended before the tasks were solved: raise algorithm.entropy_coef, or lower algorithm.lr.",
    ),
    "signal": AlarmRule(
        "few groups have different scores, so little is learnt, without success",
        0.2,
        "below",
        unless_solved=True,
        remedy="If the cold start seldom succeeds, raise demonstrations.episodes, so that only successes are kept. Otherwise mix "
        "in easier tasks, raise the horizon or algorithm.group, or compare credit rules with `userrl audit credit`.",
    ),
    "kl": AlarmRule(
        "the policy is far from its start (KL in nats)",
        2.0,
        "above",
        remedy="If validation falls too, raise algorithm.kl_coef or lower algorithm.lr.",
    ),
    "engine_gap": AlarmRule(
        "the rollout engine samples from other probabilities than the trainer computes, so the trained policy is not the "
        "sampling one (k3 in nats); the cause may be a failed weight sync or another number format",
        0.01,
        "above",
        remedy="Stop the run and start it again from its last checkpoint; `userrl doctor --trainer` checks the engine.",
    ),
    "zero_variance": AlarmRule(
        "nearly all groups have equal scores, so nothing is learnt",
        0.95,
        "above",
        remedy="The tasks are all solved or all too hard: change the mix of tasks or the horizon, or raise algorithm.group.",
    ),
    PUSH: AlarmRule(
        "the mean-advantage bias is high: most advantages raise or lower whole groups, whatever was done; credit.form centred "
        "removes it",
        WARN_ABOVE,
        "above",
        remedy="Set credit.form to centred, or compare the rules with `userrl audit credit`.",
    ),
    "null_reward": AlarmRule(
        "too many trajectories could not be scored",
        0.1,
        "above",
        remedy="The report lists the reasons for rejection; most often the user or judge model did not answer.",
    ),
    VALIDATION_FELL: AlarmRule(
        "two validations in a row are far below the best three",
        MIN_FALL,
        "below",
        remedy="Use the best checkpoint instead of the last. To train on, lower algorithm.lr or change the credit rule.",
    ),
    "user_errors": AlarmRule(
        "too many calls of the user model fail",
        0.1,
        "above",
        remedy="Check the server of the user model, its key and its rate limit.",
    ),
}

ALONG = "(stage not similar to 'rl-[0-9]+-.*' or suffix(stage, '-' || $branch))"
"""SQL condition for the stages of one branch and those that all branches share."""

SERIES = f"""
with t as (select step, admitted, stop_reason from trajectories where run_id = $run and phase = 'train' and {ALONG}),
 replies as (select step, avg(completion_tokens) as reply_length, avg(((flags & 1) = 0)::int) as format_valid
             from turns where run_id = $run and phase = 'train' and {ALONG} group by step),
 scored as (select step, avg((not admitted)::int) as null_reward,
                   avg((stop_reason = 'success')::int) filter (admitted) as success from t group by step),
 varied as (select step, sum(all_good + all_bad) / nullif(sum(groups - too_small), 0) as zero_variance,
                   sum(mixed) / nullif(sum(groups - too_small), 0) as signal
            from group_statistics(run := $run) where {ALONG} group by step),
 numbers as (select step, coalesce(max(value) filter (where name = 'rollout/entropy/mean'),
                             max(value) filter (where name = 'policy/entropy/mean')) as entropy,
                    max(value) filter (where name = 'policy/kl_reference/mean') as kl,
                    max(value) filter (where name = 'credit/push_group/share') as push,
                    max(value) filter (where name = 'verl/rollout_corr/k3_kl') as engine_gap
             from metrics where run_id = $run and stage similar to 'rl-.*' and {ALONG} group by step),
 calls as (select step, avg((error is not null)::int) as user_errors
           from model_calls where run_id = $run and phase = 'train' and role = 'user' and {ALONG} group by step)
select step, reply_length, format_valid, entropy, entropy as entropy_collapse, kl, push, engine_gap, zero_variance,
       signal, null_reward, user_errors, success
from numbers join replies using (step) left join scored using (step) left join varied using (step)
     left join calls using (step)
where step > 0 order by step
"""
"""What the alarms read: a row for each finished step. A step has metrics once it is complete. Its first conversations to end are
the shortest, so they are no sample of the step. A group of one conversation has no variance.
"""


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm that tripped. branch: the branch that it is about, "" for a run without branches."""

    name: str
    step: int
    value: float
    bound: float
    action: Action
    branch: str = ""

    def sentence(self) -> str:
        """Return the sentence for a log line and a report."""
        of_branch = f" of {self.branch}" if self.branch else ""
        return (
            f"Alarm {self.name} at step {self.step}{of_branch}: {RULES[self.name].symptom} "
            f"({self.value:.3g}, bound {self.bound:.3g})."
        )


def remedy(name: str) -> str:
    """Return what to do about an alarm, "" for an unknown one."""
    rule = RULES.get(name)
    return "" if rule is None else rule.remedy


def alarm_rules(alarms: Mapping[str, Any]) -> dict[str, tuple[AlarmRule, Action]]:
    """Return the recipe's alarms with defaults. Raises ConfigError for an unknown alarm or action."""
    for name in alarms:
        if name not in RULES:
            raise ConfigError(
                "alarm.unknown", f"There is no alarm '{name}'{nearest(name, RULES)}. Use one of {', '.join(RULES)}."
            )
    rules: dict[str, tuple[AlarmRule, Action]] = {}
    for name, rule in RULES.items():
        setting = alarms.get(name, {"action": rule.default})
        setting = {"action": setting} if not isinstance(setting, Mapping) else setting
        # YAML reads an unquoted `off` as false.
        chosen = "off" if setting.get("action") is False else setting.get("action", "warn")
        action = next((option for option in ACTIONS if option == chosen), None)
        if action is None:
            raise ConfigError("alarm.unknown", f"alarms.{name} is '{chosen}'. Use one of {', '.join(ACTIONS)}.")
        rules[name] = (replace(rule, threshold=float(setting.get("threshold", rule.threshold))), action)
    return rules


def check_alarms(alarms: Mapping[str, Any]) -> None:
    """Raise ConfigError for an alarm that `alarm_rules` refuses, for a key that it does not read, and for a bad threshold.

    A recipe that was stored before the last two rules is read by `alarm_rules` alone.
    """
    for name, setting in alarms.items():
        if isinstance(setting, Mapping):
            validated(AlarmSetting, setting, f"alarms.{name}")
    alarm_rules(alarms)


def window_means(rows: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, float]]:
    """Return the means of an alarm's windows, each with the index of its last row. Rows without a number are left out."""
    series = [(index, float(row[name])) for index, row in enumerate(rows) if row.get(name) is not None]
    windows = [series[i : i + WINDOW] for i in range(len(series) - WINDOW + 1)]
    return [(window[-1][0], sum(value for _, value in window) / WINDOW) for window in windows]


def is_solved(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the mean success of the last window is at least `SOLVED`."""
    successes = [float(row["success"]) for row in rows[-WINDOW:] if row.get("success") is not None]
    return bool(successes) and sum(successes) / len(successes) >= SOLVED


def tripped(rows: Sequence[Mapping[str, Any]], alarms: Mapping[str, tuple[AlarmRule, Action]]) -> list[Alarm]:
    """Return the alarms that trip at the last of these steps. rows: one mapping per step, with ``step`` and a number
    per alarm.
    """
    sounding = []
    solved = is_solved(rows)
    for name, (rule, action) in alarms.items():
        means = [mean for _, mean in window_means(rows, name)]
        if action == "off" or not means or (rule.unless_solved and solved):
            continue
        bound = rule.threshold * max(means) if rule.relative else rule.threshold
        if means[-1] < bound if rule.side == "below" else means[-1] > bound:
            sounding.append(Alarm(name, int(rows[-1]["step"]), means[-1], bound, action))
    return sounding


def validations(warehouse: Warehouse, run_id: str, branch: str = "") -> list[ValidationScores]:
    """Return the complete validations along a run's branch by step, each with the mean score of every scored task."""
    text = f"""select step, gym || '/' || task_id, avg(score) from trajectories
              where run_id = $run and phase = 'validate' and admitted and score is not null and {ALONG} and step in
                    (select step from metrics where run_id = $run and name = 'validate/score/mean' and {ALONG})
              group by all order by all"""
    by_step: dict[int, dict[str, float]] = {}
    for step, task, score in warehouse.sql(text, run=run_id, branch=branch).fetchall():
        by_step.setdefault(step, {})[task] = score
    return [ValidationScores(step, scores) for step, scores in by_step.items()]


def fell(history: Sequence[ValidationScores], alarms: Mapping[str, tuple[AlarmRule, Action]]) -> list[Alarm]:
    """Return the alarm that validations have fallen, if they have. Empty if the recipe turns it off."""
    rule, action = alarms[VALIDATION_FELL]
    fall = fallen(history, rule.threshold) if action != "off" else None
    return [] if fall is None else [Alarm(VALIDATION_FELL, fall.step, fall.score, fall.bound, action)]


def alarm_file(run_folder: Path) -> Path:
    """Return the file of a run's alarms, one JSON line each, for the terminal and the report."""
    return run_folder / "alarms.jsonl"


def sounded(run_folder: Path) -> list[Mapping[str, Any]]:
    """Return the alarms of a run with their sentence, name, step and branch."""
    return list(GrowingLines(alarm_file(run_folder)))


class AlarmWatch:
    """A periodic check of the warehouse while a stage trains. Called with every progress line."""

    def __init__(self, job: StageJob, say: Callable[..., None]) -> None:
        self._job = job
        self._say = say
        self._alarms = alarm_rules(job.recipe.alarms)
        if (
            job.recipe.algorithm.name != "grpo"
        ):  # others centre over the batch or with a critic, and no form changes that
            self._alarms[PUSH] = (RULES[PUSH], "off")
        self._due = time.monotonic() + EVERY_SECONDS
        self._sounded: set[str] = set()

    def __call__(self, *, last: bool = False) -> None:
        """Check the alarms if a check is due. Raises TrainingError for an alarm that stops or pauses the run.

        last: the stage has ended. The check then always runs, and stops nothing, because the result exists.
        """
        if self._job.kind != "rl" or (time.monotonic() < self._due and not last):
            return
        self._due = time.monotonic() + EVERY_SECONDS
        for alarm in self._look():
            if alarm.name in self._sounded:
                continue
            self._sounded.add(alarm.name)
            self._say(alarm.sentence())
            self._write_down(alarm)
            if not last and alarm.action in ("stop", "pause"):
                effect = "stopped the run" if alarm.action == "stop" else "paused the run; start it again to continue"
                raise TrainingError("alarm.stopped", f"{alarm.sentence()} It {effect}.")

    def _look(self) -> list[Alarm]:
        try:
            with open_warehouse(self._job.warehouse, run=self._job.run_id) as warehouse:
                branch = branch_of(self._job.stage)
                result = warehouse.sql(SERIES, run=self._job.run_id, branch=branch)
                rows = [dict(zip(result.columns, row, strict=True)) for row in result.fetchall()]
                history = validations(warehouse, self._job.run_id, branch)
        except (UserRLError, duckdb.Error, OSError) as error:
            self._say("the alarms could not read the warehouse: %s", error)
            return []
        return [replace(alarm, branch=branch) for alarm in (*tripped(rows, self._alarms), *fell(history, self._alarms))]

    def _write_down(self, alarm: Alarm) -> None:
        """Write the alarm to the run's folder and to the warehouse's events, once even if the stage is started several times."""
        line = {"alarm": alarm.name, "step": alarm.step, "branch": alarm.branch, "sentence": alarm.sentence()}
        path = alarm_file(self._job.run_folder)
        if any(earlier["sentence"] == line["sentence"] for earlier in GrowingLines(path)):
            return
        append_line(path, line)
        fields = {"alarm": alarm.name, "value": alarm.value, "bound": alarm.bound, "action": alarm.action}
        try:
            with TurnLog.open(self._job.warehouse, self._job.run_id, join=self._incarnation()) as log:
                log.event("alarm", stage=self._job.stage, step=alarm.step, **fields)
        except (UserRLError, duckdb.Error, OSError) as error:
            self._say("the alarm could not be written to the warehouse: %s", error)

    def _incarnation(self) -> int | None:
        """Return the attempt of the run that the alarm is about."""
        with open_warehouse(self._job.warehouse, run=self._job.run_id) as warehouse:
            newest = warehouse.sql("select max(incarnation) from stages where run_id = $run", run=self._job.run_id)
            incarnation: int | None = newest.fetchall()[0][0]
            return incarnation
