"""A text defines the shipped queries that it uses, and no other."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from tests.warehouse.makers import play
from warehouse import TurnLog, open_warehouse, views
from warehouse.query.connection import Connection, shipped_queries, used_queries


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("warehouse")
    with TurnLog.open(root, "r1", run_fields={"recipe": "r"}) as log:
        play(log, [0.5, 1.0])
    return root


def test_what_a_query_uses_is_all_that_it_needs(root: Path) -> None:
    with Connection(root) as connection:
        cursor: duckdb.DuckDBPyConnection = connection._con
        for query in views.queries().values():
            needed = ", ".join(f"{key} := NULL" for key, default in query.params.items() if default is None)
            cursor.execute("BEGIN")
            for name in used_queries(f"FROM {query.name}({needed})"):
                cursor.execute(shipped_queries()[name])
            assert cursor.execute(f"DESCRIBE FROM {query.name}({needed})").fetchall(), query.name
            cursor.execute("ROLLBACK")


def test_a_text_uses_few_queries_and_a_question_about_names_all_of_them(root: Path) -> None:
    assert used_queries("SELECT count(*) FROM turns JOIN runs USING (run_id)") == []
    assert used_queries("FROM Learning_Curve(run := 'r1')") == ["learning_curve"]
    with open_warehouse(root) as warehouse:

        def names() -> set[str]:
            found = warehouse._connection._con.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal")
            return {name for (name,) in found.fetchall()} & views.queries().keys()

        assert names() == set()
        assert warehouse.sql("SELECT count(*) FROM learning_curve").fetchall() == [(1,)]
        assert "learning_curve" in names()
        assert "gym_scores" not in names()
        warehouse.sql("SHOW TABLES").fetchall()
        assert "gym_scores" in names()


def test_a_query_whose_name_is_put_together_is_found(root: Path) -> None:
    with open_warehouse(root) as warehouse:
        assert warehouse.sql("SELECT count(*) FROM query_table('learning_' || 'curve')").fetchall() == [(1,)]
