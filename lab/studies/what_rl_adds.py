"""The gain from RL over its cold start, by allowed turns and by attempts (AgentGym-RL's figures 8 and 9, over seeds).

    userrl reproduce short-plateaus --seeds 8
    python -m lab.studies.what_rl_adds                    # plays what is missing, then prints the table

The policies are the cold start and the last step of the claim's arm `long`, one pair per seed, on test tasks that the seed
draws: greedy at each horizon, and many attempts at temperature 1 and the training horizon. A pair's difference is one
observation.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from analysis.measure.interval import t_interval
from curricula.claims import load_claim
from userrl.claims.register import runs_of
from userrl.machine.home import home, runs_dir, warehouse_dir
from warehouse import open_warehouse

CLAIM, ARM = "short-plateaus", "long"
TURNS = (4, 8, 16, 32)
ATTEMPTS = 64
SHOWN = (1, 2, 4, 8, 16, 32, 64)
"""Attempts in the table's columns."""

Found = dict[str, float]
"""Score by column: ``8 turns``, ``pass@8``."""


def main() -> None:
    """Evaluate and print."""
    argparse.ArgumentParser(description="What RL adds, by turns and attempts.").parse_args()
    claim = load_claim(CLAIM)
    text = (
        "SELECT seed, run_id FROM claim_arms(of_claim := $claim) WHERE hash = $hash AND arm = $arm AND state = 'ended'"
    )
    with open_warehouse(warehouse_dir(), run=runs_of([CLAIM])) as warehouse:
        rows = warehouse.rows(f"{text} ORDER BY seed", claim=CLAIM, hash=claim.hash, arm=ARM)
    played: list[tuple[Found, Found]] = []
    for row in rows:
        stages = runs_dir() / row["run_id"] / "stages"
        before, after = (sorted(stages.glob(f"{stage}/checkpoints/step-*"))[-1] for stage in ("sft", "rl-*"))
        played.append((scores(before, row["seed"], claim.horizon), scores(after, row["seed"], claim.horizon)))
        print(f"seed {row['seed']}: {len(played)} of {len(rows)}", file=sys.stderr, flush=True)
    print("\n".join(table(played)))


def scores(checkpoint: Path, seed: int, horizon: int) -> Found:
    """Return the scores of one policy. Earlier evaluations are reused."""
    greedy = grid(checkpoint, seed, "greedy", ["--turns", ",".join(map(str, TURNS))])
    tried = ["--turns", str(horizon), "--attempts", str(ATTEMPTS), "--temperature", "1"]
    sampled = {int(row["k"]): float(row["pass_at_k"]) for row in grid(checkpoint, seed, "sampled", tried)}
    by_turns = {f"{row['horizon']} turns": float(row["score"]) for row in greedy}
    return {**by_turns, **{f"pass@{k}": sampled[k] for k in SHOWN}}


def grid(checkpoint: Path, seed: int, how: str, options: Sequence[str]) -> list[Mapping[str, str]]:
    """Return the lines that `userrl evaluate` writes. Earlier evaluations are reused."""
    folder = home() / "what-rl-adds"
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / f"{seed}-{checkpoint.parents[1].name}-{how}.csv"
    command = [sys.executable, "-m", "flows.cli.main", "evaluate", str(checkpoint), "--seed", str(seed)]
    subprocess.run([*command, *options, "--out", str(out)], check=True, stdout=subprocess.DEVNULL)
    with out.open() as file:
        return list(csv.DictReader(file))


def table(played: Sequence[tuple[Found, Found]]) -> list[str]:
    """Return three rows over seeds: before, after, and the paired difference."""
    columns = list(played[0][0])
    lines = [f"| | {' | '.join(columns)} |", "| --- |" + " ---: |" * len(columns)]
    rows = {
        "SFT": [before for before, _ in played],
        "RL, last step": [after for _, after in played],
        "RL less SFT": [{name: after[name] - before[name] for name in columns} for before, after in played],
    }
    for name, values in rows.items():
        intervals = [t_interval(np.array([each[column] for each in values])) for column in columns]
        lines.append(
            f"| {name} | " + " | ".join(f"{i.estimate:.3f} [{i.low:.3f}, {i.high:.3f}]" for i in intervals) + " |"
        )
    return lines


if __name__ == "__main__":
    main()
