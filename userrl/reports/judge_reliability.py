"""How reliable the judge of a run's turns is, as one sentence of the run's report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from analysis.users.error import judge_error
from userrl_core.rewards.judge import RULE
from warehouse import Warehouse


def judge_of(warehouse: Warehouse, run: str) -> Mapping[str, Any] | None:
    """Return the settings of a run's judge of turns; None without one."""
    rows = warehouse.rows("SELECT recipe_json FROM runs WHERE run_id = $run", run=run)
    judge: Mapping[str, Any] | None = json.loads(rows[0]["recipe_json"] or "{}").get("judge") if rows else None
    return judge or None


def judge_reliability(judge: Mapping[str, Any], run: str) -> str:
    """Return the sentence on a judge."""
    model, version = judge.get("model"), int(judge.get("version", 1))
    if model != RULE:
        return f"{model} marked the turns. Measure it: userrl audit judge {run}."
    error = judge_error(version)
    if error is None:
        return f"The rule judge, version {version}, marked the turns. Its error was not measured."
    (first, second), (labels, more_labels) = error.right, error.labels
    return (
        f"The rule judge, version {version}, marked the turns. On 36 failed conversations that it was not made for, {first} and "
        f"{second} of its {error.marks} marks of a deviation agree with two readers (models, not people), which is {first} of "
        f"{labels} and {second} of {more_labels} deviations found."
    )
