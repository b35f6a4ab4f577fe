"""Checks of the trainer's environment, run in its own interpreter by ``userrl doctor --trainer``.

    python -m userrl_core.training.verl.machine.probe '{"model": "Qwen/Qwen3-8B", "engine": "vllm", "device": "cuda"}'

Prints one JSON line a check: its name, its success, and the finding or the next step. A failed check does not stop
the others.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from userrl_core.interact import InteractCall, render_call, tool_schema
from userrl_core.training.verl.newlines import known_type

WORKER = 300.0
"""Seconds for a Ray worker, which runs at low priority, to import verl."""
VERL = "0.9.1"
"""The version whose private names we know."""


class Missing(Exception):
    """A failed check, with the missing item and the next step."""


def main() -> int:
    """Run all checks and exit with status 0. Answers go to standard output, everything else to standard error."""
    request = json.loads(sys.argv[1])
    with contextlib.redirect_stdout(sys.stderr):
        answers = [answer(topic, check, request) for topic, check in CHECKS.items()]
    for line in answers:
        print(json.dumps(line))
    return 0


def answer(topic: str, check: Callable[[dict[str, Any]], str], request: dict[str, Any]) -> dict[str, Any]:
    """Return the line of one check."""
    try:
        return {"what": topic, "ok": True, "said": check(request)}
    except Missing as missing:
        return {"what": topic, "ok": False, "said": str(missing)}
    except Exception as error:  # noqa: BLE001  whatever it is, the person must read it
        return {"what": topic, "ok": False, "said": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}


def gpus(request: dict[str, Any]) -> str:
    """Return the GPUs that torch may use, with their free memory."""
    import torch

    if request["device"] == "cpu":
        return f"none needed (hardware.device is cpu); torch {torch.__version__}"
    if not torch.cuda.is_available():
        raise Missing(
            f"torch {torch.__version__} sees no GPU; on a GPU host check the driver (nvidia-smi), CUDA_VISIBLE_DEVICES and "
            "that torch is the CUDA build of constraints-gpu.txt"
        )
    free = [torch.cuda.mem_get_info(index)[0] / 1e9 for index in range(torch.cuda.device_count())]
    name, required = torch.cuda.get_device_name(0), int(request["gpus"])
    if len(free) < required:
        raise Missing(
            f"{len(free)} x {name}, and the recipe wants {required}; lower hardware.gpus, or show all of them"
        )
    least = min(free)
    if least < 0.9 * float(request["memory"]):
        raise Missing(
            f"{len(free)} x {name}, and one has only {least:.0f} of {request['memory']:.0f} GB free; stop what holds it "
            "(nvidia-smi), or correct hardware.gpu_memory"
        )
    return f"{len(free)} x {name}, {least:.0f} GB free; torch {torch.__version__}"


def verl(request: dict[str, Any]) -> str:
    """Return verl's version."""
    installed = _version("verl", "install the trainer's environment (docs/gpu.md)")
    import_module("verl.trainer.main_ppo")
    if installed != VERL:
        raise Missing(f"{installed}, and {VERL} is what this version drives; install with -c constraints-gpu.txt")
    return installed


def engine(request: dict[str, Any]) -> str:
    """Return the rollout engine's version."""
    name = request["engine"]
    installed = _version(name, f"install verl[{name}] with -c constraints-gpu.txt, or change hardware.engine")
    import_module(name)
    return f"{name} {installed}"


def plugin(request: dict[str, Any]) -> str:
    """Check that our estimator is known to this process once verl is imported."""
    import_module("verl")
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

    if "userrl" not in ADV_ESTIMATOR_REGISTRY:
        raise Missing("verl runs without our plugin; 'pip install --no-deps -e .' in the trainer's environment")
    return "registered in this process"


def plugin_in_worker(request: dict[str, Any]) -> str:
    """Check the same in a Ray worker: in the recipe's cluster, else in one started for this check."""
    import ray

    address = request.get("ray_address")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with tempfile.TemporaryDirectory(prefix="userrl-ray-") as folder:
        options = {} if address else {"num_cpus": 1, "include_dashboard": False, "_temp_dir": folder}
        ray.init(address=address or "local", log_to_driver=False, **options)
        try:
            return str(ray.get(ray.remote(plugin).remote(request), timeout=WORKER)).replace(
                "this process", "a Ray worker"
            )
        except ray.exceptions.GetTimeoutError as error:
            raise Missing(f"none answered in {WORKER:g} s; try again when this machine is less busy") from error
        finally:
            ray.shutdown()


def attention(request: dict[str, Any]) -> str:
    """Return the attention that models are loaded with."""
    if request["device"] == "cpu":
        return "sdpa, as on every CPU"
    try:
        import_module("flash_attn")
    except ImportError as error:
        split = int(request["sequence_parallel"])
        if request["attention"] == "flash_attention_2" or split > 1:
            raise Missing(
                f"flash_attn cannot be imported ({error}); install it (docs/gpu.md), or set hardware.attention to sdpa and "
                "hardware.sequence_parallel to 1"
            ) from error
        return "sdpa: flash_attn cannot be imported (docs/gpu.md says how to have it)"
    return f"flash_attn {_version('flash_attn', '')}" if request["attention"] != "sdpa" else "sdpa, as the recipe says"


def template(request: dict[str, Any]) -> str:
    """Check that a conversation is only appended to: training uses the sampled tokens, which are never rendered again."""
    if not request["model"]:
        return "not asked: the recipe makes its model from scratch"
    from transformers import AutoConfig, AutoTokenizer
    from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

    try:
        tokenizer = AutoTokenizer.from_pretrained(request["model"], local_files_only=True)
        kind = AutoConfig.from_pretrained(request["model"], local_files_only=True).model_type
    except (OSError, ValueError) as error:
        raise Missing(f"{request['model']} is not on this disk; 'hf download {request['model']}' first") from error
    builder = create_continuous_token_builder(tokenizer, hf_model_type=known_type(tokenizer, kind))
    tools, opening = [tool_schema()], [{"role": "system", "content": "Help."}, {"role": "user", "content": "A trip?"}]
    call_text = render_call(InteractCall("action", "When?"))
    ids, messages = builder.build_initial_tokens(opening, tools=tools), opening
    for answered in ("In May.", "To the sea."):
        before = ids
        ids = builder.merge_assistant_tokens(ids, [*tokenizer.encode(call_text), tokenizer.eos_token_id]).token_ids
        with_reply = [*messages, {"role": "assistant", "content": call_text}]
        messages = [*with_reply, {"role": "user", "content": answered}]
        ids = builder.merge_context_tokens(with_reply, messages, ids, tools=tools).token_ids
        if ids[: len(before)] != before:
            raise Missing(f"the chat template of {request['model']} changes what came before; take another model")
    return f"{request['model']} keeps what came before, token by token"


def _version(package: str, how: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError as error:
        raise Missing(f"not installed in {sys.executable}; {how}") from error


CHECKS = {
    "GPUs": gpus,
    "verl": verl,
    "rollout engine": engine,
    "plugin": plugin,
    "plugin in a Ray worker": plugin_in_worker,
    "attention": attention,
    "chat template": template,
}

if __name__ == "__main__":
    sys.exit(main())
