"""Multi-turn GRPO on errand in one page: draw, play, credit, update (UserRL, section 3), with torch and the library's parts.

python examples/loop.py [STEPS]       # 30 steps take about a minute of one core, and teach little

A run of the same recipe and seed has the same weights after each step, to the last bit; a test compares them. This page
leaves out what a run adds: checkpoints, restarts, validation, the log, served users, other algorithms.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

import curricula
from curricula.sampler import TaskSampler
from userrl_core import gyms
from userrl_core.distill import select_top_k, write_chats
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import RolloutContext, Trajectory
from userrl_core.rewards import assign_credit, spread_to_tokens
from userrl_core.rollout import run_episodes
from userrl_core.seeding import derive_seed
from userrl_core.training.config import AlgorithmConfig
from userrl_core.training.jobs import SftJob
from userrl_core.training.local.policy import LocalPolicy
from userrl_core.training.local.samples import Sample
from userrl_core.training.local.sft import train_sft
from userrl_core.training.local.state import load_checkpoint

STAGES = [{"steps": 15, "horizon": 4, "mix": {"errand": 1}}, {"steps": 15, "horizon": 6, "mix": {"errand": 1}}]
SETTINGS = {"stages": STAGES, "gyms.errand.tasks": {"depths": [1, 2]}, "algorithm.lr": 1e-3, "cold_start.steps": 100}


def cold_start(recipe: curricula.Recipe, folder: Path) -> Path:
    """Train a small model on scripted demonstrations. Return its checkpoint."""
    tasks = gyms.tasks("errand", "validation", **recipe.gym("errand").tasks)
    weak = ScriptedPolicy(recipe.demonstrations.skill)
    demonstrations = asyncio.run(run_episodes(tasks, weak, horizon=6, n=4, prompt_style="brief"))
    write_chats(folder / "chats.jsonl", select_top_k(demonstrations, 200).kept)
    job = SftJob(model=recipe.model, sft=recipe.cold_start, chats=folder / "chats.jsonl", out_dir=folder, threads=1)
    return train_sft(job).checkpoint


def train(recipe: curricula.Recipe, start: Path, seed: int, steps: int) -> Iterator[tuple[Any, list[Trajectory]]]:
    """Yield the model and the conversations after each step."""
    # The order of sums depends on the number of threads, and with it the last bits of the weights.
    torch.set_num_threads(1)
    config = recipe.algorithm
    model, tokenizer = load_checkpoint(start, recipe.model, "cpu")
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.lr, betas=config.betas, weight_decay=config.weight_decay, foreach=False
    )
    policy = LocalPolicy(
        model,
        tokenizer,
        temperature=config.temperature,
        max_tokens=config.max_tokens,
        max_response_tokens=config.max_response_tokens,
        generator=torch.Generator().manual_seed(derive_seed(seed, "sampling")),
        # The update needs the sampled ids and their log-probabilities.
        keep_samples=True,
    )
    pool = gyms.tasks("errand", "train", **recipe.gym("errand").tasks)
    sampler = TaskSampler({"errand": pool}, seed)

    for step in range(1, steps + 1):
        # Draw tasks, and play each of them `group` times. The horizon may depend on the step.
        trajectories = asyncio.run(
            run_episodes(
                sampler.batch(config.batch, recipe.mix(step)),
                policy,
                horizon=recipe.horizon(step),
                n=config.group,
                context=RolloutContext("rl", step, "train"),
                seed=seed,
                gym_config={"errand": recipe.gym("errand").config},
                prompt_style=recipe.model.prompt_style,
            )
        )
        samples = policy.take_samples()

        # Credit: shape the turn rewards, compare the trajectories of a task, give every turn its advantage.
        turn_tokens = [s.turn_tokens(len(t.turns)) for s, t in zip(samples, trajectories, strict=True)]
        # Trajectories are in the order of the tasks, `group` of each task.
        groups = [index // config.group for index in range(len(trajectories))]
        credits = assign_credit([t.rewards for t in trajectories], groups, recipe.credit, turn_tokens=turn_tokens)
        advantages = [
            torch.from_numpy(spread_to_tokens([turns], [counts]))
            for turns, counts in zip(credits.advantages, turn_tokens, strict=True)
        ]

        # Update on the groups whose scores differ: one optimiser step per minibatch.
        trained = [index for index, signal in enumerate(credits.signal) if signal]
        # A linear warm-up.
        rate = config.lr * min(1.0, step / max(config.warmup_steps, 1))
        for group in optimizer.param_groups:
            group["lr"] = rate
        model.train()
        for minibatch in minibatches(trained, config, derive_seed(seed, "update", step)):
            # Rows of similar length need little padding.
            minibatch.sort(key=lambda index: len(samples[index].ids))
            for first in range(0, len(minibatch), config.micro_batch):
                rows = minibatch[first : first + config.micro_batch]
                # Every conversation weighs the same, whatever its number of tokens (trajectory_mean).
                weights = [1 / (samples[i].agent_tokens * len(minibatch)) for i in rows]
                surrogate(model, [samples[i] for i in rows], [advantages[i] for i in rows], weights, config).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_norm)
            optimizer.step()
            optimizer.zero_grad()
        yield model, trajectories


def minibatches(rows: Sequence[int], config: AlgorithmConfig, seed: int) -> Iterator[list[int]]:
    """Yield every row once per inner epoch, shuffled, in minibatches of nearly equal size."""
    generator = random.Random(seed)
    for _ in range(config.inner_epochs):
        shuffled = list(rows)
        generator.shuffle(shuffled)
        count = min(config.minibatches, len(shuffled))
        yield from (shuffled[number::count] for number in range(count))


def surrogate(
    model: Any,
    samples: Sequence[Sample],
    advantages: Sequence[torch.Tensor],
    weights: Sequence[float],
    config: AlgorithmConfig,
) -> torch.Tensor:
    """Return PPO's clipped loss over the agent's tokens. weights: of one token of each conversation."""
    ids = pad_sequence([torch.tensor(s.ids) for s in samples], batch_first=True)
    turns = pad_sequence([torch.tensor(s.turns) for s in samples], batch_first=True, padding_value=-1)
    # The state at one position predicts the token at the next.
    is_agent = turns[:, 1:] >= 0
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1][is_agent]
    # The temperature of sampling, because the ratio compares the distribution that was sampled from.
    logprobs = torch.log_softmax(model.lm_head(hidden) / config.temperature, dim=-1)
    new = logprobs.gather(1, ids[:, 1:][is_agent][:, None])[:, 0]
    # Numbers kept from sampling, without a gradient.
    old = torch.cat([torch.from_numpy(s.of_agent(s.logprobs)) for s in samples])
    weight = torch.cat([torch.full((s.agent_tokens,), w) for s, w in zip(samples, weights, strict=True)])
    advantage = torch.cat(list(advantages))
    ratio = (new - old).exp()
    clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
    # The optimiser minimises; the objective (PPO, equation 7) is to be maximised.
    return -(torch.minimum(ratio * advantage, clipped * advantage) * weight).sum()


def main(steps: int = 30) -> None:
    """Print the share of solved tasks and the mean reward of each step."""
    recipe = curricula.load("equalized-r2g", profile="laptop", overrides=SETTINGS)
    with tempfile.TemporaryDirectory() as folder:
        start = cold_start(recipe, Path(folder))
        for step, (_, played) in enumerate(train(recipe, start, seed=0, steps=steps), start=1):
            solved = sum(t.stop_reason == "success" for t in played) / len(played)
            reward = sum(t.return_sum or 0.0 for t in played) / len(played)
            print(f"step {step}: horizon {played[0].horizon}, solved {solved:.0%}, mean reward {reward:.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
