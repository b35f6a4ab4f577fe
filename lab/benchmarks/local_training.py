"""Learning of the local backend on a laptop: demonstrator, cold start and RL on held-out TravelGym (tiny tier), per seed.

    python -m lab.benchmarks.local_training --seeds 0 1 2 --algorithm grpo

One process per seed, so that CPU time belongs to one seed. Prints one line per seed; --json for programs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from userrl_core.training.local.threads import quiet_threads

HORIZONS = ((15, 4), (30, 5), (60, 6))
"""Last step and horizon of each stage, for 60 steps."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--algorithm", choices=["grpo", "rloo", "ppo", "reinforce_pp", "remax"], default="grpo")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="fields of the algorithm block")
    parser.add_argument("--credit", nargs="*", default=[], metavar="KEY=VALUE", help="fields of the credit block")
    parser.add_argument("--no-sft", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--test", type=int, default=160, help="held-out tasks")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        quiet_threads()
        print(json.dumps(train(arguments.child, arguments)))
        return 0
    for seed in arguments.seeds:
        done = subprocess.run(
            [sys.executable, "-m", "lab.benchmarks.local_training", *sys.argv[1:], "--child", str(seed)],
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        result = json.loads(done.stdout.splitlines()[-1])
        print(json.dumps(result) if arguments.json else line(result), flush=True)
    return 0


def line(result: Mapping[str, Any]) -> str:
    curve = " ".join(f"{value:.2f}" for value in result["curve"])
    return (
        f"seed {result['seed']}: demonstrator {result['demonstrator']:.3f} (kept {result['kept']:.3f}), "
        f"SFT {result['sft']:.3f} -> {result['algorithm']} {result['rl']:.3f}; "
        f"validation {curve}; {result['cpu_seconds']:.0f} CPU-s, {result['wall_seconds']:.0f} s, "
        f"{result['tokens_per_second']:.0f} tokens/s in rollouts, largest log-prob gap {result['gap']:.1e}"
    )


def train(seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    from userrl_core.distill import select_top_k, write_chats
    from userrl_core.gyms.registry import tasks
    from userrl_core.policies.scripted import ScriptedPolicy
    from userrl_core.rewards import CreditConfig
    from userrl_core.rollout import run_episodes
    from userrl_core.training.config import AlgorithmConfig, ModelConfig, SftConfig
    from userrl_core.training.jobs import RlJob, SftJob
    from userrl_core.training.local.loop import train_rl
    from userrl_core.training.local.sft import train_sft

    wall, cpu = time.perf_counter(), time.process_time()
    model = ModelConfig(prompt_style="brief")
    settings: dict[str, Any] = {
        "name": arguments.algorithm, "group": 8, "batch": 8, "minibatches": 2, "lr": 2e-4, "critic_lr": 1e-3,
        "warmup_steps": 10, "max_tokens": 48, "max_response_tokens": 384,
    }  # fmt: skip
    algorithm = AlgorithmConfig(**settings | pairs(arguments.set))
    credit = CreditConfig(**pairs(arguments.credit))
    train_tasks = list(tasks("travel", "train", tier="tiny"))
    test = random.Random(1).sample(list(tasks("travel", "test", tier="tiny")), arguments.test)
    validation = list(tasks("travel", "validation", tier="tiny"))[:64]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        demonstrated = random.Random(seed).sample(train_tasks, min(1000, len(train_tasks) // 2))
        shown = asyncio.run(run_episodes(demonstrated, ScriptedPolicy(0.5), horizon=6, seed=seed, prompt_style="brief"))
        selection = select_top_k(shown, len(demonstrated) * 7 // 10)
        write_chats(root / "chats.jsonl", selection.kept)
        sft = SftConfig(enabled=not arguments.no_sft, steps=200, lr=2e-3, batch=32)
        cold = train_sft(
            SftJob(
                model=model,
                sft=sft,
                chats=root / "chats.jsonl",
                out_dir=root / "sft",
                seed=seed,
                threads=arguments.threads,
                checkpoint_every=1000,
            )
        )
        used = selection.task_keys
        pool = [task for task in train_tasks if task.key not in used]
        curve: list[float] = []
        gaps: list[float] = []
        speed: list[float] = []

        def progress(step: int, total: int, metrics: Mapping[str, float]) -> None:
            gaps.append(metrics["policy/logprob_gap/max"])
            speed.append(metrics["rollout/tokens/per_second"])
            if "validate/return_sum/mean" in metrics:
                curve.append(metrics["validate/return_sum/mean"])
            if step % 10 == 0:
                brief = {k: round(v, 3) for k, v in metrics.items() if k in SHOWN}
                print(step, brief, file=sys.stderr, flush=True)

        job = RlJob(
            model=model, out_dir=root / "rl", seed=seed, threads=arguments.threads, checkpoint_every=60,
            algorithm=algorithm, credit=credit, init=cold.checkpoint, reference=cold.checkpoint, last_step=60,
            validation=validation, validate_every=10, validation_horizon=6,
        )  # fmt: skip
        result = train_rl(job, Pool(pool, seed), Nowhere(), progress)
        assert result.best is not None
        trained_cpu = time.process_time() - cpu
        before = evaluate(cold.checkpoint, model, test, seed)
        after = evaluate(result.best.path, model, test, seed)
    return {
        "seed": seed,
        "algorithm": arguments.algorithm,
        "demonstrator": selection.by_gym["travel"].mean_seen,
        "kept": selection.by_gym["travel"].mean_kept,
        "sft": before,
        "rl": after,
        "best_step": result.best.step,
        "curve": curve,
        "cpu_seconds": trained_cpu,
        "wall_seconds": time.perf_counter() - wall,
        "tokens_per_second": sum(speed) / len(speed),
        "gap": max(gaps),
    }


SHOWN = (
    "rollout/return_sum/mean", "validate/return_sum/mean", "policy/entropy/mean", "policy/clip/share",
    "groups/trained/share", "seconds/rollout/sum", "seconds/update/sum",
    "seconds/validate/sum", "critic/explained_variance/mean", "policy/grad_norm/mean",
)  # fmt: skip


def evaluate(checkpoint: Path, model: Any, tasks: Sequence[Any], seed: int) -> float:
    """Return the mean greedy raw reward at horizon 6."""
    from userrl_core.rollout import run_episodes
    from userrl_core.training.local.policy import LocalPolicy
    from userrl_core.training.local.state import load_checkpoint

    policy = LocalPolicy(*load_checkpoint(checkpoint, model, "cpu"), max_tokens=48)
    played = asyncio.run(run_episodes(tasks, policy, horizon=6, seed=seed, prompt_style="brief"))
    return sum(t.return_sum or 0.0 for t in played) / len(played)


def pairs(texts: Sequence[str]) -> dict[str, Any]:
    """Parse KEY=VALUE options. Values are JSON if they can be read as JSON, else text."""
    return {key: _value(value) for key, _, value in (text.partition("=") for text in texts)}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


class Pool:
    """A pool of tasks, drawn without replacement within a step, with horizons 4, 5, 6."""

    def __init__(self, tasks: Sequence[Any], seed: int) -> None:
        self.tasks, self.seed = list(tasks), seed

    def horizon(self, step: int, history: Any, group: int | None = None) -> int:
        return next((turns for last, turns in HORIZONS if step <= last), HORIZONS[-1][1])

    def stage_of(self, step: int) -> str:
        return "rl-1"

    def draw(self, step: int, n: int) -> list[Any]:
        return random.Random(f"{self.seed}/{step}").sample(self.tasks, n)

    def observe(self, task_key: str, success: float, tokens: float | None = None) -> None: ...

    def record(self, step: int, stats: Any, outcomes: Any = ()) -> None: ...

    def metrics(self) -> dict[str, float]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None: ...


class Nowhere:
    """A sink that discards everything."""

    def begin(self, trajectory: Any) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


if __name__ == "__main__":
    sys.exit(main())
