"""Count assigned names that are words of our own instead of the thing's noun: `found`, `place`, `one`, `known`, `said`.

    python scripts/names.py              exit status 1 and the worst files, if there are more than the budget

A name says what a value is: `checkpoints`, not `found`. Counted are locals, loop variables and arguments. A few are right
where they stand (`words` of a text), so there is a budget and no ban. The budget only falls.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("userrl_core", "analysis", "curricula", "warehouse", "sweeps", "userrl", "flows", "lab", "packages")
PER_THOUSAND = 5.0
"""The budget: names of this kind for each thousand assigned names."""
DIALECT = frozenset(
    re.findall(
        r"\w+",
        """alone apart asked begun beside each ended foretold former found given heard held here kept known latter least made
        meant most named one ones own place places said seen shown spoken taken talk there these thing things those told wanted
        way ways what whole whom whose wished word words""",
    )
)


def assigned_names(source: str) -> Iterator[str]:
    """Yield the name of each local, loop variable and argument, as often as it is assigned."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg) and node.arg not in ("self", "cls"):
            yield node.arg


def main() -> int:
    """Print the share and the worst files. Returns 1 if the share is above the budget."""
    total, by_word, by_file = 0, Counter[str](), Counter[str]()
    for path in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        for name in assigned_names(path.read_text(encoding="utf-8")):
            total += 1
            if (bare := name.strip("_")) in DIALECT:
                by_word[bare] += 1
                by_file[str(path.relative_to(ROOT))] += 1
    share = 1000 * by_word.total() / total
    print(
        f"{share:.1f} of 1,000 assigned names ({by_word.total()} of {total:,}) are words of our own; {PER_THOUSAND:g} may be"
    )
    if share <= PER_THOUSAND:
        return 0
    print(", ".join(f"{word} {count}" for word, count in by_word.most_common(12)))
    print("\n".join(f"{count:4d}  {file}" for file, count in by_file.most_common(12)))
    return 1


if __name__ == "__main__":
    sys.exit(main())
