"""The clusters that a gate's policy names: a column of the tasks, or a field of each task's content."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from analysis.measure.families import id_stems
from userrl_core.errors import ConfigError
from userrl_core.suggest import nearest
from warehouse import Warehouse

ID_STEM = "id_stem"
"""The cluster that joins tasks whose ids share a stem, such as q1-a and q1-b."""
COLUMNS = ("gym", "tier", "source", ID_STEM)


def with_clusters(warehouse: Warehouse, table: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return the table of task scores with a column `cluster`.

    name: one of `COLUMNS`, or a key of the tasks' content, with dots between nested keys. Raises ConfigError with one
    sentence if a task has no such value.
    """
    if name == ID_STEM:
        return table.with_columns(cluster=_stems(table))
    if name in COLUMNS:
        return table.with_columns(cluster=pl.col(name))
    contents = _contents(warehouse, table)
    values = {task: _value(content, name) for task, content in contents.items()}
    unknown = sum(values.get(task) is None for task in table["task"].unique())
    if unknown == table["task"].n_unique():
        fields = sorted({key for content in contents.values() for key in content})
        raise ConfigError(
            "gate.bad_policy",
            f"The tasks have no column or field '{name}'{nearest(name, [*COLUMNS, *fields])}. A cluster is one of the columns "
            f"{', '.join(COLUMNS)}, or a field of the tasks: {', '.join(fields) or 'they have none'}.",
        )
    if unknown:
        raise ConfigError(
            "gate.bad_policy",
            f"{unknown} of {table['task'].n_unique()} tasks have no field '{name}', so their cluster is not known. Name a "
            "column or a field that all tasks have.",
        )
    return table.with_columns(cluster=pl.Series([values[task] for task in table["task"]]))


def _stems(table: pl.DataFrame) -> pl.Series:
    ids = dict(table.group_by("gym").agg("task_id").iter_rows())
    stems = {gym: id_stems(task_ids) for gym, task_ids in ids.items()}
    if not any(stems.values()):
        raise ConfigError(
            "gate.bad_policy",
            f"The ids of the tasks have no stems in common, so cluster: {ID_STEM} joins none. Name another column or field.",
        )
    pairs = zip(table["gym"], table["task_id"], strict=True)
    return pl.Series([f"{gym}/{stems[gym].get(id_, id_)}" for gym, id_ in pairs])


def _contents(warehouse: Warehouse, table: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """Return the content of each task, and below it the facts that an import stored with the last turn."""
    text = """
        WITH facts AS (SELECT traj_id, arg_max(info, turn) AS info FROM turns
                       WHERE phase = 'evaluate' AND run_id IN (SELECT unnest($runs)) GROUP BY traj_id)
        SELECT concat_ws('/', t.gym, t.task_id, t.task_version) AS task, any_value(k.payload) AS payload, any_value(f.info) AS info
        FROM trajectories t LEFT JOIN facts f USING (traj_id) LEFT JOIN tasks k
            ON (k.run_id, k.gym, k.task_id, k.version) = (t.run_id, t.gym, t.task_id, t.task_version)
        WHERE t.phase = 'evaluate' AND t.run_id IN (SELECT unnest($runs)) GROUP BY ALL"""
    rows = warehouse.rows(text, runs=table["run_id"].unique().to_list())
    return {row["task"]: {**_object(row["info"]), **_object(row["payload"])} for row in rows}


def _object(text: str | None) -> dict[str, Any]:
    """Return a JSON object; {} for nothing and for other values."""
    value = json.loads(text or "{}")
    return value if isinstance(value, dict) else {}


def _value(content: Mapping[str, Any], name: str) -> str | None:
    """Return the value of a key as text; None if there is none."""
    value: Any = content
    for key in [name] if name in content else name.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return None if value is None else json.dumps(value, sort_keys=True)
