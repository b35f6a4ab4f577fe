"""More turns and more attempts for a trained laptop model (AgentGym-RL 5.1, figures 8 and 9, in miniature).

    python scripts/test_time_scaling.py CHECKPOINT [CHECKPOINT ...] [--recipe scaling-inter-textcraft]

Held-out tasks of the recipe. Turns: one greedy attempt at each horizon. Attempts: 16 at temperature 1 and the recipe's horizon;
pass@k is the chance that at least one of k of them succeeds, without replacement.
"""

from __future__ import annotations

import argparse
import asyncio
import warnings
from math import comb
from pathlib import Path

import curricula
from flows.run.tasks import gym_config, test_tasks
from flows.worker.device import device
from userrl_core.records import Trajectory
from userrl_core.rollout import run_episodes
from userrl_core.training.local.model import load_model
from userrl_core.training.local.policy import LocalPolicy
from userrl_core.training.local.tokenizer import load_tokenizer

HORIZONS = (3, 5, 8, 12, 16, 24, 32)
ATTEMPTS = 16
COUNTS = (1, 2, 4, 8, 16)


def main() -> None:
    """Print a row of turns and a row of attempts for each checkpoint."""
    parser = argparse.ArgumentParser(description="Turn and attempt scaling of laptop checkpoints.")
    parser.add_argument("checkpoints", nargs="+", type=Path)
    parser.add_argument("--recipe", default="scaling-inter-textcraft")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    recipe = curricula.load(arguments.recipe, "laptop")
    tasks = test_tasks(recipe)

    def play(checkpoint: Path, horizon: int, temperature: float, n: int) -> list[Trajectory]:
        policy = LocalPolicy(
            load_model(checkpoint, recipe.model, device()),
            load_tokenizer(checkpoint),
            temperature=temperature,
            max_tokens=recipe.algorithm.max_tokens,
            max_response_tokens=recipe.model.max_context - recipe.algorithm.max_prompt_tokens,
        )
        style, config = recipe.model.prompt_style, gym_config(recipe, evaluation=True)
        return asyncio.run(run_episodes(tasks, policy, horizon=horizon, n=n, prompt_style=style, gym_config=config))

    for checkpoint in arguments.checkpoints:
        print(f"{checkpoint}, {len(tasks)} tasks")
        shares = [(h, _mean(play(checkpoint, h, 0.0, 1))) for h in HORIZONS]
        print("  turns:    " + ", ".join(f"{h}: {share:.3f}" for h, share in shares), flush=True)
        found: dict[str, int] = {}
        for trajectory in play(checkpoint, recipe.evaluate.horizon, 1.0, ATTEMPTS):
            found[trajectory.task.id] = found.get(trajectory.task.id, 0) + (trajectory.stop_reason == "success")
        passed = [(k, sum(_pass_at(k, successes) for successes in found.values()) / len(found)) for k in COUNTS]
        print("  attempts: " + ", ".join(f"{k}: {share:.3f}" for k, share in passed), flush=True)


def _mean(trajectories: list[Trajectory]) -> float:
    return sum(t.score or 0.0 for t in trajectories) / len(trajectories)


def _pass_at(k: int, successes: int) -> float:
    return 1 - comb(ATTEMPTS - successes, k) / comb(ATTEMPTS, k)


if __name__ == "__main__":
    main()
