"""Functions and classes that only tests use: no other line of the project has their name.

    python scripts/unused.py

Only the syntax is read. Dunder names, names registered by decorators, and names of entry points, deployments or gym
folders count as used. Exits with 1 if something is unused.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("userrl_core", "analysis", "warehouse", "curricula", "sweeps", "userrl", "flows", "packages")
AROUND = ("scripts", "lab", "examples")
DECLARING = ("pyproject.toml", "prefect.yaml", "Makefile")
"""Files that name code which is looked up by its name."""
BY_CONVENTION = ("gym.py", "demonstrator.py", "released_user.py")
"""Names in a gym's folder that the registry looks up."""
OUTSIDE = {
    "ReleasedEnv": "what moves here from the released environments imports it",
    "import_": "the command `import`, which is found by its name",
    "list_commands": "asked for by click",
    "format_commands": "asked for by click",
    "read_logs": "asked for by Optuna",
    "append_logs": "asked for by Optuna",
    "_repr_markdown_": "asked for by notebooks",
    "_cap_text_prompt_length": "verl calls it for every opening",
}
WORD = re.compile(r"\w+")


def definitions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Return public functions, classes and methods that nothing registers, with their lines."""
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
    """Count each name in a file. For Python, by syntax, so that comments and docstrings do not count."""
    if path.suffix != ".py":
        return Counter(WORD.findall(path.read_text(errors="replace")))
    counts: Counter[str] = Counter()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                counts[name] += 1
            case ast.ImportFrom(names=names):
                counts.update(alias.name for alias in names)
            case ast.Constant(value=str(text)) if len(text) < 200:
                counts.update(WORD.findall(text))
    return counts


def main() -> int:
    """Print each unused name with its place."""
    sources = [p for room in ROOMS for p in sorted((ROOT / room).rglob("*.py"))]
    around = [p for room in AROUND for p in sorted((ROOT / room).rglob("*.py"))]
    counts = Counter[str]()
    for path in [*sources, *around, *(ROOT / name for name in DECLARING)]:
        counts += words(path)
    left = 0
    for path in sources:
        for name, line in definitions(ast.parse(path.read_text())):
            if not counts[name] and name not in OUTSIDE and path.name not in BY_CONVENTION:
                print(f"{path.relative_to(ROOT)}:{line}: {name}")
                left += 1
    print(f"{left} of what the project defines are used by tests alone, or by nobody.")
    return int(left > 0)


if __name__ == "__main__":
    sys.exit(main())
