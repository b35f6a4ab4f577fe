"""docs/core.md: the passages to read, with their lines and their code lines, counted from the code.

``python scripts/core_page.py --write`` counts again after a change of the code. Without ``--write`` it prints the sum and
exits with 1 if the page is out of date.

A passage is a row of a table: a link to a file, the first and the last definition to read (or ``all``), and what they are for.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "core.md"
ROW = re.compile(
    r"^\| \[(?P<label>[^\]]+)\]\(\.\./(?P<path>[^)]+)\) \| (?P<names>all|`[^|]+) \|[^|]*\|[^|]*\| (?P<use>.+) \|$", re.M
)
SUM = re.compile(r"(?<=<!-- sum -->).*?(?=<!-- end -->)")


NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_line_numbers(text: str) -> set[int]:
    """Return the lines that hold a token of code, counted from 1: no blank lines, comments or docstrings."""
    docstrings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines - docstrings


@dataclass(frozen=True, slots=True)
class Passage:
    """A range of lines, both included, that begins and ends with a definition."""

    path: str
    first: int
    last: int

    @property
    def code_lines(self) -> int:
        """Return the number of lines that hold code."""
        text = (ROOT / self.path).read_text(encoding="utf-8")
        if not self.path.endswith(".py"):
            return sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in text.splitlines())
        return sum(self.first <= line <= self.last for line in code_line_numbers(text))


def passage(path: str, names: str) -> Passage:
    """Return the passage of a row. names: ``all``, or one or two definitions in backticks, such as `Recipe.horizon`.

    Raises KeyError with the name of a definition that the file does not have.
    """
    text = (ROOT / path).read_text(encoding="utf-8")
    if names == "all":
        return Passage(path, 1, len(text.splitlines()))
    lines = definitions(ast.parse(text))
    first, *_, last = [lines[name] for name in re.findall(r"`([^`]+)`", names) * 2]
    return Passage(path, first[0], last[1])


def definitions(tree: ast.AST, within: str = "") -> dict[str, tuple[int, int]]:
    """Return the first line (of a decorator, if any) and the last line of all classes, functions and methods, by name."""
    lines: dict[str, tuple[int, int]] = {}
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            lines[within + node.name] = first, node.end_lineno or node.lineno
            if isinstance(node, ast.ClassDef):
                lines |= definitions(node, f"{within}{node.name}.")
    return lines


def passages(text: str) -> list[Passage]:
    """Return the passages of the page, in order."""
    return [passage(row["path"], row["names"]) for row in ROW.finditer(text)]


def counted(text: str) -> str:
    """Return the page with every range and count, and their sum, as the code has them."""

    def row(match: re.Match[str]) -> str:
        read = passage(match["path"], match["names"])
        link = f"[{match['label']}](../{match['path']})"
        return f"| {link} | {match['names']} | {read.first}-{read.last} | {read.code_lines} | {match['use']} |"

    reading = passages(text)
    total = sum(read.code_lines for read in reading)
    lines = sum(read.last - read.first + 1 for read in reading)
    return SUM.sub(f"{total:,} lines of code, {lines:,} lines with docstrings and blank lines", ROW.sub(row, text))


def main() -> int:
    """Write the page, or check it."""
    text = PAGE.read_text(encoding="utf-8")
    if "--write" in sys.argv[1:]:
        PAGE.write_text(counted(text), encoding="utf-8")
        text = counted(text)
    print(f"{sum(read.code_lines for read in passages(text)):,} lines of code to read")
    if counted(text) == text:
        return 0
    print("docs/core.md is out of date. Run python scripts/core_page.py --write.")
    return 1


if __name__ == "__main__":
    sys.exit(main())
