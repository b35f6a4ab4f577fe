"""The library from Python: train two tiny runs, compare them, ask the warehouse, draw a curve. No server is needed.

python examples/api.py [FOLDER]       # a minute on two cores; curve.png is written to FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import polars as pl

import userrl

TINY = {
    "demonstrations.episodes": 120,
    "demonstrations.top_k": 80,
    "cold_start.steps": 60,
    "algorithm.batch": 4,
    "evaluate.tasks": 20,
    "stages": [{"steps": 8, "horizon": 6, "mix": {"errand": 1}}],
}


def main(folder: str = ".") -> None:
    """Print scores and a comparison, and draw the learning curve of the first run."""
    equalized = userrl.train("equalized-r2g", overrides=TINY)
    naive = userrl.train("naive-sum", overrides=TINY)
    print(pl.concat([equalized.to_polars(), naive.to_polars()]).select("run", "actor", "gym", "score", "stderr"))
    print(userrl.compare(naive.run, equalized.run))
    print(userrl.sql("select turn, avg(reward) as reward from turns where run_id = $run group by all", run=naive.run))
    curve = equalized.curve().filter(pl.col("phase") == "train")
    plt.plot(curve["step"], curve["score"])
    plt.savefig(Path(folder) / "curve.png")


if __name__ == "__main__":
    main(*sys.argv[1:])
