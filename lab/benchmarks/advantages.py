"""Speed of advantages for a large batch, compared with a plain loop over tokens: ``python -m lab.benchmarks.advantages``.

The batch has 1,024 trajectories of 16 turns and 8,192 agent tokens each, in groups of 8, on one core. ``per turn``: one
number per turn, as some trainers need. ``at tokens``: also write all 8.4 million tokens, in float32.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from userrl_core.rewards import CreditConfig, assign_credit, spread_to_tokens

GAMMA = 0.8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    trajectories, turns, tokens = 1024, 16, 8192
    rewards = (rng.random((trajectories, turns)) * (rng.random((trajectories, turns)) < 0.3)).tolist()
    counts = [(rng.multinomial(tokens - turns, [1 / turns] * turns) + 1).tolist() for _ in range(trajectories)]
    groups = [i // 8 for i in range(trajectories)]
    medians: dict[str, float] = {}
    for shaping in ("equalized", "r2g", "em"):

        def run(shaping: str = shaping) -> object:
            return assign_credit(rewards, groups, CreditConfig(shaping=shaping), turn_tokens=counts)

        medians[f"{shaping}, per turn"] = median_ms(run, arguments.repeats)
    credits = assign_credit(rewards, groups, CreditConfig(shaping="r2g"), turn_tokens=counts)
    medians["spread to 8.4 M tokens"] = median_ms(
        lambda: spread_to_tokens(credits.advantages, counts), arguments.repeats
    )
    medians["r2g, at tokens"] = median_ms(
        lambda: spread_to_tokens(
            assign_credit(rewards, groups, CreditConfig(shaping="r2g"), turn_tokens=counts).advantages, counts
        ),
        arguments.repeats,
    )
    plain = token_loop(rewards, counts, groups)
    medians["r2g, plain loop over tokens"] = median_ms(lambda: token_loop(rewards, counts, groups), 1)
    ours = spread_to_tokens(credits.advantages, counts, dtype=np.float64)
    worst = float(np.abs(ours - np.concatenate([np.asarray(row) for row in plain])).max())
    print(f"{trajectories} trajectories x {turns} turns x {tokens} tokens, median of {arguments.repeats}")
    for name, ms in medians.items():
        print(f"{name:<40} {ms:10.2f} ms")
    print(f"largest difference to the plain loop: {worst:.1e}")


def token_loop(rewards: list[list[float]], counts: list[list[int]], groups: list[int]) -> list[list[float]]:
    """Compute form released with r2g and r2g, token by token in plain Python, as the baseline."""
    scores = [sum(GAMMA**t * r for t, r in enumerate(row)) for row in rewards]
    members: dict[int, list[float]] = {}
    for group, score in zip(groups, scores, strict=True):
        members.setdefault(group, []).append(score)
    credits = []
    for row, tokens, group, score in zip(rewards, counts, groups, scores, strict=True):
        mates = members[group]
        z = (score - statistics.fmean(mates)) / (statistics.pstdev(mates) + 1e-6)
        credit, ahead = [0.0] * len(row), 0.0
        for t in range(len(row) - 1, -1, -1):
            ahead = row[t] + GAMMA * ahead
            credit[t] = ahead
        token_credit = []
        for t, n in enumerate(tokens):
            for _ in range(n):
                token_credit.append(credit[t])
        total, counted = 0.0, 0
        for value in token_credit:
            total += value
            counted += value != 0.0
        credits.append([value * z * counted / total if total else 0.0 for value in token_credit])
    return credits


def median_ms(run: Callable[[], object], repeats: int) -> float:
    run()
    durations = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        durations.append((time.perf_counter() - start) * 1e3)
    return statistics.median(durations)


if __name__ == "__main__":
    main()
