"""The parts of this project that are separate packages, in the folder ``packages/``, found by their entry points."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from userrl_core.errors import ConfigError
from userrl_core.installed.same_name import offered

GROUP = "userrl.parts"
PARTS = {
    "userrl-crossplay": "Cross-play studies are",
    "userrl-people": "Conversations with people are",
    "userrl-serving": "Servers of gyms, tools and models are",
    "userrl-sharing": "Bundles and the hub's client are",
    "userrl-synthesis": "Synthesis and choice of tasks are",
}
"""What a package has, as the beginning of a sentence."""


def installed(package: str) -> bool:
    """Return whether the package is installed."""
    return package in offered(GROUP)


def part(package: str, module: str) -> ModuleType:
    """Import a module of the package. Raises ConfigError if the package is not installed."""
    if not installed(package):
        raise ConfigError(
            "install.missing",
            f"{PARTS[package]} a separate package. Install it with pip install ./packages/{package}.",
        )
    return import_module(f"{offered(GROUP)[package][0].value}.{module}")
