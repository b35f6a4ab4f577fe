"""Environments with packages that conflict with ours, such as TRL, OpenEnv's client and Inspect."""

from __future__ import annotations

import site
import subprocess
import sys
import venv
from pathlib import Path


def python_with(folder: Path, *packages: str, borrow: bool = False) -> Path:
    """Return the Python of an environment with these packages. It is made where the folder has none.

    borrow: the environment also finds the packages of this one, so that torch is not installed again.
    """
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        venv.create(folder, with_pip=True)
        if borrow:
            ours = dict.fromkeys(p for p in (*site.getsitepackages(), *sys.path) if p.endswith("site-packages"))
            next(folder.glob("lib/python*/site-packages")).joinpath("borrowed.pth").write_text("\n".join(ours))
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *packages], check=True)
        ready.touch()
    return python
