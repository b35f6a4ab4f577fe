"""TRL's GRPOTrainer on a gym of ours: TextCraft's tiny tier, from a cold start made by `userrl train`.

    python -m lab.checks.trl_grpo [--steps 100] [--seed 0] [--out trl-grpo] [--venv FOLDER]

Creates an environment with TRL, whose transformers version conflicts with ours, and runs examples/trl_grpo/train.py in
it. OUT gets the model and curve.csv: the mean reward of every step with its 95 % interval over the step's tasks. Then our
own evaluation plays the held-out tasks with both checkpoints. Takes 309 CPU seconds including pip (12 minutes on two busy
cores).
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import userrl
from analysis.measure.checkpoints import mean_score
from lab.environments import python_with
from userrl.evaluation.evaluate import ScoredEvaluation
from userrl_core.number_format import with_limits

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "torch==2.13.0",
    "transformers==5.23.0",
    "trl==1.16.0",
    "datasets==5.2.0",
    "accelerate==1.15.0",
    "numpy==2.4.6",
)
RECIPE: dict[str, Any] = {"recipe": "sft-agentgym", "profile": "laptop"}
"""The cold start alone, on TextCraft."""


def main() -> None:
    """Print the first and last step's reward, and the held-out scores before and after."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("trl-grpo"))
    parser.add_argument("--venv", type=Path, default=Path(tempfile.gettempdir()) / "userrl-trl-grpo")
    arguments = parser.parse_args()
    if arguments.out.exists():
        parser.error(f"{arguments.out} exists; name another folder with --out.")
    python = python_with(arguments.venv, *PACKAGES)
    start = userrl.train(**RECIPE, seed=arguments.seed).checkpoint
    assert start is not None
    command = [python, ROOT / "examples/trl_grpo/train.py", start, arguments.out]
    options = ["--steps", str(arguments.steps), "--seed", str(arguments.seed)]
    offline = {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **offline, "PYTHONPATH": str(ROOT)}
    subprocess.run([*command, *options], env=environment, check=True)
    lines = (arguments.out / "rewards.jsonl").read_text().splitlines()
    print(write_curve(map(json.loads, lines), arguments.out / "curve.csv"))
    for label, folder in (("cold start", start), ("after TRL", arguments.out / "model")):
        done = userrl.evaluate(str(folder), **RECIPE, gyms=["textcraft"], seed=arguments.seed, progress=False)
        assert isinstance(done, ScoredEvaluation)
        print(f"{label}, {done.rows[0].tasks} held-out tasks, greedy: {done.rows[0].interval()}")


def write_curve(steps: Iterable[Mapping[str, Any]], file: Path) -> str:
    """Write the curve, and return a sentence about its ends. steps: the rewards of each step, by task."""
    curve = [(step["step"], mean_score(step["rewards"]), sum(map(len, step["rewards"]))) for step in steps]
    with file.open("w", newline="") as lines:
        rows = csv.writer(lines, lineterminator="\n")
        rows.writerow(("step", "reward", "low", "high", "tasks", "conversations"))
        for step, mean, played in curve:
            limits = (f"{value:.4f}" for value in (mean.estimate, mean.low, mean.high))
            rows.writerow((step, *limits, mean.units, played))
    (first, before, _), (last, after, _) = curve[0], curve[-1]
    return f"reward of step {first}: {with_limits(before)}, of step {last}: {with_limits(after)}"


if __name__ == "__main__":
    main()
