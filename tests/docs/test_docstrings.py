"""What docstrings say about files of this repository is true."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.places import ROOT

ROOMS = ("userrl_core", "analysis", "curricula", "warehouse", "sweeps", "userrl", "flows", "lab", "packages")
ELSEWHERE = {"core/env_server/types.py"}
"""Files of other projects."""


def test_every_python_file_that_a_docstring_names_exists() -> None:
    """A name is relative to the folder of its module, or to one that contains it."""
    modules = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    named = [(module, name) for module in modules for name in named_files(module) if name not in ELSEWHERE]
    assert named
    missing = [
        f"{module.relative_to(ROOT)}: {name}"
        for module, name in named
        if not any((folder / name).is_file() for folder in module.parents if folder.is_relative_to(ROOT))
    ]
    assert not missing


def named_files(module: Path) -> list[str]:
    """Return the names of Python files in a module's docstrings, including those under fields and constants."""
    docstrings = [
        node.value.value
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    return [name for text in docstrings for name in re.findall(r"(?<![\w./<-])(?:[\w-]+/)*[\w-]+\.py\b", text)]
