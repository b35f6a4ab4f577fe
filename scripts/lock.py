"""``make lock``: the versions of constraints.txt with the hashes of all their files, for ``--require-hashes`` of pip and uv.

requirements.lock has the packages of a run and of its installation; requirements-dev.lock has the further packages of
tests. Torch and the packages of its GPU builds are in neither, because the right build depends on the machine:
requirements-image.lock has them, and Postgres, for the container image. All three cover every supported system and
Python, with markers where they differ. No index address is written.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

EXTRAS = ("dev", "verl", "view", "envs", "s3", "postgres", "mcp")
"""Extras that `make test` installs."""
TORCH = re.compile(r"torch==|triton==|nvidia-|cuda-")
HEAD = "# Made by `make lock` from pyproject.toml and constraints.txt; not to be changed by hand.\n"


def main() -> None:
    """Write the three files."""
    run = without_torch(locked(()))
    for file, blocks in (
        ("requirements.lock", run),
        ("requirements-dev.lock", [block for block in without_torch(locked(EXTRAS)) if block not in run]),
        ("requirements-image.lock", [block for block in locked(("postgres",)) if block not in run]),
    ):
        Path(file).write_text(HEAD + "".join(blocks))
        print(f"{file}: {len(blocks)} packages")


def locked(extras: Sequence[str]) -> list[str]:
    """Return the version, markers and file hashes of every package that these extras need."""
    # The project's own build is not isolated, so what it needs is installed with the rest.
    build = tomllib.loads(Path("pyproject.toml").read_text())["build-system"]["requires"]
    command = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "pyproject.toml", "-"]
    command += ["--quiet", "--universal", "--python-version", "3.11", "--constraint", "constraints.txt"]
    command += ["--generate-hashes", "--no-header", "--no-annotate"]
    command += [word for extra in extras for word in ("--extra", extra)]
    requirements = "\n".join([*build, "uv"])
    text = subprocess.run(command, input=requirements, check=True, stdout=subprocess.PIPE, text=True).stdout
    return re.findall(r"^\S+==.*\\\n(?: +--hash=.*\n)+", text, re.MULTILINE)


def without_torch(blocks: list[str]) -> list[str]:
    """Leave out torch and what its GPU builds need."""
    return [block for block in blocks if not TORCH.match(block)]


if __name__ == "__main__":
    main()
