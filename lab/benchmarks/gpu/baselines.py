"""Baselines at the local backend's sizes: Hugging Face's generate with a plain update, and TRL's GRPOTrainer.

    python -m lab.benchmarks.gpu.baselines plain                             # 0.6 B, random weights, bf16, sdpa
    python -m lab.benchmarks.gpu.baselines trl                               # three GRPO steps
    python -m lab.benchmarks.gpu.baselines plain --device cpu --size tiny    # does the script work?

Prints rows of one table. The plain update is of logits, loss and AdamW; its inputs are random ids, so every reply runs to its token
limit. TRL needs trl and datasets, which are not in our environment: `pip install trl datasets`.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from lab.benchmarks.gpu.local_backend import SIZES, matrix_ceiling, print_rows
from userrl_core.training.local.threads import quiet_threads


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loop", choices=["plain", "trl"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", choices=SIZES, default="0.6b")
    arguments = parser.parse_args()
    quiet_threads()
    if arguments.loop == "plain":
        print_rows(plain(arguments.device, arguments.size))
        return 0
    missing = [name for name in ("trl", "datasets") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"| left out | {' and '.join(missing)}: not installed here; pip install trl datasets |")
        return 0
    print_rows(trl(arguments.device, arguments.size))
    return 0


def plain(device: str, size: str) -> dict[str, Any]:
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

    figures: dict[str, Any] = {"device": torch.cuda.get_device_name() if cuda else "cpu", "torch": torch.__version__}
    model.eval()
    for name, more in (("growing cache", {}), ("static cache, compiled", {"cache_implementation": "static"})):
        if more and not cuda:
            continue
        generate(**more)  # warms up, and compiles
        figures[f"generate tokens/s, {name}"] = rows * reply / seconds(partial(generate, **more), cuda)

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
    figures["parameters (B)"] = weights / 1e9
    figures["update tokens/s"] = batch.numel() / took
    figures["update share of the ceiling"] = speed / matrix_ceiling(device, "bfloat16")
    figures["peak memory (GiB)"] = torch.cuda.max_memory_allocated() / 2**30 if cuda else float("nan")
    return figures


def trl(device: str, size: str) -> dict[str, Any]:
    """Measure a step of 64 completions of 128 tokens after prompts of 1,024 (tiny on a CPU)."""
    import torch
    import trl as package
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    cuda = device.startswith("cuda")
    vocabulary, prompt, reply, rows, steps = (32_000, 1024, 128, 64, 3) if cuda else (500, 16, 8, 8, 1)
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(vocabulary)} | {"<e>": vocabulary}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<e>", pad_token="<e>")
    model = make_model(size, 151_936 if cuda else 999)
    draw = random.Random(0)
    prompts = [{"prompt": " ".join(f"w{draw.randrange(vocabulary)}" for _ in range(prompt))} for _ in range(rows)]

    def reward(completions: list[str], **_: Any) -> list[float]:
        return [draw.random() for _ in completions]

    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            folder,
            per_device_train_batch_size=min(8, rows),
            gradient_accumulation_steps=max(rows // 8, 1),
            num_generations=8,
            max_completion_length=reply,
            max_steps=steps,
            bf16=cuda,
            use_cpu=not cuda,
            report_to=[],
            gradient_checkpointing=True,
            save_strategy="no",
            generation_kwargs={"min_new_tokens": reply},
        )
        trainer = GRPOTrainer(
            model,
            reward_funcs=reward,
            args=config,
            train_dataset=Dataset.from_list(prompts),
            processing_class=tokenizer,
        )
        began = time.perf_counter()
        trainer.train()
        took = (time.perf_counter() - began) / steps
    return {
        "trl": package.__version__,
        "seconds a step, the first included": took,
        "tokens/s sampled, over the whole step": rows * reply / took,
        "peak memory (GiB)": torch.cuda.max_memory_allocated() / 2**30 if cuda else float("nan"),
    }


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
