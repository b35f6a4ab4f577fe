"""The cost of a draw of the task sampler: ``python -m lab.benchmarks.sampler``.

Batches of 128 tasks from 100, 10,000 and 100,000, plain and with a quarter drawn again from mixed groups, across the end
of an epoch. A plain draw costs the same in every pool. A draw from mixed groups sums their weights, so it grows with the
pool.
"""

from __future__ import annotations

import argparse
import json
import time

from curricula.sampler import TaskSampler
from userrl_core.records import Task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = []
    for size in (200, 10_000, 100_000):
        tasks = [Task("travel", str(i), "train", {}) for i in range(size)]
        start = time.perf_counter()
        sampler = TaskSampler({"travel": tasks}, seed=0)
        made = time.perf_counter() - start
        plain = per_draw(sampler, 0.0)
        for i in range(0, size, 7):
            sampler.observe(f"travel/{i}", 0.5)
        again = per_draw(sampler, 0.25, draws=25_600)
        start = time.perf_counter()
        state = json.dumps(sampler.state_dict())
        sampler.load_state_dict(json.loads(state))
        saved = time.perf_counter() - start
        found.append({"tasks": size, "us": plain, "us_oversampled": again, "make_s": made, "save_and_load_s": saved})
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    for row in found:
        print(
            f"{row['tasks']:>7} tasks: {row['us']:5.1f} us a draw, {row['us_oversampled']:5.1f} us with a quarter drawn again; "
            f"made in {row['make_s']:.2f} s, saved and loaded in {row['save_and_load_s']:.2f} s"
        )


def per_draw(sampler: TaskSampler, oversample: float, draws: int = 256_000, batch: int = 128) -> float:
    """Return microseconds per draw. With 100,000 tasks an epoch ends on the way."""
    start = time.perf_counter()
    for _ in range(draws // batch):
        sampler.batch(batch, {"travel": 1.0}, oversample=oversample)
    return (time.perf_counter() - start) / draws * 1e6


if __name__ == "__main__":
    main()
