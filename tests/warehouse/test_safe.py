from __future__ import annotations

import hashlib
import json
from pathlib import Path

import duckdb
import pytest

from tests.makers import raises
from tests.warehouse.makers import play
from userrl_core.errors import Refused
from userrl_core.records import CheckpointRecord
from warehouse import TurnLog, open_warehouse
from warehouse.query.sandbox import ask
from warehouse.query.sandboxed import SETTINGS_CLOSED
from warehouse.query.statements import check_nodes, check_statement, check_words
from warehouse.upkeep.compact import compact


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack, a sealed segment and a live file of a dead writer's shape, so that every kind of file is at stake."""
    folder = tmp_path_factory.mktemp("warehouse")
    for run in ("packed", "sealed"):
        with TurnLog.open(folder, run) as log:
            play(log, [0.0, 1.0])
        if run == "packed":
            compact(folder)
    live = folder / "runs/run=sealed/live/turns.00009.000001.jsonl"
    live.write_text('{"traj_id": 1, "turn": 1, "run_id": "sealed", "reward": 1.0}\n')
    return folder


def state(root: Path) -> dict[str, str]:
    files = sorted(p for p in root.rglob("*") if p.is_file() and p.name != "lock")
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


ATTACKS = {
    "copy out": "COPY turns TO '{out}'",
    "copy onto a listed file": "COPY (SELECT 1) TO '{live}' (FORMAT csv, USE_TMP_FILE false)",
    "copy behind explain analyze": "EXPLAIN ANALYZE COPY (SELECT 1) TO '{live}' (FORMAT csv, USE_TMP_FILE false)",
    "copy behind explain and comments": "/* a */ EXPLAIN --b\n ANALYZE /* c */ COPY (SELECT 1) TO '{live}' (USE_TMP_FILE false)",
    "attach": "ATTACH '{out}' AS mine",
    "attach a pack for writing": "ATTACH '{pack}' AS mine (READ_WRITE)",
    "pragma": "PRAGMA enable_profiling",
    "set": "SET enable_external_access = true",
    "reset": "RESET lock_configuration",
    "several statements": "SELECT 1; COPY turns TO '{out}'",
    "read a system file": "SELECT * FROM read_csv('/etc/passwd')",
    "read a system file as text": "SELECT * FROM read_text('/etc/passwd')",
    "list files": "SELECT * FROM glob('/etc/*')",
    "install": "INSTALL httpfs",
    "load": "LOAD httpfs",
    "a huge cross join": "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE (a.range * b.range) % 7 = 8",
    "a huge result in memory": "SELECT string_agg(repeat('x', 1000), '') FROM range(100000000)",
    "delete": "DELETE FROM store.runs",
    "create": "CREATE TABLE x AS SELECT 1",
    "export": "EXPORT DATABASE '{out}'",
    "call": "CALL force_checkpoint()",
    "nested statement": "SELECT * FROM query('COPY (SELECT 1) TO ''{out}''')",
    "copy as a CTE's body": "WITH x AS (COPY (SELECT 1 a) TO '{live}' (USE_TMP_FILE false)) SELECT 1",
    "copy as a materialized body": "WITH x AS MATERIALIZED ( /* a */ COPY (SELECT 1) TO '{live}' (USE_TMP_FILE false)) FROM x",
    "copy behind a CTE in a CTE": "WITH x AS (WITH y AS (SELECT 1) COPY (FROM y) TO '{live}' (USE_TMP_FILE false)) SELECT 1",
    "copy behind explain in a CTE": "EXPLAIN ANALYZE WITH x AS (COPY (SELECT 1) TO '{live}' (USE_TMP_FILE false)) SELECT 1",
    "copy in a pivot": "WITH x AS (COPY (SELECT 1) TO '{live}' (USE_TMP_FILE false)) PIVOT turns ON gym USING count(*)",
    "delete as a CTE's body": "WITH x AS (DELETE FROM store.runs RETURNING *) SELECT * FROM x",
    "truncate as a CTE's body": "WITH x AS (TRUNCATE store.runs) SELECT 1",
    "update as a CTE's body": "WITH x AS (UPDATE store.runs SET seed = 0 RETURNING *) SELECT * FROM x",
    "serialized sql": "SELECT * FROM json_execute_serialized_sql(json_serialize_sql("
    "'WITH x AS (COPY (SELECT 1) TO ''{live}'' (USE_TMP_FILE false)) SELECT 1'))",
    "serialized sql by a quoted name": 'SELECT * FROM "json_execute_serialized_sql" /* a */ (json_serialize_sql('
    "'WITH x AS (COPY (SELECT 1) TO ''{live}'' (USE_TMP_FILE false)) SELECT 1'))",
    "checkpoint": "SELECT * FROM force_checkpoint()",
    "a listed file by a reader": "SELECT * FROM read_text('{live}')",
    "prepare": "PREPARE x AS COPY turns TO '{out}'",
}


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_in_one_sentence_and_changes_no_file(root: Path, name: str) -> None:
    out = root.parent / "stolen"
    text = ATTACKS[name].format(
        out=out,
        live=root / "runs/run=sealed/live/turns.00009.000001.jsonl",
        pack=next((root / "packs").iterdir()),
    )
    before = state(root)
    with pytest.raises((Refused, duckdb.Error)) as refusal:
        ask(root, text, seconds=1.0, memory=300_000_000)
    assert len(str(refusal.value).strip().splitlines()[0]) < 400
    assert state(root) == before
    assert not out.exists()


def test_each_lock_holds_alone() -> None:
    text = "WITH x AS (COPY (SELECT 1) TO 'x.csv') SELECT 1"
    for lock in (check_words, check_nodes):
        with raises("sql.not_a_select", "COPY"):
            lock(text)


def test_python_readers_cannot_be_made_to_write_either(root: Path) -> None:
    out = root.parent / "written.csv"
    with open_warehouse(root) as warehouse, raises("sql.not_a_select", "COPY"):
        warehouse.sql(f"WITH x AS (COPY (SELECT 1) TO '{out}') SELECT 1")
    assert not out.exists()


def test_python_variables_are_out_of_reach(root: Path) -> None:
    import pyarrow as pa

    secret = pa.table({"key": ["hidden"]})
    assert secret.num_rows == 1
    with pytest.raises((Refused, duckdb.Error)):
        ask(root, "SELECT * FROM secret")


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) FROM turns",
        "FROM turns SELECT gym, count(*) GROUP BY ALL",
        "WITH a AS (SELECT 1 AS x) SELECT * FROM a",
        "EXPLAIN SELECT * FROM turns",
        "EXPLAIN ANALYZE SELECT count(*) FROM turns",
        "DESCRIBE turns",
        "PIVOT turns ON gym USING count(*) GROUP BY step",
        "SELECT * FROM learning_curve(run := 'sealed')",
        "SHOW TABLES",
        "SELECT 'copy (select 1) to x; delete' AS \"copy\" -- delete\n FROM turns",
        "SELECT /* update */ gym AS é, 'ü' FROM turns",
        "SELECT unnest(range(3)), repeat('a', 3)",
    ],
)
def test_queries_are_answered(root: Path, text: str) -> None:
    assert len(ask(root, text).rows) >= 1


def test_packed_sealed_and_live_rows_are_all_in_the_answer(root: Path) -> None:
    assert ask(root, "SELECT count(*) FROM turns").rows == [[5]]


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize(
    "text",
    [
        "SELECT reverse(current_setting('allowed_paths')[1])",
        "SELECT parse_path(current_setting('allowed_paths')[1])",
        "SELECT reverse(value)::INT FROM duckdb_settings()",
        "SELECT * FROM duckdb_settings",
        'SELECT parse_path(value) FROM "duckdb_settings"()',
        "SELECT \"current_setting\"('secret_directory')",
        "PRAGMA database_list",
        "SELECT reverse(setting) FROM pg_catalog.pg_settings",
        'SELECT reverse(setting) FROM system.pg_catalog."PG_Settings"',
        "SELECT reverse(setting) FROM 'pg_settings'",
        "SUMMARIZE pg_settings",
        "PIVOT pg_settings ON name USING max(setting)",
        "EXPLAIN ANALYZE SELECT setting FROM (FROM pg_settings)",
        "SELECT * FROM pg_prepared_statements",
        "FROM duckdb_logs",
    ],
)
def test_settings_are_closed_since_they_hold_paths_of_this_machine(root: Path, text: str) -> None:
    with pytest.raises(Refused) as refusal:
        ask(root, text)
    assert str(root.parent) not in str(refusal.value)
    assert str(root.parent)[::-1] not in str(refusal.value)


def test_every_view_of_the_engine_either_is_closed_or_holds_no_setting() -> None:
    """The second lock alone, over all views: none of them shows the list of files that a question may read."""
    with duckdb.connect() as con:
        con.execute("SET allowed_paths = ['/secret/place']")
        for statement in SETTINGS_CLOSED:
            con.execute(statement)
        views = con.execute("SELECT schema_name || '.' || view_name FROM duckdb_views() WHERE internal").fetchall()
        assert ("pg_catalog.pg_settings",) in views
        for (view,) in views:
            assert "/secret/place" not in str(con.execute(f"SELECT * FROM {view}").fetchall()), view
        assert con.execute("SELECT current_setting('allowed_paths')").fetchall() == [(None,)]


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize(
    "text",
    [
        "SELECT path FROM duckdb_databases()",
        "SELECT sql FROM duckdb_views() WHERE schema_name = 'store' ORDER BY ALL",
        "EXPLAIN ANALYZE SELECT * FROM turns",
        "SELECT * FROM checkpoints",
    ],
)
def test_an_answer_holds_no_path_of_this_machine(root: Path, text: str) -> None:
    with TurnLog.open(root, "sealed") as log:
        log.checkpoint(CheckpointRecord("c", str(root.parent / "runs/c"), "rl-1", 1, "0" * 64))
    answer = json.dumps(ask(root, text).rows)
    assert str(root.parent) not in answer
    assert "packs" in answer or "$USERRL_HOME/runs/c" in answer or "live" in answer or "EXPLAIN" in text


def test_a_refusal_holds_no_path_and_the_process_no_key(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with pytest.raises(Refused) as refusal:
        ask(root, f"SELECT * FROM '{root}/manifest.json'")
    assert str(root.parent) not in str(refusal.value)
    with pytest.raises(Refused):
        ask(root, "SELECT * FROM '/proc/self/environ'")


def test_long_answers_are_cut_and_say_so(root: Path) -> None:
    answer = ask(root, "SELECT * FROM range(10000000)", limit=10)
    assert (len(answer.rows), answer.truncated) == (10, True)
    assert not ask(root, "SELECT * FROM range(10)", limit=10).truncated


def test_statement_kinds_are_named_in_the_refusal() -> None:
    with raises("sql.not_a_select", "INSERT"):
        check_statement("INSERT INTO runs VALUES (1)")
    with raises("sql.not_a_select", "has 2"):
        check_statement("SELECT 1; SELECT 2")
    with raises("sql.not_a_select", "has 0"):
        check_statement("  ")
