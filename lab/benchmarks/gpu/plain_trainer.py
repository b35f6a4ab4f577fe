"""A baseline without a framework: Hugging Face's generate, and an update of logits, loss and AdamW, at the same sizes.

    python lab/benchmarks/gpu/plain_trainer.py                                  # 0.6 B, random weights, bf16, sdpa
    python lab/benchmarks/gpu/plain_trainer.py --device cpu --size tiny         # does the script work?

Prints rows of one table. Inputs are random ids, so every reply runs to its token limit.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

from local_backend import SIZES, matrix_ceiling

from userrl_core.training.local.threads import quiet_threads


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", choices=SIZES, default="0.6b")
    arguments = parser.parse_args()
    quiet_threads()
    for name, value in measure(arguments.device, arguments.size).items():
        print(f"| {name} | {value if isinstance(value, str) else f'{value:,.4g}'} |")
    return 0


def measure(device: str, size: str) -> dict[str, Any]:
    """Measure rollout and update in tokens per second, peak memory, and the update's share of a matrix product's speed."""
    import torch

    cuda = device.startswith("cuda")
    rows, prompt, reply, length = (64, 1024, 128, 2048) if cuda else (4, 32, 8, 64)
    model = make_model(size, 151_936 if cuda else 999).to(device)
    vocabulary = model.config.vocab_size
    began_with = torch.randint(5, vocabulary, (rows, prompt), device=device)

    def generate(**more: Any) -> None:
        model.generate(
            began_with,
            attention_mask=torch.ones_like(began_with),
            max_new_tokens=reply,
            min_new_tokens=reply,
            do_sample=True,
            pad_token_id=0,
            **more,
        )

    found: dict[str, Any] = {"device": torch.cuda.get_device_name() if cuda else "cpu", "torch": torch.__version__}
    model.eval()
    for name, more in (("growing cache", {}), ("static cache, compiled", {"cache_implementation": "static"})):
        if more and not cuda:
            continue
        generate(**more)  # warms up, and compiles
        found[f"generate tokens/s, {name}"] = rows * reply / seconds(lambda more=more: generate(**more), cuda)

    batch = torch.randint(5, vocabulary, (8 if cuda else 2, length), device=device)
    model.train()
    model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-6)

    def update() -> None:
        loss = model(input_ids=batch, labels=batch, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    update()
    took = min(seconds(update, cuda) for _ in range(3))
    weights = sum(parameter.numel() for parameter in model.parameters())
    speed = 6 * weights * batch.numel() / took
    found["parameters (B)"] = weights / 1e9
    found["update tokens/s"] = batch.numel() / took
    found["update share of the ceiling"] = speed / matrix_ceiling(device, "bfloat16")
    found["peak memory (GiB)"] = torch.cuda.max_memory_allocated() / 2**30 if cuda else float("nan")
    return found


def make_model(size: str, vocabulary: int) -> Any:
    """Return a random Qwen3 of the local backend's shape."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    shape = SIZES[size]
    config = Qwen3Config(
        hidden_size=shape["hidden_size"],
        num_hidden_layers=shape["layers"],
        intermediate_size=shape["mlp"],
        num_attention_heads=shape["heads"],
        num_key_value_heads=shape["kv_heads"],
        head_dim=shape["head_dim"],
        vocab_size=vocabulary,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )
    return Qwen3ForCausalLM._from_config(config, dtype=torch.bfloat16)


def seconds(work: Callable[[], None], cuda: bool) -> float:
    """Time the work, including what the GPU still has to finish."""
    import torch

    began = time.perf_counter()
    work()
    if cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
