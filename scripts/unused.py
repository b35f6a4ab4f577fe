"""What only tests use: functions and classes whose name no other line of the project says.

    python scripts/unused.py

Reads the syntax alone. Dunder names, what a decorator registers, and what an entry point, a deployment or a gym's folder names are
used from outside. Exit status 1 where something is left.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("userrl_core", "warehouse", "curricula", "sweeps", "userrl", "flows", "packages")
AROUND = ("scripts", "studies", "benchmarks", "examples")
DECLARING = ("pyproject.toml", "prefect.yaml", "Makefile")
"""Files that name code which is looked up by its name."""
BY_CONVENTION = ("gym.py", "demonstrator.py")
"""Of a gym's folder: the registry takes the class that it finds."""
OUTSIDE = {
    "ReleasedEnv": "what moves here from the released environments imports it",
    "list_commands": "asked for by click",
    "_cap_text_prompt_length": "verl calls it for every opening",
}
WORD = re.compile(r"\w+")


def definitions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Public functions, classes and methods that nothing registers, and their lines."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            taken = [d for d in node.decorator_list if ast.unparse(d).split("(")[0] not in PLAIN]
            if not node.name.startswith("__") and not taken:
                yield node.name, node.lineno


PLAIN = frozenset(
    {"property", "staticmethod", "classmethod", "cached_property", "cache", "functools.cache", "dataclass"}
)
PLAIN |= {
    "lru_cache",
    "contextmanager",
    "asynccontextmanager",
    "contextlib.contextmanager",
    "override",
    "abstractmethod",
}


def words(path: Path) -> Counter[str]:
    """How often each name is said in a file: of Python by its syntax, so that neither comments nor docstrings count."""
    if path.suffix != ".py":
        return Counter(WORD.findall(path.read_text(errors="replace")))
    said: Counter[str] = Counter()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                said[name] += 1
            case ast.ImportFrom(names=names):
                said.update(alias.name for alias in names)
            case ast.Constant(value=str(text)) if len(text) < 200:
                said.update(WORD.findall(text))
    return said


def main() -> int:
    """Print each with its place."""
    sources = [p for room in ROOMS for p in sorted((ROOT / room).rglob("*.py"))]
    around = [p for room in AROUND for p in sorted((ROOT / room).rglob("*.py"))]
    said = Counter[str]()
    for path in [*sources, *around, *(ROOT / name for name in DECLARING)]:
        said += words(path)
    left = 0
    for path in sources:
        for name, line in definitions(ast.parse(path.read_text())):
            if not said[name] and name not in OUTSIDE and path.name not in BY_CONVENTION:
                print(f"{path.relative_to(ROOT)}:{line}: {name}")
                left += 1
    print(f"{left} of what the project defines are used by tests alone, or by nobody.")
    return int(left > 0)


if __name__ == "__main__":
    sys.exit(main())
