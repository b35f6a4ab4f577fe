"""The text index of the warehouse beside plain SQLite FTS5 (contentless, positions kept): building, size, searches.

    python benchmarks/warehouse.py --turns 1000000 --root /big/w --write r1 1
    python benchmarks/text_index.py --root /big/w

The plain index is here alone: `words` with unicode61, the same table of places, and as many turns read as are shown. Each
search is asked for the first time; medians of 20 texts taken from stored turns, and the slowest of them. CPU seconds, of all
threads, are there for machines that are busy with other work. An index that is there already is not built again.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from userrl_core.errors import ConfigError
from warehouse import Warehouse, open_warehouse
from warehouse.search.index import HIT_COLUMNS, INDEX, update_index
from warehouse.upkeep.compact import compact

LIMIT = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="a warehouse that benchmarks/warehouse.py wrote")
    given = parser.parse_args()
    print(json.dumps(measure(given.root), indent=2))


def measure(root: Path) -> dict[str, Any]:
    compact(root, everything=True, index=False)
    plain = root / "plain.sqlite"
    figures: dict[str, Any] = {"plain": {}, "ours": {}}
    with open_warehouse(root) as warehouse:
        if not plain.exists():
            figures["plain"]["build"] = timed(lambda: build(warehouse, plain))
        figures["plain"]["MB"] = plain.stat().st_size / 1e6
        report(figures)
        if not (root / INDEX).exists():
            figures["ours"]["build"] = timed(lambda: update_index(root, warehouse.turns_beyond))
        figures["ours"]["MB"] = (root / INDEX).stat().st_size / 1e6
        report(figures)
        texts = questions(warehouse)
        with closing(sqlite3.connect(plain)) as index:
            searches: dict[str, Callable[[str], object]] = {
                "ours": lambda text: warehouse.search(text, limit=LIMIT),
                "plain": lambda text: search(warehouse, index, text),
            }
            for kind, asked in texts.items():
                for form, ask in searches.items():
                    took = []
                    for text in asked:
                        try:
                            took.append(timed(partial(ask, text)))
                        except ConfigError as error:
                            figures[form][f"{kind}, refused"] = str(error)
                    each = [one["seconds"] * 1000 for one in took] or [0.0]
                    cpu = [one["cpu"] * 1000 for one in took] or [0.0]
                    figures[form][kind] = {
                        "median_ms": round(statistics.median(each), 1),
                        "median_cpu_ms": round(statistics.median(cpu), 1),
                        "worst_ms": round(max(each), 1),
                    }
                report(figures)
    return figures


def questions(warehouse: Warehouse) -> dict[str, list[str]]:
    """Words that stand in turns, rare and common, alone, together, in phrases and far from each other."""
    rows = warehouse.rows("SELECT content FROM (FROM turns WHERE turn = 2) USING SAMPLE 20 (reservoir, 5)")
    some = [row["content"].split() for row in rows]
    return {
        "one word": [words[3] for words in some],
        "two words": [f"{words[2]} {words[3]}" for words in some],
        "phrase of two words": [f'"{words[2]} {words[3]}"' for words in some],
        "phrase of four words": [f'"{" ".join(words[2:6])}"' for words in some],
        "words that are near": [f"NEAR({words[1]} {words[5]}, 4)" for words in some],
        "beginning of a word": [f"{words[4][:3]}*" for words in some],
        "words that never stand together": [f'"{words[0]} {words[0]} {words[0]}"' for words in some[:2]],
    }


def build(warehouse: Warehouse, path: Path) -> None:
    turns = warehouse.turns_beyond(frozenset())
    assert turns is not None
    with closing(sqlite3.connect(path, isolation_level=None)) as index:
        index.execute("PRAGMA cache_size = -131072")
        index.execute("CREATE VIRTUAL TABLE words USING fts5(body, content='', columnsize=0, tokenize='unicode61')")
        index.execute("CREATE TABLE places (first_doc INTEGER PRIMARY KEY, traj_id INTEGER, first_turn INTEGER)")
        index.execute("BEGIN")
        doc, expected = 0, None
        for batch in turns.batches:
            for traj_id, turn, text in batch:
                doc += 1
                if expected != (traj_id, turn):
                    index.execute("INSERT INTO places VALUES (?, ?, ?)", (doc, traj_id, turn))
                expected = (traj_id, turn + 1)
                index.execute("INSERT INTO words(rowid, body) VALUES (?, ?)", (doc, text))
        index.execute("COMMIT")


def search(warehouse: Warehouse, index: sqlite3.Connection, text: str) -> object:
    docs = index.execute(
        "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid DESC LIMIT ?", (text, LIMIT)
    ).fetchall()
    keys = []
    for (doc,) in docs:
        first, traj_id, turn = index.execute(
            "SELECT first_doc, traj_id, first_turn FROM places WHERE first_doc <= ? ORDER BY first_doc DESC LIMIT 1",
            (doc,),
        ).fetchone()
        keys.append((traj_id, turn + doc - first))
    return warehouse.turns_at(keys, HIT_COLUMNS)


def timed(work: Callable[[], object]) -> dict[str, float]:
    began, cpu = time.perf_counter(), time.process_time()
    work()
    return {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}


def report(figures: object) -> None:
    print(json.dumps(figures), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
