"""DuckDB's and Polars' answers to the questions of docs/reference/engines.sql over an exported folder, and those of `userrl sql`.

The tables are read as docs/reference/engines.md says, with the folder in place of the bucket.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from tests.places import ROOT

REFERENCE = ROOT / "docs" / "reference"
TABLES = ("turns", "trajectories", "events", "runs")
TRUTH = {
    "learning_curve": "SELECT run_id, stage, phase, step, trajectories, rejected, score, return_sum, turns, success "
    "FROM learning_curve(in_phase := NULL)",
    "pass_hat_k": "FROM pass_hat_k(most := 3)",
    "group_statistics": "FROM group_statistics()",
    "effective_turns": "FROM effective_turns() WHERE gym IS NOT NULL",
    "rewinds_hidden": "SELECT run_id, phase, stage, step, count(*) AS turns, count(DISTINCT traj_id) AS trajectories, "
    "sum(reward) AS reward FROM turns GROUP BY run_id, phase, stage, step",
}
"""Each question as `userrl sql` is asked."""
Rows = list[dict[str, Any]]
Ask = Callable[[str], Rows]
Define = Callable[[str, str], Any]


def questions() -> dict[str, str]:
    """Return the statements of engines.sql by name, the views first."""
    text = (REFERENCE / "engines.sql").read_text()
    statements = re.findall(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", text, re.MULTILINE | re.DOTALL)
    return {
        name: "\n".join(line for line in body.splitlines() if not line.startswith("--")) for name, body in statements
    }


def documented(engine: str, folder: Path, table: str) -> str:
    """Return the SQL of docs/reference/engines.md with which the engine reads a table, for a folder instead of the bucket."""
    page = (REFERENCE / "engines.md").read_text().split("## Statements for each engine")[1]
    block = re.search(rf"^{engine}[^\n]*:\n.*?```\w+\n(.*?)```", page, re.MULTILINE | re.DOTALL | re.IGNORECASE)
    assert block is not None, f"docs/reference/engines.md has no statement for {engine}"
    return re.sub(r"\bturns\b", table, block[1].replace("s3://bucket/userrl/HOME", str(folder)))


def in_duckdb(folder: Path) -> tuple[Define, Ask]:
    """Return functions that define a view and ask DuckDB."""
    con = duckdb.connect()
    for table in TABLES:
        create = re.search(r"CREATE VIEW.*?;", documented("DuckDB", folder, table), re.DOTALL)
        assert create is not None
        con.execute(create[0])

    def ask(text: str) -> Rows:
        done = con.execute(text)
        names = [column[0] for column in done.description or ()]
        return [dict(zip(names, row, strict=True)) for row in done.fetchall()]

    return lambda name, text: con.execute(f"CREATE VIEW {name} AS {text}"), ask


def in_polars(folder: Path) -> tuple[Define, Ask]:
    """Return functions that define a view and ask Polars."""
    frames: dict[str, Any] = {}
    for table in TABLES:
        frames[table] = pl.scan_parquet(
            f"{folder}/{table}/**/*.parquet", hive_partitioning=True, missing_columns="insert", extra_columns="ignore"
        )
    context = pl.SQLContext(frames)

    def define(name: str, text: str) -> None:
        context.register(name, hidden_in_polars(frames) if name == "hidden" else context.execute(text))

    return define, lambda text: list(context.execute(text).collect().to_dicts())


def hidden_in_polars(frames: dict[str, Any]) -> Any:
    """Return the view `hidden` of engines.sql as a lazy frame."""
    keys = ["traj_id", "run_id", "incarnation", "stage", "phase", "step"]
    stored = pl.concat([frames["turns"].select(keys), frames["trajectories"].select(keys)])
    stage = pl.col("stage_event").fill_null("")
    later = (
        (pl.col("step") > pl.col("step_event"))
        & pl.col("phase").is_in(["train", "baseline", "validate"])
        & ~stage.str.starts_with("sft")
        & pl.col("stage").str.ends_with(stage.str.replace(r"^rl-[0-9]+", ""))
        & ((pl.col("stage") == stage) | ~pl.col("fields").fill_null("").str.contains('"scope":"stage"', literal=True))
    )
    restarted = pl.col("stage") == pl.col("stage_event")
    earlier = pl.col("incarnation") < pl.col("incarnation_event")
    rewinds = frames["events"].filter(pl.col("kind") == "rewind")
    replays = frames["events"].filter(pl.col("kind") == "replay")
    rewound = (
        stored.join(rewinds, on="run_id", suffix="_event")
        .filter(earlier & pl.when(pl.col("step_event").is_null()).then(restarted).otherwise(later))
        .select("traj_id")
    )
    replayed = (
        frames["trajectories"]
        .join(replays, on="run_id", suffix="_event")
        .filter(earlier & restarted & ~pl.col("admitted"))
        .select("traj_id")
    )
    return pl.concat([rewound, replayed]).unique()


ENGINES: dict[str, Callable[[Path], tuple[Define, Ask]]] = {"duckdb": in_duckdb, "polars": in_polars}


def answers(engine: str, folder: Path) -> dict[str, Rows]:
    """Return the rows of each question."""
    define, ask = ENGINES[engine](folder.resolve())
    answered: dict[str, Rows] = {}
    for name, text in questions().items():
        if name == "hidden" or name.startswith("shown_"):
            define(name, text)
        else:
            answered[name] = ask(text)
    return answered


def differences(expected: Sequence[Mapping[str, Any]], answered: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys of rows that only one side has, or whose numbers differ by more than a millionth.

    The key is the texts, and `step` and `k`. The order counts for nothing.
    """
    left, right = ({_key(row): row for row in rows} for rows in (expected, answered))
    differing = {key for key in left.keys() & right.keys() if not _alike(left[key], right[key])}
    return sorted(differing | (left.keys() ^ right.keys()))


def _key(row: Mapping[str, Any]) -> str:
    key_columns = {name: value for name, value in row.items() if isinstance(value, str) or name in ("step", "k")}
    return json.dumps(
        {name: int(value) if name in ("step", "k") else value for name, value in key_columns.items()}, sort_keys=True
    )


def _alike(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    if left.keys() != right.keys():
        return False
    return all(
        math.isclose(value, right[name], rel_tol=1e-6, abs_tol=1e-9)
        if isinstance(value, int | float) and isinstance(right[name], int | float)
        else value == right[name]
        for name, value in left.items()
    )
