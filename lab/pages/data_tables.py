"""Write the tables of pages: from CSV files, between ``<!-- table FILE -->`` and ``<!-- /table -->``, or by a script.

python -m lab.pages.data_tables data/credit/README.md data/served-model/README.md

The first row of a file is the head. Numbers are to the right: every column but the first.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
MARKED = re.compile(r"(<!-- table (\S+) -->\n).*?(<!-- /table -->)", re.DOTALL)


def main() -> None:
    """Rewrite the tables of the pages that are named."""
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(with_tables(path.read_text()))
        print(f"wrote {path}")


def with_tables(page: str, root: Path = ROOT) -> str:
    """Return the page with every marked table rewritten from its file."""
    return MARKED.sub(lambda mark: f"{mark[1]}\n{markdown(root / mark[2])}\n{mark[3]}", page)


def with_lines(page: str, script: str, lines: Iterable[str]) -> str:
    """Return a page with the part rewritten that is marked as written by this script of this folder."""
    marked = re.compile(rf"(<!-- written by lab/pages/{script}.py -->\n).*?(<!-- /written -->)", re.DOTALL)
    return marked.sub(lambda mark: "\n".join([mark[1], *lines, "", mark[2]]), page)


def markdown(path: Path) -> str:
    """Return a CSV file as a Markdown table."""
    with path.open(newline="") as file:
        head, *rows = list(csv.reader(file))
    lines = [f"| {' | '.join(head)} |", "| --- |" + " ---: |" * (len(head) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows), ""])


if __name__ == "__main__":
    main()
