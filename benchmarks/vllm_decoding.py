"""Decoding speed of vLLM on this machine's CPU, for benchmarks.language_model. Runs in vLLM's own environment (docs/gpu.md).

    .venv-verl-cpu/bin/python benchmarks/vllm_decoding.py '{"model": FOLDER, "dtype": "float32", "prompts": [[1, 2]], "reply": 24}'

Prints the fewest seconds of three calls as JSON. Each call writes a sampled reply of `reply` tokens to each prompt.
"""

from __future__ import annotations

import json
import sys
import time


def main() -> None:
    """Measure and print."""
    from vllm import LLM, SamplingParams

    given = json.loads(sys.argv[1])
    prompts, reply = [{"prompt_token_ids": ids} for ids in given["prompts"]], given["reply"]
    engine = LLM(
        given["model"],
        dtype=given["dtype"],
        max_model_len=len(given["prompts"][0]) + reply,
        max_num_seqs=len(prompts),
        enable_prefix_caching=False,  # the prompts are the same in each call
    )
    sampling = SamplingParams(temperature=1.0, max_tokens=reply, ignore_eos=True, detokenize=False)
    seconds = []
    for _ in range(4):  # the first one does not count
        began = time.perf_counter()
        engine.generate(prompts, sampling, use_tqdm=False)
        seconds.append(time.perf_counter() - began)
    print(json.dumps({"seconds": min(seconds[1:])}))


if __name__ == "__main__":
    main()
