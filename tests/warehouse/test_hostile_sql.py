# ruff: noqa: E501
"""Statements that ask for all of the time and memory there is: each ends within its limits, and leaves nothing running."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.warehouse.makers import play
from userrl_core.errors import Refused
from warehouse import TurnLog
from warehouse.query.sandbox import ask

SECONDS, MEMORY = 2.0, 400_000_000
MB_BEYOND, SECONDS_BEYOND = 200, 5.0  # the seconds: a wait for the processor beside other tests

FORTY = {
    "list_transform": "SELECT len(list_transform(range(100000000), lambda x: x + 1))",
    "list of lists": "SELECT len(list_transform(range(10000000), lambda x: range(100)))",
    "list_filter": "SELECT len(list_filter(range(200000000), lambda x: x % 2 = 0))",
    "list_reduce": "SELECT list_reduce(list_transform(range(3000000), lambda x: x::varchar), lambda a, b: a || b)",
    "list_sort": "SELECT list_sort(list_transform(range(100000000), lambda x: hash(x)))[1]",
    "flatten": "SELECT len(flatten(list_transform(range(100000), lambda x: range(10000))))",
    "repeat": "SELECT length(repeat('x', 1500000000))",
    "repeat of repeat": "SELECT length(repeat(repeat('x', 1000000), 4000))",
    "many repeats": "SELECT sum(length(repeat('x', 100000000))) FROM range(100)",
    "repeat kept": "SELECT max(repeat('x', 50000000) || i) FROM range(100) t(i)",
    "lpad": "SELECT length(lpad('x', 2000000000, 'y'))",
    "string_agg": "SELECT length(string_agg(repeat('x', 1000), '')) FROM range(100000000)",
    "list aggregate": "SELECT len(list(i)) FROM range(2000000000) t(i)",
    "array_agg of text": "SELECT len(array_agg(repeat('x', 10000))) FROM range(1000000)",
    "histogram": "SELECT cardinality(histogram(i)) FROM range(200000000) t(i)",
    "distinct": "SELECT count(DISTINCT hash(i)) FROM range(1000000000) t(i)",
    "group by": "SELECT i, count(*) FROM range(1000000000) t(i) GROUP BY i ORDER BY 2 DESC LIMIT 1",
    "order by": "SELECT hash(i) h FROM range(1000000000) t(i) ORDER BY h OFFSET 500000000 LIMIT 1",
    "window": "SELECT max(s) FROM (SELECT sum(i) OVER (ORDER BY hash(i)) s FROM range(500000000) t(i))",
    "cross join": "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE (a.range * b.range) % 7 = 8",
    "cross join of five": "SELECT sum(a.range ^ e.range) FROM range(9999) a, range(9999) b, range(9999) c, range(9999) d, range(9999) e",
    "self join": "SELECT count(*) FROM range(100000000) a(x) JOIN range(100000000) b(y) ON x // 1000 = y // 1000",
    "recursion without end": "WITH RECURSIVE t(n) AS (SELECT 1::HUGEINT UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t",
    "recursion that doubles": "WITH RECURSIVE t(s) AS (SELECT 'x' UNION ALL SELECT s || s FROM t) SELECT max(length(s)) FROM t",
    "recursion that multiplies": "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t, range(10)) SELECT count(*) FROM t",
    "sleep": "SELECT sleep_ms(600000)",
    "sleep per row": "SELECT count(sleep_ms(100)) FROM range(100000)",
    "levenshtein": "SELECT levenshtein(repeat('ab', 500000), repeat('ba', 500000))",
    "damerau_levenshtein": "SELECT damerau_levenshtein(repeat('ab', 50000), repeat('ba', 50000))",
    "jaro_winkler": "SELECT jaro_winkler_similarity(repeat('ab', 2000000), repeat('ba', 2000000))",
    "json nested": "SELECT json_array_length(json(repeat('[', 50000000) || repeat(']', 50000000)))",
    "json wide": "SELECT len(json_keys(json_group_object(i, i))) FROM range(100000000) t(i)",
    "json extract all": "SELECT len(json_extract(to_json(range(20000000)), '$[*]'))",
    "json structure": "SELECT json_structure(to_json(list_transform(range(3000000), lambda x: {'a': x, 'b': [x, x]})))",
    "regular expression": "SELECT sum(regexp_matches(i || repeat('a', 9000), '(a?){300}a{300}$')::INT) FROM range(9999999) t(i)",
    "regular expression on rows": "SELECT count(*) FROM range(99999999) t(i) WHERE regexp_matches(repeat('ab', i % 9999), '((a|b)*a(a|b){12})+c')",
    "regexp_extract_all": "SELECT len(regexp_extract_all(repeat('ab', 100000000), 'a'))",
    "regexp_replace": "SELECT length(regexp_replace(repeat('a', 50000000), 'a', repeat('b', 1000), 'g'))",
    "factorial of power": "SELECT sum(bit_count((i ^ 13)::VARCHAR::BLOB::BIT)) FROM range(1000000000) t(i)",
    "pivot": "PIVOT (SELECT i % 90000 AS k, i AS v FROM range(50000000) t(i)) ON k USING sum(v)",
}
QUICK = (
    "list_transform",
    "repeat",
    "sleep",
    "levenshtein",
    "recursion without end",
    "json nested",
    "regular expression",
)
SLOW = ("list_sort", "distinct", "cross join", "recursion that multiplies", "json wide", "regexp_replace", "pivot")
"""Two of each kind; the others are full only because they are many."""


def marked(name: str) -> object:
    marks = [] if name in QUICK else [pytest.mark.slow] if name in SLOW else [pytest.mark.slow, pytest.mark.full]
    return pytest.param(name, marks=marks)


CLOSED = [
    # files and the outside
    "SELECT * FROM read_csv_auto('/etc/passwd')",
    "SELECT * FROM '/etc/hostname'",
    "SELECT * FROM glob('/**')",
    "FROM read_blob('/proc/self/mem')",
    "FROM read_parquet('runs/*/sealed/*.parquet')",
    "FROM parquet_scan('/tmp/x.parquet')",
    "FROM read_json_auto('http://127.0.0.1:9/x.json')",
    "FROM 'https://example.com/x.parquet'",
    "FROM sniff_csv('/etc/passwd')",
    "FROM read_duckdb('packs/x.duckdb')",
    "FROM sqlite_scan('search.sqlite', 'turns')",
    "FROM iceberg_scan('x')",
    "FROM parquet_schema('/etc/passwd')",
    "FROM parquet_file_metadata('/etc/passwd')",
    "FROM arrow_scan(1, 2, 3)",
    "FROM query('COPY turns TO ''x''')",
    "FROM query_table('turns')",
    "SELECT getenv('HOME')",
    "SELECT * FROM duckdb_secrets()",
    "FROM which_secret('s3://x', 's3')",
    "FROM duckdb_logs()",
    "FROM duckdb_temporary_files()",
    "FROM python_map_function(1)",
    # statements that change or open something
    "ATTACH '/tmp/x.db' AS x",
    "DETACH memory",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET memory_limit = '100GB'",
    "RESET memory_limit",
    "PRAGMA enable_profiling",
    "PRAGMA database_list",
    "EXPORT DATABASE '/tmp/x'",
    "IMPORT DATABASE '/tmp/x'",
    "CREATE TEMP TABLE t AS SELECT 1",
    "CREATE MACRO f(x) AS x",
    "VACUUM",
    "CHECKPOINT",
    "BEGIN TRANSACTION",
    "CALL pragma_version()",
    "USE memory",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "SELECT 1; DROP TABLE turns",
    "WITH x AS (DELETE FROM turns RETURNING *) FROM x",
    "WITH x AS (COPY turns TO '/tmp/x') SELECT 1",
    "EXPLAIN ANALYZE DELETE FROM turns",
    "EXPLAIN COPY turns TO '/tmp/x'",
    "SELECT nextval('s')",
    "SELECT write_log('x')",
    "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
    "FROM force_checkpoint()",
]
"""Statements that open files or change something."""

HEAVY = [
    "SELECT list_zip(range(50000000), range(50000000), range(50000000))",
    "SELECT string_split(repeat('a,', 200000000), ',')",
    "SELECT bitstring_agg(i, 0, 2000000000) FROM range(2000000000) t(i)",
    "SELECT array_to_string(range(100000000), repeat(',', 1000))",
    "SELECT approx_quantile(random(), 0.5) FROM range(100000000000)",
    "SELECT format('{:2000000000}', 1)",
    "SELECT printf('%2000000000d', 1)",
    "SELECT " + "(" * 20_000 + "1" + ")" * 20_000,
    "SELECT " + " + ".join(["1"] * 100_000),
]
"""Statements that ask for time and memory without end, or for a deep parser."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("warehouse")
    with TurnLog.open(folder, "r1") as log:
        play(log, [0.0, 1.0])
    return folder


class Watch:
    """The peak memory of the processes that this one starts meanwhile, in MB."""

    def __init__(self) -> None:
        self.peak = 0.0
        self._before = set(psutil.Process(os.getpid()).children(recursive=True))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        me = psutil.Process(os.getpid())
        while not self._over.wait(0.02):
            for child in set(me.children(recursive=True)) - self._before:
                with contextlib.suppress(OSError, IndexError):
                    if b"warehouse.query" not in Path(f"/proc/{child.pid}/cmdline").read_bytes():
                        continue  # between fork and exec it still has this process's memory
                    status = Path(f"/proc/{child.pid}/status").read_text()
                    self.peak = max(self.peak, int(status.split("VmHWM:")[1].split()[0]) / 1000)


@pytest.mark.parametrize("name", [marked(name) for name in FORTY])
def test_a_hostile_statement_ends_within_its_limits(root: Path, name: str) -> None:
    before = set(psutil.Process(os.getpid()).children())
    began = time.monotonic()
    with Watch() as watch, pytest.raises(Refused):
        ask(root, FORTY[name], seconds=SECONDS, memory=MEMORY)
    took = time.monotonic() - began
    print(f"{name:30s} {took:5.2f} s {watch.peak:6.0f} MB")
    assert took < SECONDS + SECONDS_BEYOND
    assert watch.peak < MEMORY / 1e6 + MB_BEYOND
    assert set(psutil.Process(os.getpid()).children()) <= before


def test_there_are_forty() -> None:
    assert len(FORTY) == 40
    assert {*QUICK, *SLOW} <= set(FORTY)


@pytest.mark.slow
def test_sixty_further_statements_are_refused_and_change_no_file(root: Path) -> None:
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    for seconds, statements in ((8.0, CLOSED), (SECONDS, HEAVY)):
        for text in statements:
            with pytest.raises(Refused):
                ask(root, text, seconds=seconds, memory=MEMORY)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
