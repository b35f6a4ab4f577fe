"""The table of alarms in data/claims/README.md: which alarm predicts a collapse, and how often it is false.

    python -m lab.pages.alarms

A run is the unit. Its collapse begins at the first validation from which on all scores stay more than .1 below the best before
them. An alarm predicts the collapse if it sounds at an earlier step, and detects it if it sounds later. The families in
`CHOSEN_ON` choose each threshold: the most sensitive one that is false in at most one sound run in ten. The others test it once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl

from analysis.measure.collapse_rule import MIN_FALL
from analysis.measure.interval import share_interval
from lab.rows import DATA
from userrl.run.alarms import RULES, VALIDATION_FELL, AlarmRule, is_solved, window_means
from userrl_core.number_format import NULL

FOLDERS = (DATA / "claims", DATA / "what-collapses" / "dose")
PAGE = DATA / "claims" / "README.md"
MARKED = re.compile(r"(<!-- written by lab/pages/alarms.py -->\n).*?(<!-- /written -->)", re.DOTALL)
CHOSEN_ON = ("errand",)
"""Families that choose the thresholds; all others test them."""
FALSE_ALARMS = 0.1
"""The wanted share of sound runs in which an alarm sounds."""
HEAD = (
    "| alarm | threshold | collapses predicted | predicted or detected | false alarms in sound runs | lead time, share of the run "
    "| chosen threshold | predicted, test | false alarms, test |\n"
    "| --- | --- | ---: | ---: | ---: | ---: | --- | ---: | ---: |"
)
Row = Mapping[str, Any]


@dataclass(frozen=True)
class AlarmedRun:
    """A finished run. family: its gyms. collapse: the step at which its collapse begins, None for a sound run.

    rows: what the alarms read, by step.
    """

    family: str
    collapse: int | None
    rows: Sequence[Row]

    @property
    def last_step(self) -> int:
        """Return the run's last step."""
        return int(self.rows[-1]["step"])


def main() -> None:
    """Write the table into the page."""
    PAGE.write_text(page(PAGE.read_text()))
    print(f"wrote {PAGE}")


def page(text: str) -> str:
    """Return the page with its table rewritten."""
    runs = alarmed_runs()
    lines = ["", counts(runs), "", *table(runs), ""]
    return MARKED.sub(lambda mark: "\n".join([mark[1].rstrip(), *lines, mark[2]]), text)


def counts(runs: Sequence[AlarmedRun]) -> str:
    """Return a sentence: runs, collapses, and those that begin within the first eighth of training."""
    collapses = [run for run in runs if run.collapse is not None]
    early = sum((run.collapse or 0) <= run.last_step / 8 for run in collapses)
    first = "collapses begin within the first eighth of training"
    return f"{len(runs)} runs, {len(collapses)} of which collapse; {early} {first}."


def alarmed_runs(folders: Sequence[Path] = FOLDERS) -> list[AlarmedRun]:
    """Return the finished runs whose alarms were stored, each once."""
    runs: dict[str, AlarmedRun] = {}
    for folder in folders:
        if not (folder / "alarms.parquet").is_file():
            continue
        series = pl.read_parquet(folder / "alarms.parquet").sort("run", "step").partition_by("run", as_dict=True)
        validations = pl.read_parquet(folder / "validation.parquet").partition_by("run", as_dict=True)
        endings = pl.read_csv(folder / "runs.csv", infer_schema_length=None).unique("run", keep="first")
        for run, ending in endings.filter(pl.col("state") != "crashed").select("run", "ending").iter_rows():
            if (run,) in series:
                validated = validations[run,]
                collapse = collapse_step(validated) if ending == "collapsed" else None
                family = " and ".join(sorted(validated["gym"].unique()))
                runs[run] = AlarmedRun(family, collapse, series[run,].to_dicts())
    return list(runs.values())


def collapse_step(validated: pl.DataFrame) -> int:
    """Return the step at which a collapse begins, by the scores at the horizon of training; the last step where it is not seen."""
    weighted = (pl.col("own_score") * pl.col("n")).sum() / pl.col("n").sum()
    points = validated.group_by("step").agg(weighted.alias("score")).sort("step").rows()
    begins, best = int(points[-1][0]), -math.inf
    bests = [best := max(best, score) for _, score in points]
    for (step, score), before in zip(reversed(points), reversed([-math.inf, *bests[:-1]]), strict=True):
        if score >= before - MIN_FALL:
            break
        begins = int(step)
    return begins


def readings(run: AlarmedRun, name: str) -> Iterator[tuple[int, float]]:
    """Yield step and reading of an alarm: the mean of its window, or its share of the best window; none while it is off."""
    rule, best = RULES[name], -math.inf
    for index, mean in window_means(run.rows, name):
        best = max(best, mean)
        if not (rule.unless_solved and is_solved(run.rows[: index + 1])):
            yield int(run.rows[index]["step"]), mean / best if rule.relative and best else mean


def first_alarm(run: AlarmedRun, name: str, threshold: float) -> int | None:
    """Return the step at which an alarm first sounds."""
    if name == VALIDATION_FELL:
        return next((int(row["step"]) for row in run.rows if row[name]), None)
    side = RULES[name].side
    return next((step for step, value in readings(run, name) if beyond(value, threshold, side)), None)


def beyond(value: float, threshold: float, side: str) -> bool:
    """Return whether a reading is on the alarm's side of the threshold."""
    return value < threshold if side == "below" else value > threshold


def chosen_threshold(runs: Sequence[AlarmedRun], name: str, rule: AlarmRule) -> float:
    """Return the most sensitive threshold at which at most `FALSE_ALARMS` of the sound runs have an alarm."""
    extreme = min if rule.side == "below" else max
    extremes = [
        extreme(values) for run in runs if run.collapse is None and (values := [v for _, v in readings(run, name)])
    ]
    ordered = sorted(extremes, reverse=rule.side == "above")
    return ordered[min(int(FALSE_ALARMS * len(ordered)), len(ordered) - 1)] if ordered else rule.threshold


def table(runs: Sequence[AlarmedRun]) -> list[str]:
    """Return the lines of the table: each alarm at its default threshold on all runs, and at the chosen one on the others."""
    choosing = [run for run in runs if run.family in CHOSEN_ON]
    testing = [run for run in runs if run.family not in CHOSEN_ON]
    lines = HEAD.splitlines()
    for name, rule in RULES.items():
        if not any(row.get(name) is not None for run in runs for row in run.rows):
            lines.append(f"| `{name}` | {rule.threshold:g} | not read in these runs |" + f" {NULL} |" * 6)
            continue
        retuned = name != VALIDATION_FELL
        threshold = chosen_threshold(choosing, name, rule) if retuned else rule.threshold
        shown = f"{threshold:.3g}" if retuned else NULL
        predicted, detected, false_alarms = shares(runs, name, rule.threshold)
        predicted_in_test, _, false_in_test = shares(testing, name, threshold)
        leads = lead(runs, name, rule.threshold)
        cells = [predicted, detected, false_alarms, leads, shown, predicted_in_test, false_in_test]
        lines.append(f"| `{name}` | {rule.threshold:g} | {' | '.join(cells)} |")
    return lines


def shares(runs: Sequence[AlarmedRun], name: str, threshold: float) -> list[str]:
    """Return the shares of collapses that an alarm predicts and in which it sounds, and of sound runs in which it sounds."""
    first = [(run.collapse, first_alarm(run, name, threshold)) for run in runs]
    predicted = [alarm is not None and alarm < collapse for collapse, alarm in first if collapse is not None]
    detected = [alarm is not None for collapse, alarm in first if collapse is not None]
    false_alarms = [alarm is not None for collapse, alarm in first if collapse is None]
    return [share(predicted), share(detected), share(false_alarms)]


def share(marks: Sequence[bool]) -> str:
    """Return a count with its exact 95 % limits."""
    if not marks:
        return NULL
    interval = share_interval(sum(marks), len(marks))
    return f"{sum(marks)} of {len(marks)} [{interval.low:.2f}, {interval.high:.2f}]"


def lead(runs: Sequence[AlarmedRun], name: str, threshold: float) -> str:
    """Return the median time between alarm and collapse, as a share of the run's steps, over the collapses that it predicts."""
    leads = [
        (run.collapse - alarm) / run.last_step
        for run in runs
        if run.collapse is not None
        and (alarm := first_alarm(run, name, threshold)) is not None
        and alarm < run.collapse
    ]
    return f"{median(leads):.2f}" if leads else NULL


if __name__ == "__main__":
    main()
