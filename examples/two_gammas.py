"""A sweep from Python: two discounts of the return-to-go, each a run of `train`; the winner again on a fresh seed.

python examples/two_gammas.py [STEPS]       # about two minutes with 20 steps
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import yaml

import userrl

SPACE = {
    "name": "two-gammas",
    "source": "ours: an example",
    "recipe": "equalized-r2g",
    "parameters": {"gamma": {"key": "credit.gamma", "options": [0.6, 0.9]}},
    "sampler": {"name": "grid"},
    "budget": {"trials": 2},
    "pruning": {"enabled": False},
    "confirm": {"top": 1, "seeds": [101]},
}


def main(steps: int = 20) -> None:
    """Print the winner, and the limits of a result from one seed."""
    shorter = {
        "stages": [{"steps": steps, "horizon": 6, "mix": {"errand": 1}}],
        "evaluate.every": max(1, steps // 2),
        "evaluate.tasks": 40,
        "demonstrations.episodes": 150,
        "demonstrations.top_k": 100,
        "cold_start.steps": 80,
    }
    with tempfile.TemporaryDirectory() as folder:
        space = Path(folder) / "two-gammas.yaml"
        space.write_text(yaml.safe_dump(SPACE))
        # Trials as child processes: no server and no worker needed. Killed and started again, it goes on where it stopped.
        done = userrl.sweep(str(space), parallel=2, overrides=shorter)
    print(f"{done.trials} trials; {done.claim}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
