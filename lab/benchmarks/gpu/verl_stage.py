"""Four steps of verl with vLLM and our agent loop on one GPU, at 0.6 B with random weights: the time of each part.

    python -m lab.benchmarks.gpu.verl_stage --python .venv-verl/bin/python

It plays 16 x 8 conversations of the tiny travel tier. Random weights write random text, so every reply runs to its token
limit and every turn is a format error, after which the conversation continues. Prints table rows of the last step.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from lab.benchmarks.gpu.local_backend import make_model, print_rows
from lab.benchmarks.stand_ins import Nowhere, OneHorizon
from userrl_core.gyms.registry import tasks
from userrl_core.training.config import AlgorithmConfig, Cluster, ModelConfig
from userrl_core.training.verl.job import VerlJob
from userrl_core.training.verl.rl import run_rl

SHOWN = ("timing", "perf", "mfu", "throughput", "memory", "pearson", "diff", "turns", "tokens")
"""Words in the names of the verl metrics to print."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="interpreter of verl's environment")
    parser.add_argument("--steps", type=int, default=4)
    arguments = parser.parse_args()
    shape = argparse.Namespace(size="0.6b", dtype="bfloat16", vocab=151_936, device="cpu")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        tokenizer, model = make_model(shape)
        model.save_pretrained(folder / "model")
        tokenizer.save_pretrained(folder / "model")
        job = VerlJob(
            model=ModelConfig(),
            out_dir=folder / "rl-1",
            init=folder / "model",
            algorithm=AlgorithmConfig(
                batch=16, group=8, minibatches=2, max_prompt_tokens=1024, max_tokens=128, max_response_tokens=3072
            ),
            cluster=Cluster(gpus=1, workers=4, engine_memory=0.35, micro_tokens=8192, python=arguments.python),
            on_format_error="continue",
            last_step=arguments.steps,
            checkpoint_every=arguments.steps,
        )
        last: dict[str, float] = {}
        began = time.perf_counter()

        def progress(step: int, total: int, metrics: Mapping[str, float]) -> None:
            last.clear()
            last.update(metrics)
            print(f"{time.perf_counter() - began:.0f} s: step {step} of {total}", file=sys.stderr)

        run_rl(job, OneHorizon(list(tasks("travel", "train", tier="tiny")), 8), Nowhere(), progress)
    print_rows({name: value for name, value in sorted(last.items()) if any(part in name for part in SHOWN)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
