"""A baseline with a framework: three GRPO steps of TRL with Hugging Face generation, at the local backend's sizes.

    python lab/benchmarks/gpu/trl_grpo.py                               # 0.6 B, random weights, bf16
    python lab/benchmarks/gpu/trl_grpo.py --device cpu --size tiny      # does the script work?

Needs trl and datasets, which are not in our environment: `pip install trl datasets`.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from typing import Any

from local_backend import SIZES
from plain_trainer import make_model

from userrl_core.training.local.threads import quiet_threads


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", choices=SIZES, default="0.6b")
    arguments = parser.parse_args()
    quiet_threads()
    try:
        import datasets  # noqa: F401
        import trl
    except ImportError as error:
        print(f"| left out | {error.name} is not installed here; pip install trl datasets |")
        return 0
    print(f"| trl | {trl.__version__} |")
    for name, value in measure(arguments.device, arguments.size).items():
        print(f"| {name} | {value:,.4g} |")
    return 0


def measure(device: str, size: str) -> dict[str, float]:
    """Measure a step of 64 completions of 128 tokens after prompts of 1,024 (tiny on a CPU)."""
    import torch
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    cuda = device.startswith("cuda")
    words, prompt, reply, rows, steps = (32_000, 1024, 128, 64, 3) if cuda else (500, 16, 8, 8, 1)
    plain = Tokenizer(models.WordLevel({f"w{i}": i for i in range(words)} | {"<e>": words}, unk_token="w0"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="<e>", pad_token="<e>")
    model = make_model(size, 151_936 if cuda else 999)
    draw = random.Random(0)
    prompts = [{"prompt": " ".join(f"w{draw.randrange(words)}" for _ in range(prompt))} for _ in range(rows)]

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
        "seconds a step, the first included": took,
        "tokens/s sampled, over the whole step": rows * reply / took,
        "peak memory (GiB)": torch.cuda.max_memory_allocated() / 2**30 if cuda else float("nan"),
    }


if __name__ == "__main__":
    sys.exit(main())
