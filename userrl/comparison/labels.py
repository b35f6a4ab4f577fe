"""A comparison by a label set: the share of conversations with each label on every side, and the scores of those conversations.

A conversation is given its labels after it was played. The share of a label is therefore an outcome, which is compared like a
score. The conversations with one label differ between the sides, so the difference of their scores has no causal meaning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from analysis.measure.comparison import (
    WHICH,
    ComparedSide,
    PairedDifference,
    SideScore,
    checkpoints_of,
    question_of,
    scores_and_differences,
)
from analysis.measure.interval import finite
from userrl.comparison.document import CHECKPOINTS
from userrl.comparison.report import side_policies
from userrl.machine.foreign_text import plain
from userrl.reports.document import Block, Heading, TableBlock, Text
from userrl_core.errors import ConfigError
from userrl_core.number_format import p_value, with_limits
from userrl_core.suggest import nearest
from warehouse import Warehouse

PREFIX = "label:"
"""``--by label:NAME``, or ``label:NAME/SOURCE`` for one kind of labeller."""
MOST_VALUES = 8
"""Labels that are shown, the most frequent first."""


@dataclass(frozen=True, slots=True)
class ComparedLabel:
    """One label. shares: of conversations that have it. scores: of the scored conversations that have it."""

    value: str
    conversations: Mapping[str, int]
    shares: tuple[SideScore, ...]
    share_differences: tuple[PairedDifference, ...]
    scores: tuple[SideScore, ...]


@dataclass(frozen=True, slots=True)
class LabelComparison:
    """A comparison by one label set.

    source: pattern, function, judge or person. on: what was labelled; a conversation has the labels of its turns.
    labelled: by side, the number of labelled conversations and of all conversations. more: number of labels not listed.
    """

    name: str
    source: str
    on: Literal["conversation", "turn"]
    sides: tuple[ComparedSide, ...]
    labels: tuple[ComparedLabel, ...]
    labelled: Mapping[str, tuple[int, int]]
    more: int

    def as_json(self) -> dict[str, Any]:
        """Return the shares, their differences and the scores."""
        return {
            "label": self.name,
            "source": self.source,
            "on": self.on,
            "labelled": {side: {"labelled": some, "of": every} for side, (some, every) in self.labelled.items()},
            "values": [
                {
                    "value": label.value,
                    "conversations": dict(label.conversations),
                    "shares": [_as_json(share.side, share) for share in label.shares],
                    "differences": [
                        {**_as_json(difference.b, difference), "p": finite(difference.p)}
                        for difference in label.share_differences
                    ],
                    "scores": [_as_json(score.side, score) for score in label.scores],
                }
                for label in self.labels
            ],
        }

    def blocks(self) -> Iterator[Block]:
        """Yield the section of the comparison's page."""
        letters = {side.name: chr(ord("A") + index) for index, side in enumerate(self.sides)}
        which = ("checkpoint",) if len(checkpoints_of(self.sides)) > 1 else ()
        recipes = question_of(self.sides) == "recipes"
        counted = "conversations" if self.on == "conversation" else "conversations with such a turn"
        yield Heading(f"By label {plain(self.name)} ({self.source})")
        scores = {
            (label.value, score.side, score.which): with_limits(score.interval)
            for label in self.labels
            for score in label.scores
        }
        yield TableBlock(
            ("label", "side", *which, counted, "share of conversations", "mean score of these"),
            tuple(
                (
                    plain(label.value),
                    letters[share.side],
                    *(CHECKPOINTS[share.which] for _ in which),
                    f"{label.conversations[share.side]:,}",
                    with_limits(share.interval),
                    scores.get((label.value, share.side, share.which), "–"),
                )
                for label in self.labels
                for share in label.shares
            ),
            "A label is given after the conversation, so the conversations with one label are different ones on each side. "
            "Compare the shares; a difference of these scores is not an effect of the agent.",
        )
        rows = [(label.value, difference) for label in self.labels for difference in label.share_differences]
        if rows:
            yield TableBlock(
                ("label", "difference of shares", *which, "estimate [95 %]", "p", "seeds" if recipes else "tasks"),
                tuple(
                    (
                        plain(value),
                        f"{letters[difference.b]} − {letters[difference.a]}",
                        *(CHECKPOINTS[difference.which] for _ in which),
                        with_limits(difference.interval, sign=True),
                        p_value(difference.p),
                        str(difference.interval.units),
                    )
                    for value, difference in rows
                ),
                f"Paired by {'seed' if recipes else 'task'}. p is not adjusted for the number of labels.",
            )
        parts = [f"{letters[side]} {some:,} of {every:,}" for side, (some, every) in self.labelled.items()]
        more = f" {self.more} rarer labels are not listed." if self.more else ""
        yield Text(f"Labelled conversations: {', '.join(parts)}. The others enter no share.{more}")


def compare_labels(warehouse: Warehouse, sides: Sequence[ComparedSide], by: str) -> LabelComparison:
    """Compare sides by a label set. by: ``label:NAME`` or ``label:NAME/SOURCE``. Raises ConfigError with one sentence."""
    name, source = _chosen(warehouse, sides, by)
    unit = _unit(warehouse, sides, name, source)
    table = _conversations(warehouse, sides, name, source, unit)
    counts = Counter(value for values in table["values"].to_list() for value in values)
    common_values = sorted(value for value, _ in counts.most_common(MOST_VALUES))
    if not common_values:
        raise ConfigError("labels.none", f"No conversation of these sides has a label '{name}' that was decided.")
    best = table.filter(pl.col("which") == WHICH[0])
    has_any = pl.col("values").list.len() > 0
    numbers = best.group_by("side", maintain_order=True).agg(has_any.sum(), n=pl.len()).rows()
    return LabelComparison(
        name,
        source,
        unit,
        tuple(sides),
        tuple(_compared(table, sides, value) for value in common_values),
        {side: (some, every) for side, some, every in numbers},
        len(counts) - len(common_values),
    )


def _chosen(warehouse: Warehouse, sides: Sequence[ComparedSide], by: str) -> tuple[str, str]:
    """Return the label set and the kind of its labeller."""
    if not by.startswith(PREFIX):
        raise ConfigError("argument.malformed", f"'{by}' cannot divide a comparison. Write {PREFIX}NAME.")
    runs = [run.run_id for side in sides for run in side.runs]
    text = "SELECT DISTINCT name, source FROM labels WHERE run_id IN (SELECT unnest($runs)) ORDER BY ALL"
    label_sets = [(row["name"], row["source"]) for row in warehouse.rows(text, runs=runs)]
    label_name = by.removeprefix(PREFIX)
    name, _, source = label_name.rpartition("/")
    if (name, source) in label_sets:
        return name, source
    sources = [source for name, source in label_sets if name == label_name]
    if len(sources) == 1:
        return label_name, sources[0]
    if sources:
        alternatives = " or ".join(f"{PREFIX}{label_name}/{source}" for source in sources)
        raise ConfigError(
            "labels.several_sources", f"'{label_name}' has labels from several sources. Write {alternatives}."
        )
    names = sorted({name for name, _ in label_sets})
    raise ConfigError(
        "labels.none",
        f"No conversation of these sides has a label '{label_name}'{nearest(label_name, names)}. Their label sets: "
        f"{', '.join(names) or 'none'}. `userrl scan` makes one.",
    )


def _unit(
    warehouse: Warehouse, sides: Sequence[ComparedSide], name: str, source: str
) -> Literal["conversation", "turn"]:
    """Return what the labels of all runs are about. Raises ConfigError if runs differ in it."""
    runs = [run.run_id for side in sides for run in side.runs]
    text = """SELECT run_id, bool_or(turn = 0) AS whole, bool_or(turn > 0) AS by_turn FROM labels
              WHERE name = $name AND source = $source AND run_id IN (SELECT unnest($runs)) GROUP BY run_id"""
    rows = warehouse.rows(text, name=name, source=source, runs=runs)
    if all(row["whole"] for row in rows):
        return "conversation"
    if all(row["by_turn"] for row in rows):
        return "turn"
    conversation_run = next(row["run_id"] for row in rows if row["whole"])
    turn_run = next(row["run_id"] for row in rows if not row["whole"])
    raise ConfigError(
        "labels.several_sources",
        f"'{name}' labels conversations in {conversation_run} and turns in {turn_run}. Scan one of them again with the other --on.",
    )


def _conversations(
    warehouse: Warehouse, sides: Sequence[ComparedSide], name: str, source: str, unit: Literal["conversation", "turn"]
) -> pl.DataFrame:
    """Return one row per side, checkpoint and conversation, with its labels.

    Of several labels for one turn or conversation the newest counts. undecided: one of its labels has no value.
    """
    policies = side_policies(sides).filter(pl.col("which").is_in(checkpoints_of(sides)))
    text = """
        WITH given AS (
            SELECT traj_id, turn, arg_max(coalesce(value, ''), logged_at) AS value FROM labels
            WHERE name = $name AND source = $source AND (turn = 0) = $whole
              AND run_id IN (SELECT unnest($runs)) GROUP BY traj_id, turn
        ), collected AS (
            SELECT traj_id, list(DISTINCT value) FILTER (value <> '') AS values, bool_or(value = '') AS undecided
            FROM given GROUP BY traj_id
        )
        SELECT t.run_id, t.policy, t.gym, t.source, concat_ws('/', t.gym, t.task_id, t.task_version) AS task,
               CASE WHEN t.admitted THEN t.score END AS score, coalesce(c.values, []) AS values,
               coalesce(c.undecided, true) AS undecided
        FROM trajectories t LEFT JOIN collected c USING (traj_id)
        WHERE t.phase = 'evaluate' AND t.run_id IN (SELECT unnest($runs)) ORDER BY t.traj_id"""
    runs = policies["run_id"].unique().to_list()
    played = warehouse.sql(text, name=name, source=source, runs=runs, whole=unit == "conversation").pl()
    return policies.join(played, on=["run_id", "policy"], maintain_order="left_right")


def _compared(table: pl.DataFrame, sides: Sequence[ComparedSide], value: str) -> ComparedLabel:
    has = pl.col("values").list.contains(value)
    decided = table.filter(has | (~pl.col("undecided")))
    shares, differences = scores_and_differences(_by_task(decided.with_columns(score=has.cast(pl.Float64))), sides)
    scores, _ = scores_and_differences(_by_task(table.filter(has, pl.col("score").is_not_null())), sides)
    having = table.filter(has, pl.col("which") == WHICH[0])
    counts = {side.name: len(having.filter(pl.col("side") == side.name)) for side in sides}
    return ComparedLabel(value, counts, tuple(shares), tuple(differences), tuple(scores))


def _by_task(conversations: pl.DataFrame) -> pl.DataFrame:
    """Return the table that `analysis.measure.comparison` describes, as far as its means and differences need it."""
    keys = ("side", "which", "run_id", "seed", "gym", "source", "task")
    return conversations.group_by(*keys, maintain_order=True).agg(
        scores=pl.col("score"), score=pl.col("score").mean(), shared=pl.lit(value=True)
    )


def _as_json(side: str, item: SideScore | PairedDifference) -> dict[str, Any]:
    interval = item.interval
    numbers = {**interval.as_json(), "units": interval.units, "method": interval.method}
    return {"side": side, "checkpoint": item.which, **numbers}
