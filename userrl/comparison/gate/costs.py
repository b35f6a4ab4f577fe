"""The costs of conversations that a gate compares, and the largest cost that a conversation can have.

A test of total costs needs the largest possible cost: a task that costs much more than the others may be absent from the
sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import polars as pl

from analysis.measure.gate import Decision, untested
from userrl.comparison.gate.policy import GateRule
from userrl_core.errors import ConfigError
from warehouse import Warehouse

_COSTS = {
    "dollars": "CASE WHEN c.unpriced = 0 THEN c.price END",
    "tokens": "t.completion_tokens",
    "turns": "t.turns",
    "seconds": "t.policy_seconds",
}
_LIMITS = {
    "turns": "t.horizon",
    "tokens": """CASE WHEN r.kind IS NULL AND t.checkpoint != '' THEN least(
        (r.recipe_json->>'$.algorithm.max_response_tokens')::BIGINT,
        t.horizon * (r.recipe_json->>'$.algorithm.max_tokens')::BIGINT,
        CASE WHEN r.recipe_json->>'$.model.path' IS NULL THEN (r.recipe_json->>'$.model.max_context')::BIGINT END) END""",
}
"""The limit at which a conversation was ended, for costs that have one. A served model has token limits of its own."""


def with_costs(warehouse: Warehouse, metric: str, table: pl.DataFrame) -> pl.DataFrame:
    """Return the table with the costs of the attempts in `scores`, their mean in `score` and, in `limit`, the number at which
    conversations are ended; null if unknown.
    """
    limit = _LIMITS.get(metric, "NULL")
    costs = warehouse.sql(
        f"""WITH calls AS (SELECT traj_id, sum(price) AS price, count(*) FILTER (price IS NULL) AS unpriced
                           FROM model_calls WHERE role = 'policy' AND run_id IN (SELECT unnest($runs)) GROUP BY traj_id)
            SELECT t.run_id, t.policy, concat_ws('/', t.gym, t.task_id, t.task_version) AS task,
                   list(({_COSTS[metric]})::DOUBLE ORDER BY t.attempt) AS scores,
                   CASE WHEN bool_and({limit} IS NOT NULL) THEN max(({limit})::DOUBLE) END AS limit
            FROM trajectories t JOIN runs r USING (run_id) LEFT JOIN calls c USING (traj_id)
            WHERE t.admitted AND t.score IS NOT NULL AND t.phase = 'evaluate' AND t.run_id IN (SELECT unnest($runs))
            GROUP BY ALL""",
        runs=table["run_id"].unique().to_list(),
    ).pl()
    all_costed = pl.col("scores").list.eval(pl.element().is_not_null()).list.all()
    return (
        table.drop("scores", "score")
        .join(costs, on=["run_id", "policy", "task"], how="left")
        .with_columns(score=pl.when(all_costed).then(pl.col("scores").list.mean()))
    )


def unknown_costs(table: pl.DataFrame, rule: GateRule) -> Decision | None:
    """Return an untested decision if the cost of a task is not known: an unknown price is not 0."""
    columns = [name for name in ("score", "score_right") if name in table.columns]
    unknown = sum(table[name].null_count() for name in columns)
    if not unknown:
        return None
    why = " (a local model has none, and some models have no known price)" if rule.measured == "dollars" else ""
    reason = f"the {rule.measured} of {unknown} of {len(table) * len(columns)} tasks are not known{why}"
    return untested(reason, rule.number)


def largest_cost(both: pl.DataFrame, rule: GateRule, side: Literal["A", "B"]) -> float | None:
    """Return the largest possible cost of a conversation: the rule's cap, or the limit of the side's runs; None if unknown.

    Raises ConfigError if conversations cost more than the rule's cap, or may do so.
    """
    suffix = "_right" if side == "B" else ""
    limits, observed = both[f"limit{suffix}"], max(map(max, both[f"scores{suffix}"].to_list()))
    limit = None if limits.null_count() else float(limits.max())  # type: ignore[arg-type]
    if limit is not None and limit < observed:
        limit = None
    if rule.cap is None:
        return limit
    if rule.cap < (largest := max(observed, limit or 0)):
        has = "has" if largest == observed else "may have"
        raise ConfigError(
            "gate.bad_policy",
            f"A conversation of {side} {has} {largest:,g} {rule.measured}, more than the cap of {rule.cap:,g}. Set cap to the "
            "number at which a conversation is ended.",
        )
    return rule.cap


def without_limit(rule: GateRule, a: Sequence[float], b: Sequence[float]) -> Decision:
    """Return an untested decision if the largest possible cost is not known. a, b: the costs of each task."""
    total = f"B needs {sum(b) / sum(a):.2f} x the {rule.measured} of A in total, but " if sum(a) > 0 else ""
    return untested(
        f"{total}the largest possible number of {rule.measured} in a conversation is not known, so rare expensive tasks cannot "
        "be ruled out; add it to the rule as cap: NUMBER",
        rule.number,
    )
