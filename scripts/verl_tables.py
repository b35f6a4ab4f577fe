"""The tables of docs/reference/verl-flags.md, from verl's form of the recipes.

    python scripts/verl_tables.py            exit status 1 if a page does not match the code
    python scripts/verl_tables.py --write    write the tables

The reason of a setting is next to its value, in `userrl_core/training/verl/flags.py` and
`userrl_core/served/model_server.py`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import curricula
from userrl_core.served.model_server import ServeOptions
from userrl_core.training.verl.config import compose, literal, rl_overrides
from userrl_core.training.verl.flags import Flags, VerlFlag, rl_flags, sft_flags
from userrl_core.training.verl.job import Resume, VerlJob, VerlSftJob
from userrl_core.training.verl.machine.attention import FLASH
from userrl_core.training.verl.machine.step_time import user_server

ROOT = Path(__file__).resolve().parent.parent
FLAGS = ROOT / "docs" / "reference" / "verl-flags.md"
BEGIN, END = "<!-- written by scripts/verl_tables.py: begin -->", "<!-- end -->"

SHOWN = {
    "qwen3-4b": "equalized-r2g",
    "qwen3-8b": "equalized-r2g",
    "qwen2.5-3b": "scaling-inter",
    "qwen2.5-7b": "scaling-inter",
    "tarl-8b": "tarl",
}
"""Each profile for verl, with a recipe made for it."""
SPECIAL = {"tarl-ppo": "tarl-8b", "tarl-entropy-mask": "tarl-8b"}
"""Recipes with special settings, with their profile."""

ENGINE = {
    "dtype": "dtype",
    "load-format": "load_format",
    "max-model-len": "max_model_len",
    "max-num-seqs": "max_num_seqs",
    "max-num-batched-tokens": "max_num_batched_tokens",
    "enable-chunked-prefill": "enable_chunked_prefill",
    "enable-prefix-caching": "enable_prefix_caching",
    "logprobs-mode": "logprobs_mode",
    "enforce-eager": "enforce_eager",
    "gpu-memory-utilization": "gpu_memory_utilization",
    "tensor-parallel-size": "tensor_model_parallel_size",
    "scheduling-policy": "scheduling_policy",
    "seed": "seed",
}
"""vLLM's arguments, and their source keys under actor_rollout_ref.rollout in verl 0.9.1."""

USER = "Qwen/Qwen3-32B"


def main() -> int:
    """Return 1 if a page differs from the code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    stale = {page: text for page, text in pages().items() if page.read_text() != text}
    for page, text in stale.items():
        if write:
            page.write_text(text)
        print(f"{'written' if write else 'stale'}: {page.relative_to(ROOT)}")
    return int(bool(stale) and not write)


def pages() -> dict[Path, str]:
    """Return the correct text of each page."""
    return {FLAGS: between(FLAGS, "\n".join(flag_tables()))}


def between(page: Path, text: str) -> str:
    """Return the page with new text between its marks."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def flag_tables() -> Iterator[str]:
    """Return settings of RL, the cold start, the rollout engine and the user server."""
    stage, init = Path("STAGE"), Resume("CHECKPOINT")
    jobs = {profile: rl_job(recipe, profile) for profile, recipe in SHOWN.items()}
    yield "## RL (`verl.trainer.main_ppo`)\n"
    usual = {name: rl_flags(job, stage, init, FLASH) for name, job in jobs.items()}
    yield from table(usual)
    for name, profile in SPECIAL.items():
        yield f"\n## What `{name}` sets in addition or differently\n"
        flags = rl_flags(rl_job(name, profile), stage, init, FLASH)
        yield from table({name: {key: flag for key, flag in flags.items() if usual[profile].get(key) != flag}})
    yield "\n## The cold start (`verl.trainer.sft_trainer`)\n"
    cold = {profile: sft_job(recipe, profile) for profile, recipe in SHOWN.items()}
    yield from table({name: sft_flags(job, stage, "MODEL", 93, FLASH) for name, job in cold.items()})
    yield "\n## The rollout engine (`vllm serve`, by verl)\n"
    yield from table(engine_flags(jobs), code="--")
    yield "\n## The user's server (`userrl serve-user`)\n"
    options = ServeOptions(USER, python="VLLM_PYTHON", gpus="4,5,6,7", **user_layout())
    yield from rows([(flag, f"`{value}`" if value else "", why) for flag, value, why in options.flags()])


def user_layout() -> dict[str, int]:
    """Describe the layout of the user model on four H200."""
    server = user_server(USER, 4, 141.0)
    return {"tensor_parallel": server.per_copy, "copies": server.gpus // server.per_copy}


def rl_job(recipe: str, profile: str) -> VerlJob:
    """Return the first stage of the recipe under the profile."""
    loaded = curricula.load(recipe, profile=profile, check=False)
    return VerlJob(
        model=loaded.model,
        algorithm=loaded.algorithm,
        credit=loaded.credit,
        cluster=loaded.hardware,
        validate_every=loaded.evaluate.every,
        validation_horizon=loaded.evaluate.horizon,
        out_dir=Path("RUN"),
        init=Path("CHECKPOINT"),
        reference=Path("CHECKPOINT"),
        last_step=loaded.total_steps,
    )


def sft_job(recipe: str, profile: str) -> VerlSftJob:
    """Return the recipe's cold start."""
    loaded = curricula.load(recipe, profile=profile, check=False)
    return VerlSftJob(
        model=loaded.model,
        sft=loaded.cold_start,
        cluster=loaded.hardware,
        out_dir=Path("RUN"),
        chats=Path("chats.jsonl"),
    )


def engine_flags(jobs: Mapping[str, VerlJob]) -> dict[str, Flags]:
    """Return the arguments that verl makes for vLLM from its whole configuration, with our reason for each value of ours."""
    found: dict[str, Flags] = {}
    for name, job in jobs.items():
        ours = rl_flags(job, Path("STAGE"), Resume("CHECKPOINT"), FLASH)
        rollout = compose(rl_overrides(job, Path("STAGE"), Resume("CHECKPOINT"))).actor_rollout_ref.rollout
        found[name] = {
            argument: ours.get(f"actor_rollout_ref.rollout.{key}", VerlFlag(None, "verl's default"))._replace(
                value=rollout[key]
            )
            for argument, key in ENGINE.items()
        }
    return found


def table(columns: Mapping[str, Flags], code: str = "") -> Iterator[str]:
    """Return one row per key: the most common value, and recipes with another."""
    keys = dict.fromkeys(key for flags in columns.values() for key in flags)
    found = []
    for key in keys:
        values = {name: literal(flags[key].value) for name, flags in columns.items() if key in flags}
        why = next(flags[key].why for flags in columns.values() if key in flags)
        found.append((f"{code}{key}", told(values), why))
    yield from rows(found)


def told(values: Mapping[str, str]) -> str:
    """Describe a row's values."""
    (usual, _), *_ = Counter(values.values()).most_common(1)
    return "; ".join([f"`{usual}`", *(f"{name}: `{value}`" for name, value in values.items() if value != usual)])


def rows(cells: list[tuple[str, str, str]]) -> Iterator[str]:
    """Format Markdown rows."""
    yield "| flag | value | why |"
    yield "| --- | --- | --- |"
    for key, value, why in cells:
        yield f"| `{key}` | {value.replace('|', chr(92) + '|')} | {why} |"


if __name__ == "__main__":
    sys.exit(main())
