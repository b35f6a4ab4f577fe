"""What makes stock verl 0.9.1 run on a CPU, for tests only: a platform, and a rollout engine on transformers.

Loaded by verl in every process through VERL_USE_EXTERNAL_MODULES. Touches private names of verl (its rollout registry),
so verl stays pinned. The engine can be given replies to choose from, so that an untrained model earns rewards that differ;
their log-probabilities are the model's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sys
import types
import zlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed
from transformers.utils import import_utils
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

MAX_SAMPLED = 24


@contextlib.contextmanager
def _absent(*names: str) -> Iterator[None]:
    """Hide packages from transformers, which takes them if they are there."""
    import_utils.is_scipy_available.cache_clear()
    import_utils.is_sklearn_available.cache_clear()
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    yield
    for name in hidden:
        del sys.modules[name]


class _Device(types.ModuleType):
    """torch.cpu with the memory calls that verl makes, all without effect."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(torch.cpu, name, lambda *a, **k: 0)


_device = _Device("torch.cpu_for_tests")
_device.mem_get_info = lambda *a: (0, 1)  # type: ignore[attr-defined]
_device.get_device_properties = lambda *a: types.SimpleNamespace(total_memory=1)  # type: ignore[attr-defined]
_device.get_rng_state = lambda *a: torch.get_rng_state()  # type: ignore[attr-defined]
_device.set_rng_state = lambda state, *a: torch.set_rng_state(state)  # type: ignore[attr-defined]
_device.current_device = lambda: 0  # type: ignore[attr-defined]
_device.is_available = lambda: True  # type: ignore[attr-defined]
_device.get_device_name = lambda *a: "cpu"  # type: ignore[attr-defined]


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):  # type: ignore[misc]
    device_name = property(lambda self: "cpu")
    vendor_name = property(lambda self: "cpu")
    device_module = property(lambda self: _device)

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return False

    def current_device(self) -> torch.device:
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, index: int) -> None: ...

    def synchronize(self, index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, message: str) -> Any:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_resource_options(self, number: float) -> dict[str, float]:
        return {"num_gpus": number}

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None


if os.environ.get("VERL_PLATFORM") == "cpu":
    _init = torch.distributed.init_process_group

    def _init_process_group(backend: Any = None, *arguments: Any, **keywords: Any) -> Any:
        keywords.pop("device_id", None)
        doubled = isinstance(backend, str) and backend.startswith("cpu:gloo,cpu:gloo")
        return _init("cpu:gloo" if doubled else backend, *arguments, **keywords)

    torch.distributed.init_process_group = _init_process_group
    torch.distributed.distributed_c10d.init_process_group = _init_process_group
    torch.Tensor.pin_memory = lambda self, *a, **k: self  # type: ignore[method-assign, assignment]

    # A third of an import of verl, which eight processes of each stage make: transformers takes them for losses of pictures.
    with _absent("boto3", "scipy", "sklearn"):
        from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout
        from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

    class Engine:
        """A Ray actor that holds the model and speaks."""

        def __init__(self, path: str) -> None:
            from transformers import AutoModelForCausalLM, AutoTokenizer

            self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
            tokenizer = AutoTokenizer.from_pretrained(path)
            self.end = tokenizer.eos_token_id
            self.step = 0
            replies = os.environ.get("USERRL_TEST_REPLIES")
            self.replies = [tokenizer.encode(text) for text in json.loads(replies)] if replies else []
            self.rng = random.Random(0)
            self.by_prompt = os.environ.get("USERRL_TEST_REPLY_BY") == "prompt"
            self.pause = float(os.environ.get("USERRL_TEST_REPLY_SECONDS", "0"))

        async def generate(
            self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, **_: Any
        ) -> TokenOutput:
            await asyncio.sleep(self.pause)
            most = sampling_params["max_tokens"]
            ids = await asyncio.to_thread(self._speak, list(prompt_ids), most, sampling_params.get("temperature", 1.0))
            logprobs = self._logprobs(list(prompt_ids), ids) if sampling_params.get("logprobs") else None
            return TokenOutput(
                token_ids=ids,
                log_probs=logprobs,
                stop_reason="completed",
                extra_fields={"global_steps": self.step},
            )

        @torch.no_grad()
        def _speak(self, prompt: list[int], most: int, temperature: float) -> list[int]:
            if self.replies:
                # Greedy validation must not depend on what was said before it.
                chosen = self.rng.randrange(len(self.replies)) if temperature else len(prompt) % len(self.replies)
                if self.by_prompt:  # for runs that are compared: no engine and no order decides
                    chosen = zlib.crc32(repr(prompt).encode()) % len(self.replies)
                return [*self.replies[chosen], self.end][:most]
            ids: list[int] = []
            while len(ids) < min(most, MAX_SAMPLED) and (not ids or ids[-1] != self.end):
                logits = self.model(torch.tensor([prompt + ids])).logits[0, -1].float()
                ids.append(
                    int(torch.multinomial(torch.softmax(logits / temperature, -1), 1))
                    if temperature
                    else int(logits.argmax())
                )
            return ids

        @torch.no_grad()
        def _logprobs(self, prompt: list[int], ids: list[int]) -> list[float]:
            logits = self.model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1].float()
            return torch.log_softmax(logits, -1).gather(1, torch.tensor(ids)[:, None])[:, 0].tolist()  # type: ignore[no-any-return]

        async def load(self, weights: dict[str, torch.Tensor], step: int | None) -> None:
            missing = self.model.load_state_dict(weights, strict=False).unexpected_keys
            assert not missing, missing
            self.step = step or 0

        async def sleep(self) -> None: ...

        async def wake_up(self) -> None: ...

        async def abort_all_requests(self, reject_request: bool = False) -> None: ...

        async def resume_generation(self) -> None: ...

        async def clear_kv_cache(self) -> None: ...

        async def start_profile(self, **_: Any) -> None: ...

        async def stop_profile(self) -> None: ...

    class Replica(RolloutReplica):  # type: ignore[misc]
        async def launch_servers(self) -> None:
            import ray
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            name = f"engine_{self.replica_rank}"
            # On its worker's node, as vLLM's server.
            node = await self.workers[0].__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id())
            engine = ray.remote(Engine).options(
                name=name,
                num_cpus=0,
                max_concurrency=8,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False),
            )
            self.servers = [engine.remote(self.model_config.path)]
            self._server_handle, self._server_address = self.servers[0], name

    class Adapter(BaseRollout):  # type: ignore[misc]
        """In the training worker: hands the weights over."""

        async def resume(self, tags: Any) -> None: ...

        async def release(self) -> None: ...

        async def update_weights(self, weights: Any, global_steps: int | None = None, **_: Any) -> None:
            import ray

            named: dict[str, torch.Tensor] = {}
            if hasattr(weights, "__aiter__"):
                async for name, tensor in weights:
                    named[name] = tensor.detach().float().cpu().clone()
            else:
                for name, tensor in weights:
                    named[name] = tensor.detach().float().cpu().clone()
            engine = ray.get_actor(f"engine_{torch.distributed.get_rank()}")
            await engine.load.remote(named, global_steps)

    _ROLLOUT_REGISTRY[("transformers_cpu", "async")] = "tests.userrl_core.training.verl.cpu.Adapter"
    RolloutReplicaRegistry.register("transformers_cpu", lambda: Replica)
