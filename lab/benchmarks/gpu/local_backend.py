"""Speed of the local backend on one GPU: rollout, update, peak memory, share of the GPU's peak, log-prob agreement.

    python -m lab.benchmarks.gpu.local_backend                      # a random 0.6 B Qwen3 in bf16, 64 episodes of 8 turns
    python -m lab.benchmarks.gpu.local_backend --device cpu --size tiny --episodes 8 --reply 16    # does the script work?

Prints one table. The peak is a matrix product measured on the same GPU. Random weights write random text, so every reply
runs to its token limit and every turn is a format error, after which the conversation continues.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from userrl_core.training.local.threads import quiet_threads

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_size": 128, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 32, "mlp": 384},
    "0.6b": {"hidden_size": 1024, "layers": 28, "heads": 16, "kv_heads": 8, "head_dim": 128, "mlp": 3072},
    "1.7b": {"hidden_size": 2048, "layers": 28, "heads": 16, "kv_heads": 8, "head_dim": 128, "mlp": 6144},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", choices=SIZES, default="0.6b")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--vocab", type=int, default=151_936)
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--reply", type=int, default=128, help="tokens per reply")
    parser.add_argument("--micro-batch", type=int, default=8)
    arguments = parser.parse_args()
    quiet_threads()
    print_rows(measure(arguments))
    return 0


def print_rows(rows: Mapping[str, Any]) -> None:
    """Print figures as rows of a Markdown table."""
    for name, value in rows.items():
        print(f"| {name} | {value if isinstance(value, str) else f'{value:,.4g}'} |")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    import torch

    from userrl_core.training.config import AlgorithmConfig
    from userrl_core.training.local.logprobs import reference_logprobs
    from userrl_core.training.local.model import parameters
    from userrl_core.training.local.optimizer import adamw
    from userrl_core.training.local.policy import LocalPolicy
    from userrl_core.training.local.update import minibatches, update_policy

    cuda = arguments.device.startswith("cuda")
    tokenizer, model = make_model(arguments)
    sync = torch.cuda.synchronize if cuda else (lambda: None)
    ceiling = matrix_ceiling(arguments.device, arguments.dtype)

    policy = LocalPolicy(
        model, tokenizer, temperature=1.0, max_tokens=arguments.reply, keep_samples=True, max_batch=4096
    )
    play(policy, 2, 1)
    policy.take_samples()
    policy.decode_tokens = 0
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    play(policy, arguments.episodes, arguments.turns)
    sync()
    rollout = time.perf_counter() - began
    samples = policy.take_samples()

    again = reference_logprobs(model, [s.ids for s in samples], [s.turns for s in samples], 1.0, arguments.micro_batch)
    drawn = torch.cat([torch.from_numpy(s.of_agent(s.logprobs)) for s in samples])
    gap = torch.cat([row.float().cpu() for row in again]) - drawn

    config = AlgorithmConfig(micro_batch=arguments.micro_batch, lr=1e-6)
    items = as_items(samples)
    optimizer = adamw(model, config.lr, config.betas, config.weight_decay)
    order = minibatches(items, config, seed=0)
    update_policy(
        model, optimizer, items[: arguments.micro_batch], config, [list(range(min(len(items), arguments.micro_batch)))]
    )
    sync()
    began = time.perf_counter()
    update_policy(model, optimizer, items, config, order)
    sync()
    update = time.perf_counter() - began

    weights, context = parameters(model), sum(len(s.ids) for s in samples)
    return {
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "torch": torch.__version__,
        "parameters (B)": weights / 1e9,
        "conversations x turns": f"{arguments.episodes} x {arguments.turns}",
        "tokens sampled": policy.decode_tokens,
        "rollout (s)": rollout,
        "rollout tokens/s": policy.decode_tokens / rollout,
        "update (s)": update,
        "update tokens/s (whole context)": context / update,
        "matrix ceiling (TFLOP/s)": ceiling / 1e12,
        "update share of the ceiling": 6 * weights * context / update / ceiling,
        "peak memory (GiB)": torch.cuda.max_memory_allocated() / 2**30 if cuda else float("nan"),
        "log-prob difference, mean": float(gap.abs().mean()),
        "log-prob difference, max": float(gap.abs().max()),
        "importance ratio outside 1 +- 0.2": float(((gap.exp() - 1).abs() > 0.2).float().mean()),
    }


def make_model(arguments: argparse.Namespace) -> tuple[Any, Any]:
    """Return a tokenizer trained on a few conversations, and a model with the requested vocabulary size."""
    import torch

    from userrl_core.distill import to_chat
    from userrl_core.gyms.registry import tasks
    from userrl_core.policies.scripted import ScriptedPolicy
    from userrl_core.rollout import run_episodes
    from userrl_core.training.config import ModelConfig
    from userrl_core.training.local.model import build_model
    from userrl_core.training.local.text.tokenizer import render, train_tokenizer

    demonstrated = list(tasks("travel", "train", tier="tiny"))[:50]
    chats = [
        to_chat(t) for t in asyncio.run(run_episodes(demonstrated, ScriptedPolicy(1.0), horizon=6, prompt_style="full"))
    ]
    tokenizer = train_tokenizer(render(chats), 512)
    shape = ModelConfig(**SIZES[arguments.size], dtype=arguments.dtype, initializer_range=0.02, max_context=32768)
    model = build_model(shape, tokenizer, 0, "cpu")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model.resize_token_embeddings(max(arguments.vocab, len(tokenizer)), mean_resizing=False)
    # Ids beyond the tokenizer have no text; they are there so that the output layer costs what a real one does.
    return tokenizer, model.to(arguments.device).eval()


def play(policy: Any, episodes: int, turns: int) -> None:
    from userrl_core.gyms.registry import tasks
    from userrl_core.rollout import run_episodes

    chosen = list(tasks("travel", "train", tier="tiny"))[:episodes]
    asyncio.run(run_episodes(chosen, policy, horizon=turns, prompt_style="full", on_format_error="continue"))


def as_items(samples: Sequence[Any]) -> list[Any]:
    import numpy as np

    from userrl_core.training.local.update import Item

    return [
        Item(s, s.of_agent(s.logprobs), np.full(s.agent_tokens, (-1.0) ** i, np.float32), s.of_agent(s.entropies))
        for i, s in enumerate(samples)
    ]


def matrix_ceiling(device: str, dtype: str) -> float:
    """Return the FLOP/s of a square matrix product, the best of several runs."""
    import torch

    cuda = device.startswith("cuda")
    size = 8192 if cuda else 1024
    a = torch.randn(size, size, device=device, dtype=getattr(torch, dtype))
    best = float("inf")
    for _ in range(10):
        began = time.perf_counter()
        a @ a
        if cuda:
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - began)
    return 2 * size**3 / best


if __name__ == "__main__":
    sys.exit(main())
