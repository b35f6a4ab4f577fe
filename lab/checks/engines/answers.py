"""Answer the questions of questions.sql with DuckDB, Polars, ClickHouse or Spark over an exported folder.

    python lab/checks/engines/answers.py clickhouse TARGET/home=ID

It reads the tables as docs/reference/engines.md says, with the folder in place of the bucket, and prints JSON: the rows and the
seconds of every question. It needs the engine alone: duckdb, polars, chdb-core, or pyspark with Java.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TABLES = ("turns", "trajectories", "events", "runs")
Rows = list[dict[str, Any]]
Ask = Callable[[str], Rows]
Define = Callable[[str, str], Any]


def questions() -> dict[str, str]:
    """Return the statements of questions.sql by name, the views first."""
    text = (HERE / "questions.sql").read_text()
    statements = re.findall(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", text, re.MULTILINE | re.DOTALL)
    return {
        name: "\n".join(line for line in body.splitlines() if not line.startswith("--")) for name, body in statements
    }


def documented(engine: str, folder: Path, table: str) -> str:
    """Return the SQL of docs/reference/engines.md with which the engine reads a table, for a folder instead of the bucket."""
    page = (HERE.parents[2] / "docs" / "reference" / "engines.md").read_text().split("## Statements for each engine")[1]
    block = re.search(rf"^{engine}[^\n]*:\n.*?```\w+\n(.*?)```", page, re.MULTILINE | re.DOTALL | re.IGNORECASE)
    assert block is not None, f"docs/reference/engines.md has no statement for {engine}"
    text = block[1].replace("s3://bucket/userrl/HOME", str(folder))
    text = re.sub(r"s3\('https://[^/]*/userrl/HOME/([^']*)', 'KEY', 'SECRET', ", rf"file('{folder}/\1', ", text)
    return re.sub(r"\bturns\b", table, text)


def duckdb(folder: Path) -> tuple[Define, Ask]:
    """Return functions that define a view and ask DuckDB."""
    import duckdb

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


def polars(folder: Path) -> tuple[Define, Ask]:
    """Return functions that define a view and ask Polars."""
    import polars as pl

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
    """Return the view `hidden` of questions.sql as a lazy frame."""
    import polars as pl

    keys = ["traj_id", "run_id", "incarnation", "stage", "phase", "step"]
    stored = pl.concat([frames["turns"].select(keys), frames["trajectories"].select(keys)])
    stage = pl.col("stage_event").fill_null("")
    later = (
        (pl.col("step") > pl.col("step_event"))
        & pl.col("phase").is_in(["train", "baseline", "validate"])
        & ~stage.str.starts_with("sft")
        & pl.col("stage").str.ends_with(stage.str.replace(r"^rl-[0-9]+", ""))
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


def clickhouse(folder: Path) -> tuple[Define, Ask]:
    """Return functions that define a view and ask ClickHouse, embedded by chdb."""
    from chdb import session  # type: ignore[import-not-found]  # not in our environment

    connection = session.Session()
    connection.query("CREATE DATABASE userrl")
    connection.query("USE userrl")
    # NULL for a row that a join does not find, as in SQL; ClickHouse has 0 and '' otherwise.
    connection.query("SET join_use_nulls = 1")
    for table in TABLES:
        connection.query(documented("ClickHouse", folder, table))

    def ask(text: str) -> Rows:
        # Its stddev_samp was off by more than a millionth where scores of a group are almost equal.
        text = text.replace("stddev_samp", "stddevSampStable")
        return list(
            json.loads(str(connection.query(f"{text}\nSETTINGS output_format_json_quote_64bit_integers = 0", "JSON")))[
                "data"
            ]
        )

    return lambda name, text: connection.query(f"CREATE VIEW {name} AS {text}"), ask


def spark(folder: Path) -> tuple[Define, Ask]:
    """Return functions that define a view and ask Spark on this machine."""
    from pyspark.sql import SparkSession  # type: ignore[import-not-found]  # not in our environment

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for table in TABLES:
        spark.read.option("mergeSchema", "true").parquet(f"{folder}/{table}/").createOrReplaceTempView(table)

    def ask(text: str) -> Rows:
        return [row.asDict() for row in spark.sql(text).collect()]

    return lambda name, text: spark.sql(text).createOrReplaceTempView(name), ask


ENGINES: dict[str, Callable[[Path], tuple[Define, Ask]]] = {
    "duckdb": duckdb,
    "polars": polars,
    "clickhouse": clickhouse,
    "spark": spark,
}


def answers(engine: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Return the rows and the seconds of each question."""
    define, ask = ENGINES[engine](folder.resolve())
    answered: dict[str, dict[str, Any]] = {}
    for name, text in questions().items():
        if name == "hidden" or name.startswith("shown_"):
            define(name, text)
            continue
        began = time.monotonic()
        rows = ask(text)
        answered[name] = {"rows": rows, "seconds": time.monotonic() - began}
    return answered


if __name__ == "__main__":
    print(json.dumps(answers(sys.argv[1], Path(sys.argv[2])), default=str))
