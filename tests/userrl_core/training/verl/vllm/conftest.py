"""The environment that holds vLLM, and a small model that speaks in tool calls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.userrl_core.training.verl.rig import CPU, ROOT, on_cpu
from userrl_core.distill import write_chats
from userrl_core.gyms import registry
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import Task
from userrl_core.rollout import run_episodes
from userrl_core.training.config import ModelConfig, SftConfig
from userrl_core.training.jobs import SftJob
from userrl_core.training.local.sft import train_sft
from userrl_core.training.local.text.tokenizer import TEMPLATE, load_tokenizer

PYTHON = ROOT / ".venv-verl-cpu" / "bin" / "python"
SPOKEN = "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
WITH_CALLS = """\
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- (call.function.arguments | tojson) + '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}"""
"""Calls that a server took out of a reply stand in the next prompt as they were spoken, as in Qwen's own template."""

ENGINE = (
    *(override for override in CPU if "load_format" not in override),
    "actor_rollout_ref.rollout.load_format=dummy",
    "actor_rollout_ref.rollout.enforce_eager=True",
    "actor_rollout_ref.rollout.free_cache_engine=False",
    "+actor_rollout_ref.rollout.enable_sleep_mode=False",
    "actor_rollout_ref.rollout.max_num_seqs=16",
    "actor_rollout_ref.rollout.max_num_batched_tokens=2048",
    "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=64",
)
"""Overrides of verl for vLLM on a CPU."""


def mixed_tasks() -> list[Task]:
    """Of two gyms in turn, in which little has to be said."""
    pairs = zip(registry.tasks("function", "train"), registry.tasks("math", "train"), strict=False)
    return [task for pair in pairs for task in pair][:80]


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    if not PYTHON.exists():
        pytest.skip("There is no vLLM here: `make venv-verl-cpu` installs it into .venv-verl-cpu (9.4 GB).")
    return PYTHON


@pytest.fixture(scope="session")
def speaker(vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen3 of half a million weights that has read a few demonstrations in the full prompt: most of what it says is a call."""
    folder = tmp_path_factory.mktemp("speaker")
    shown = asyncio.run(run_episodes(mixed_tasks(), ScriptedPolicy(1.0), horizon=4))
    write_chats(folder / "chats.jsonl", shown)
    job = SftJob(
        model=ModelConfig(max_context=4096),
        out_dir=folder / "sft",
        sft=SftConfig(steps=32, batch=8, lr=3e-3, cutoff=1024),
        chats=folder / "chats.jsonl",
        checkpoint_every=32,
    )
    checkpoint = train_sft(job).checkpoint
    assert TEMPLATE.count(SPOKEN) == 1
    tokenizer = load_tokenizer(checkpoint)
    tokenizer.chat_template = TEMPLATE.replace(SPOKEN, WITH_CALLS)
    tokenizer.save_pretrained(checkpoint)
    return checkpoint


@pytest.fixture(scope="module")
def on_vllm(vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The trainer's interpreter; its processes find the CPU's platform, and the folder that says when to die."""
    with pytest.MonkeyPatch.context() as patch:
        on_cpu(patch)
        patch.delenv("USERRL_TEST_REPLIES")
        patch.setenv("VERL_USE_EXTERNAL_MODULES", "tests.userrl_core.training.verl.vllm.cpu_engine")
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        patch.setenv("VLLM_NO_USAGE_STATS", "1")
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("RAY_memory_monitor_refresh_ms", "0")
        patch.setenv("USERRL_TEST_KILL", str(tmp_path_factory.mktemp("kill")))
        yield vllm_python
