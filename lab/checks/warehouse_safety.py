"""Attacks on the warehouse: processes killed and stopped at random, and bits flipped in its files.

    python -m lab.checks.warehouse_safety --kills 300 --flips 200

Kills (`tests.warehouse.torture`): writers of two threads with giant turns, two compactors and a reader. Nothing may be
lost, doubled or missing from the text index. Flips: each must be reported in one sentence that names the file, or change
nothing. No query and no command may end with a raw database error.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

from tests.warehouse.makers import play
from tests.warehouse.torture import Outcome, torture
from userrl_core.errors import UserRLError
from userrl_core.records import CheckpointRecord
from warehouse import TurnLog, schema
from warehouse.files.runs import TrialRecord, record_trial
from warehouse.query.connection import Connection
from warehouse.upkeep import compact as compaction
from warehouse.upkeep.check import check
from warehouse.upkeep.compact import compact
from warehouse.upkeep.maintain import maintain

FORMS = {
    "live": "runs/*/live/*",
    "sealed": "runs/*/sealed/*",
    "packs": "packs/*",
    "run.json": "runs/*/run.json",
    "trials": "trials/*",
    "manifest": "manifest.json",
    "FORMAT": "FORMAT",
}
"""Files that a flip may hit, by content. Each form is hit equally often."""

UNREPAIRED = ("runs", "trials")
"""Tables whose damaged rows are reported but not repaired."""

Rows = set[tuple[object, ...]]


@dataclass
class Flips:
    """The results of flips: harmless and told by form; silent and raw are failures, in words."""

    harmless: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    silent: list[str] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not (self.silent or self.raw)


def flips(folder: Path, count: int, *, seed: int = 0, say: Callable[[str], None] = print) -> Flips:
    """Flip one bit at a time in a fresh copy of a small warehouse with rows in every form."""
    whole, outcome = folder / "whole", Flips()
    _fill(whole)
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as processes:
        for number, one in enumerate(
            processes.map(_flip, repeat(whole), repeat(_rows(whole)), repeat(seed), range(count)), 1
        ):
            outcome.harmless += one.harmless
            outcome.told += one.told
            outcome.silent += one.silent
            outcome.raw += one.raw
            for finding in (*one.silent, *one.raw):
                say(finding)
            if number % 10 == 0:
                say(f"{number} flips: {sum(outcome.told.values())} told, {sum(outcome.harmless.values())} harmless")
    return outcome


def _flip(whole: Path, before: Rows, seed: int, number: int) -> Flips:
    compaction.GRACE_SECONDS = 0.0  # nobody else reads these copies
    draw, outcome = random.Random(f"{seed} {number}"), Flips()
    form = draw.choice(list(FORMS))
    file = draw.choice(sorted(whole.glob(FORMS[form])))
    bit = draw.randrange(file.stat().st_size * 8)
    root = whole.with_name(f"flip-{number}")
    shutil.copytree(whole, root)
    damaged = root / file.relative_to(whole)
    content = bytearray(damaged.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    damaged.write_bytes(content)
    _judge(outcome, root, damaged, form, f"{file.relative_to(whole)} bit {bit}", before)
    shutil.rmtree(root)
    return outcome


def _judge(outcome: Flips, root: Path, damaged: Path, form: str, place: str, before: Rows) -> None:
    sentences: list[str] = []
    try:
        sentences += [problem.sentence for problem in check(root).problems]
        try:
            changed = _rows(root) != before
        except UserRLError as error:
            changed = True
            sentences.append(str(error))
        told = any(damaged.name in sentence and "\n" not in sentence for sentence in sentences)
        try:
            compact(root, everything=True)
        except UserRLError as error:
            sentences.append(str(error))
        if told:
            maintain(root)
        after = _rows(root)
    except Exception as error:  # noqa: BLE001 (whatever it is: that is the finding)
        outcome.raw.append(f"{place}: {type(error).__name__}: {error}")
        return
    if told:
        outcome.told[form] += 1
    elif changed:
        outcome.silent.append(f"{place}: {sentences}")
    else:
        outcome.harmless[form] += 1
    if invented := {row for row in after - before if row[0] not in UNREPAIRED}:
        outcome.silent.append(f"{place}: rows that were never written: {list(invented)[:2]}")


def _fill(root: Path) -> None:
    """Write three runs: one packed, one sealed, one live, as if the process had just died."""
    for run in ("packed", "sealed", "live"):
        log = TurnLog.open(root, run, run_fields={"name": run, "seed": 1})
        for step in range(12):
            play(log, [0.0, 0.5, 1.0], step=step, calls=1, credits=[1.0, 2.0, 3.0], text=f"word{step} " * 20)
            log.metrics({"loss": step / 7}, stage="rl-1", step=step)
        log.stage("rl-1", "finished", steps=12)
        log.checkpoint(CheckpointRecord("c1", "/nowhere", "rl-1", 12, "0" * 64))
        if run == "live":
            log.flush()
            stopped = root.with_name("stopped")
            shutil.copytree(root, stopped)
            log.close()
            shutil.rmtree(root)
            stopped.rename(root)
        else:
            log.close()
        if run == "packed":
            compact(root)
    record_trial(root, TrialRecord("study", 1, "packed", "complete", 0.5))


def _rows(root: Path) -> Rows:
    """Return every stored row of every table as text, and credits where they count, since packing joins them to their turns."""
    sources = {table: f"FROM store.{table}" for table in (*schema.LOGGED, "runs", "trials")}
    sources["turns"] = "SELECT * EXCLUDE (shaped, advantage) FROM store.turns"
    sources["credits"] = "SELECT traj_id, turn, shaped, advantage FROM store.credited_turns WHERE shaped IS NOT NULL"
    with Connection(root) as stored:

        def rows(text: str) -> list[tuple[object, ...]]:
            return stored.steady(lambda cursor, _: cursor.execute(text).fetchall())

        return {(table, *map(repr, row)) for table, text in sources.items() for row in rows(text)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--flips", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as beside:
        # At the same time: kills mostly wait for their victims, whose writers take what processor time is left.
        flipping = beside.submit(flips, Path(folder), arguments.flips, seed=arguments.seed)
        killed = (
            torture(Path(folder) / "kills", arguments.kills, seed=arguments.seed, hard=True)
            if arguments.kills
            else Outcome()
        )
        flipped = flipping.result()
        print(flipped, killed, sep="\n")
    sys.exit(0 if flipped.sound and killed.sound else 1)


if __name__ == "__main__":
    main()
