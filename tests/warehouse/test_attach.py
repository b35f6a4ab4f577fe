from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from tests.places import ROOT
from tests.warehouse.makers import play
from tests.warehouse.test_compact import some_run
from warehouse import TurnLog, schema
from warehouse.query.attach import attach_script
from warehouse.upkeep.compact import compact
from warehouse.upkeep.data_dictionary import page


def test_the_script_shows_any_duckdb_client_the_same_rows(tmp_path: Path) -> None:
    some_run(tmp_path, "packed")
    compact(tmp_path)
    some_run(tmp_path, "sealed")
    with TurnLog.open(tmp_path, "live") as log:
        play(log, [0.0, 1.0], step=5)
        log.event("rewind", step=4)
        play(log, [1.0], step=5)
        with duckdb.connect() as client:
            client.execute(attach_script(tmp_path))
            assert client.execute("SELECT run_id, count(*) FROM turns GROUP BY 1 ORDER BY 1").fetchall() == [
                ("live", 1),
                ("packed", 15),
                ("sealed", 15),
            ]
            assert client.execute("SELECT count(*) FROM learning_curve(run := 'sealed')").fetchall() == [(5,)]
            assert client.execute("SELECT count(*) FROM learning_curve").fetchall() == [(11,)]
            assert client.execute("SELECT count(*) FROM runs").fetchall() == [(3,)]
            for path in tmp_path.glob("runs/run=live/live/*"):
                path.rename(path.with_suffix(".gone"))
            assert client.execute("SELECT count(*) FROM learning_curve").fetchall() == [(11,)]
            for path in tmp_path.glob("runs/run=live/live/*.gone"):
                path.rename(path.with_suffix(".jsonl"))
            told = "SELECT description FROM dictionary WHERE name = 'turns' AND column_name = 'turn'"
            assert client.execute(told).fetchall() == [("from 1 within the trajectory",)]


def test_an_older_duckdb_is_refused_with_a_sentence(tmp_path: Path) -> None:
    some_run(tmp_path, "r1")
    script = attach_script(tmp_path)
    assert script.startswith("-- For DuckDB 2 or newer")
    with duckdb.connect() as client, pytest.raises(duckdb.Error, match=r"needs DuckDB 2 or newer; this is v1\.4\.2\."):
        client.execute(script.replace("version()", "'v1.4.2'"))


def test_the_data_dictionary_is_the_one_in_the_docs() -> None:
    assert (ROOT / "docs" / "reference" / "schema.md").read_text() == page()
    for table in schema.tables().values():
        for column in table.columns.values():
            assert column.doc
