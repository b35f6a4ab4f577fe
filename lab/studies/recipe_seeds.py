"""Recipes over the same seeds, then their comparison: which collapse, and do they differ?

    python -m lab.studies.recipe_seeds naive-sum equalized-r2g [--profile laptop-quick] [--seeds 12-19] [--html FILE]

Each seed of each recipe is an ordinary run of the home in $USERRL_HOME. Finished runs are reused and interrupted ones
continue. USERRL_THREADS=1 fixes the order of sums on every machine. Ends with `userrl compare`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from flows.train import train


def main() -> int:
    """Run what is missing, then compare. Returns 1 if a run failed."""
    parser = argparse.ArgumentParser(description="Recipes over the same seeds, then their comparison.")
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--profile", default="laptop-quick")
    parser.add_argument("--seeds", default="12-19", help="first-last")
    parser.add_argument("--html", help="write the comparison there too")
    arguments = parser.parse_args()
    first, last = map(int, arguments.seeds.split("-"))
    for seed in range(first, last + 1):
        for recipe in arguments.recipes:
            began = time.monotonic()
            done = train(recipe=recipe, profile=arguments.profile, seed=seed, wandb="off")
            cpu = sum(done["cpu_seconds"].values())
            print(f"{done['run']}: {cpu:.0f} CPU-s, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    sides = [f"recipe={recipe},profile={arguments.profile},seed={arguments.seeds}" for recipe in arguments.recipes]
    page = ["--html", arguments.html] if arguments.html else []
    return subprocess.run([sys.executable, "-m", "flows.cli.main", "compare", *sides, *page], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
