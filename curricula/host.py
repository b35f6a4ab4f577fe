"""A description of a machine as far as recipes need it, so that any machine can be checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from curricula.layers import recipe_profiles
from curricula.validation import block_of, validated
from curricula.yaml_files import find, read, stem
from userrl_core.errors import ConfigError
from userrl_core.settings import Settings
from userrl_core.training.config import Cluster
from userrl_core.user_path import user_path

AUTO = "auto"
CLOSE = 0.95
"""Share of the requested memory that counts as enough. A card sold as 80 GB reports a little less."""


def cpu_dtype(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the fastest number format for training on this machine's CPU; float32 if the CPU's flags are unknown.

    With AMX it is bfloat16. With AVX512 alone it is float32 on Intel, where products in bfloat16 have half the rate
    (``lab.benchmarks.language_model``). On AMD a step takes 8.6 s in bfloat16 and 15.0 s in float32 (Zen 4, two threads).
    """
    try:
        flags = set(cpuinfo.read_text(encoding="utf-8").split())
    except OSError:
        return "float32"
    fast = "amx_bf16" in flags or {"AuthenticAMD", "avx512_bf16"} <= flags
    return "bfloat16" if fast else "float32"


class Host(Settings):
    """A machine, with its installed packages and services."""

    gpus: NonNegativeInt = 0
    """Number of GPUs."""

    gpu_memory: NonNegativeFloat | None = None
    """Memory of each GPU in GB; null: unknown and assumed to be enough."""

    packages: frozenset[str] = frozenset()
    """Importable Python packages among those that a recipe may need: verl and its rollout engines."""

    keys: frozenset[str] = frozenset()
    """Environment variables that are set: keys, and OPENAI_BASE_URL."""

    data: frozenset[str] | None = Field(default=None)
    """Available files and folders of published tasks; null: look at this disk."""

    def has(self, cluster: Cluster) -> bool:
        """Return whether the machine has the GPUs that a profile needs, with enough memory."""
        if cluster.device == "cpu":
            return True
        if cluster.gpus > self.gpus:
            return False
        return not cluster.gpus or self.gpu_memory is None or self.gpu_memory >= CLOSE * cluster.memory_gb

    def has_data(self, path: str) -> bool:
        """Return whether published tasks exist at this place."""
        return path in self.data if self.data is not None else user_path(path).exists()

    def described(self) -> str:
        """Return the GPUs in words."""
        if not self.gpus:
            return "no GPU"
        memory = "" if self.gpu_memory is None else f" of {self.gpu_memory:.0f} GB"
        return f"{self.gpus} GPU{'s' * (self.gpus > 1)}{memory}"


def choose_profile(recipe: str | Path, profile: str | None, host: Callable[[], Host]) -> str | None:
    """Resolve the profile. ``auto`` is the laptop's without a GPU, else the recipe's first profile that fits the machine.

    Raises ConfigError with the list if the machine's GPUs fit no profile.
    """
    if profile != AUTO:
        return profile
    requested = recipe_profiles(recipe)
    if requested.chosen is not None:
        return requested.chosen
    machine = host()
    if not machine.gpus:
        return "laptop"
    clusters = {name: profile_cluster(name) for name in requested.runs_on}
    for name, cluster in clusters.items():
        if machine.has(cluster):
            return name
    needs_text = "; ".join(f"{name}: {needs(cluster)}" for name, cluster in clusters.items()) or "it names none"
    raise ConfigError(
        "profile.none_fits",
        f"No profile of recipe '{stem(recipe)}' fits this machine, which has {machine.described()} ({needs_text}). "
        "Name a profile that you want to change, or profile=laptop for the small model.",
    )


def needs(cluster: Cluster) -> str:
    """Return a profile's machine requirements in words."""
    if not cluster.gpus:
        return "no GPU"
    nodes = f"{cluster.nodes} nodes of " if cluster.nodes > 1 else ""
    return f"{nodes}{cluster.gpus} GPU{'s' * (cluster.gpus > 1)} of {cluster.memory_gb:.0f} GB"


def profile_cluster(name: str) -> Cluster:
    """Return the machine that a profile is made for."""
    hardware = block_of(read(find(name, "profile")).get("hardware"), f"profile {name}", "hardware")
    cluster_values = {key: value for key, value in hardware.items() if key in Cluster.model_fields}
    return validated(Cluster, cluster_values, f"profile {name}, hardware")
