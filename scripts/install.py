"""Install this project into the running interpreter's environment with uv, in a third of pip's time, with pip's settings.

    python scripts/install.py requirements.lock [requirements-dev.lock]

Packages of these files are installed only if their hash is right. Torch follows by its pin in constraints.txt, because
the right build depends on the machine. Then come the project itself and the packages in `packages/`. If uv is unavailable, or
cannot do what pip can, pip is used.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")
UV = (sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable)
BY_HASH = ("--no-deps", "--require-hashes")
SAME = {
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "cert": "SSL_CERT_FILE",
}
"""Names of the same settings in pip and uv."""


@cache
def settings() -> dict[str, str]:
    """Return the settings of pip's configuration (files and environment) that uv needs to find the same packages."""
    listed = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=False).stdout
    uv_settings: dict[str, str] = {}
    for line in sorted(
        listed.splitlines(), key=lambda line: line.startswith(":env:")
    ):  # the environment comes last, and wins
        key, _, value = line.partition("=")
        name = SAME.get(key.rpartition(".")[2])
        if name is not None:
            words = str(ast.literal_eval(value)).split()
            uv_settings[name] = (" " if name == "UV_INDEX" else ",").join(words)
    # As pip does: the best version of all indexes, and the certificates of the system.
    return {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_SYSTEM_CERTS": "1", **uv_settings}


def install(packages: list[str]) -> int:
    """Install with uv or else pip, and return the exit status. packages: as both take them on a command line."""
    if has_uv():
        by_uv = subprocess.run([*UV, *packages], env={**settings(), **os.environ}, capture_output=True, check=False)
        if by_uv.returncode == 0:
            return 0
    by_pip = subprocess.run([*PIP, "install", "--quiet", *packages], stderr=subprocess.PIPE, text=True, check=False)
    sys.stderr.writelines(line for line in by_pip.stderr.splitlines(True) if not line.startswith("WARNING"))
    return by_pip.returncode


@cache
def has_uv() -> bool:
    """Return whether uv is available, installed if necessary as requirements.lock names it, by its hash."""
    named = re.search(r"^uv==.*\n(?: .*\n)+", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert named is not None
    with tempfile.NamedTemporaryFile("w", suffix=".lock") as lock:
        lock.write(named[0])
        lock.flush()
        by_pip = [*PIP, "install", "--quiet", *BY_HASH, "-r", lock.name]
        return subprocess.run(by_pip, capture_output=True, check=False).returncode == 0


def ours(locks: list[str]) -> list[str]:
    """Return the project and the separate packages, as uv and pip install them from here.

    A package with a requirement that none of these files has is left out: every later `pip install` would report it.
    """
    locked = "".join((ROOT / lock).read_text() for lock in locks)
    projects = [file for file in sorted(ROOT.glob("packages/*/pyproject.toml")) if not unmet(file, locked)]
    gyms = (f"./{file.parent.relative_to(ROOT)}" for file in projects)
    return [word for folder in (".", *gyms) for word in ("-e", folder)]


def unmet(project: Path, locked: str) -> list[str]:
    """Return the requirements of a project that are not in the text of the lock files."""
    names = tomllib.loads(project.read_text())["project"]["dependencies"]
    return [
        name for name in names if name != "userrl" and not re.search(rf"^{re.escape(name)}==", locked, re.MULTILINE)
    ]


def main(locks: list[str]) -> int:
    """Install the project with the packages of these files, and return the exit status."""
    os.chdir(ROOT)
    by_hash = [*BY_HASH, *(word for lock in locks for word in ("-r", lock))]
    project = ["--no-deps", "--no-build-isolation", *ours(locks)]
    return next(filter(None, map(install, (by_hash, ["-c", "constraints.txt", "torch"], project))), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
