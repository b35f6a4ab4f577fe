"""Install this project into the running interpreter's environment: by uv, in a third of pip's time and with pip's settings.

    python scripts/install.py [EXTRA ...]

Versions are those of constraints.txt either way. Where uv cannot be had, or cannot do what pip can, pip does it.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")
UV = (sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable)
SAME = {
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "cert": "SSL_CERT_FILE",
}
"""What pip calls its settings, and uv."""


def settings() -> dict[str, str]:
    """Of pip's configuration, files and environment, what uv must know to find the same packages."""
    listed = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=False).stdout
    found: dict[str, str] = {}
    for line in sorted(
        listed.splitlines(), key=lambda line: line.startswith(":env:")
    ):  # the environment comes last, and wins
        key, _, value = line.partition("=")
        name = SAME.get(key.rpartition(".")[2])
        if name is not None:
            words = str(ast.literal_eval(value)).split()
            found[name] = (" " if name == "UV_INDEX" else ",").join(words)
    # As pip does: the best version of all indexes, and the certificates of the system.
    return {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_SYSTEM_CERTS": "1", **found}


def main(extras: list[str]) -> int:
    """The exit status of what installed last."""
    os.chdir(ROOT)
    packages = ["-c", "constraints.txt", "-e", f".[{','.join(extras)}]" if extras else "."]
    had = subprocess.run([*PIP, "install", "--quiet", "-c", "constraints.txt", "uv"], capture_output=True, check=False)
    if had.returncode == 0:
        by_uv = subprocess.run([*UV, *packages], env={**settings(), **os.environ}, capture_output=True, check=False)
        if by_uv.returncode == 0:
            return 0
    by_pip = subprocess.run([*PIP, "install", "--quiet", *packages], stderr=subprocess.PIPE, text=True, check=False)
    sys.stderr.writelines(line for line in by_pip.stderr.splitlines(True) if not line.startswith("WARNING"))
    return by_pip.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
