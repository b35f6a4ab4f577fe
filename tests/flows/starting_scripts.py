"""Starts scripts as a shell does from a fresh clone: no PYTHONPATH, our rooms installed, and nothing else of the clone.

``python tests/flows/starting_scripts.py ROOT FILE_OR_MODULE...`` prints each script that does not start, with its error. Each
is run up to its call of main in a fork of this process, which has loaded the large libraries once.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import os
import runpy
import sys
from pathlib import Path
from typing import Any

ROOMS = ("userrl_core", "analysis", "curricula", "warehouse", "sweeps", "userrl", "flows")

CLONE = ("tests", "lab", "scripts")
"""Folders that no installation has."""


class Installed:
    """Finds our rooms in a clone, as an installed package is found."""

    def __init__(self, root: str) -> None:
        self.root = root

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Return where a room is."""
        return importlib.machinery.PathFinder.find_spec(name, [self.root]) if name in ROOMS else None


def start(root: Path, script: str) -> str:
    """Run a script up to its main. Return the error, "" if it starts."""
    is_file = script.endswith(".py")
    sys.path[0] = str((root / script).parent if is_file else root)
    sys.argv = [script]
    try:
        if is_file:
            runpy.run_path(str(root / script), run_name="started")
            file = root / script
        else:
            runpy.run_module(script, run_name="started", alter_sys=True)
            file = root.joinpath(*script.split(".")).with_suffix(".py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            if module.split(".")[0] in CLONE and importlib.util.find_spec(module) is None:
                return f"no module {module}"
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> None:
    """Start every script."""
    root, scripts = Path(sys.argv[1]), sys.argv[2:]
    sys.meta_path.insert(0, Installed(str(root)))  # type: ignore[arg-type]
    for large in ("scipy.stats", "polars", "flows.train", "userrl.claims.reproduce"):
        importlib.import_module(large)
    for script in scripts:
        sys.stdout.flush()
        if (child := os.fork()) == 0:
            error = start(root, script)
            print(f"{script}: {error}" if error else "", end="\n" if error else "", flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
