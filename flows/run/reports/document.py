"""A page as data, and the two forms it is written in: one self-contained HTML file, and Markdown.

Every text is plain: whatever a model, a user or a server wrote into it is escaped in both forms and never obeyed. The HTML
loads nothing, and its content security policy forbids it to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader

from flows.machine.foreign_text import plain

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&])")
_NUMBER = re.compile(r"[-+−–.,\d\s%$±\[\]∞()]*|–")


@dataclass(frozen=True, slots=True)
class Heading:
    """A section begins."""

    text: str
    kind: str = "heading"


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph. strong: what must not be overlooked."""

    text: str
    strong: bool = False
    kind: str = "text"


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple[str, ...]
    kind: str = "items"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under a head. note: a sentence below it."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    kind: str = "table"

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Whether each column holds figures, which stand at the right."""
        return tuple(
            bool(self.rows) and all(_NUMBER.fullmatch(row[column]) for row in self.rows)
            for column in range(len(self.head))
        )


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing. svg: made by `flows.run.reports.figures` and by nothing else, since it is not escaped. lines: it in a terminal."""

    svg: str
    caption: str
    lines: tuple[str, ...] = ()
    kind: str = "figure"


Block = Heading | Text | Items | Table | Figure


@dataclass(frozen=True, slots=True)
class Document:
    """A page."""

    title: str
    blocks: tuple[Block, ...]

    def html(self) -> str:
        """One file that needs no other."""
        return _TEMPLATE.render(title=plain(self.title), blocks=self.blocks)

    def markdown(self, figures: Sequence[str] = ()) -> str:
        """figures: addresses of the drawings, in order."""
        return self._lined(_escaped, figures)

    def text(self) -> str:
        """For a terminal: as Markdown without its escapes, drawings in a line or two."""
        return self._lined(_one_line, ())

    def _lined(self, said: Callable[[str], str], figures: Sequence[str]) -> str:
        addresses, lines = iter(figures), [f"# {said(self.title)}", ""]
        for block in self.blocks:
            if not isinstance(block, Figure):
                lines += [*_lines(block, said), ""]
            elif address := next(addresses, None):
                lines += [f"![{said(block.caption)}]({address})", ""]
            elif block.lines:
                lines += [*(f"    {_one_line(line)}" for line in block.lines), ""]
        return "\n".join(lines)

    def write(self, path: Path) -> list[Path]:
        """As HTML, or, to a ``.md`` file, as Markdown with its drawings beside it. Returns what was written."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix != ".md":
            path.write_text(self.html(), encoding="utf-8")
            return [path]
        figures = [block for block in self.blocks if isinstance(block, Figure)]
        drawings = [path.with_name(f"{path.stem}-{number}.svg") for number in range(1, len(figures) + 1)]
        for drawing, figure in zip(drawings, figures, strict=True):
            drawing.write_text(figure.svg, encoding="utf-8")
        path.write_text(self.markdown([drawing.name.replace(" ", "%20") for drawing in drawings]), encoding="utf-8")
        return [path, *drawings]


def _one_line(text: str) -> str:
    return " ".join(plain(text).split())


def _escaped(text: str) -> str:
    line = _one_line(text)
    return line if _NUMBER.fullmatch(line) else _SPECIAL.sub(r"\\\1", line)


def _lines(block: Heading | Text | Items | Table, said: Callable[[str], str]) -> list[str]:
    match block:
        case Heading(text):
            return [f"## {said(text)}"]
        case Text(text, strong):
            return [f"**{said(text)}**" if strong else said(text)]
        case Items(items):
            return [f"- {said(item)}" for item in items]
        case Table():
            return _table(block, said)


def _table(table: Table, said: Callable[[str], str]) -> list[str]:
    cells = [[said(cell) for cell in row] for row in (table.head, *table.rows)]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(table.head))]
    right = table.numeric
    padded = [
        [cell.rjust(width) if at else cell.ljust(width) for cell, width, at in zip(row, widths, right, strict=True)]
        for row in cells
    ]
    rule = ["-" * (width - 1) + (":" if at else "-") for width, at in zip(widths, right, strict=True)]
    lines = [f"| {' | '.join(row)} |".rstrip() for row in (padded[0], rule, *padded[1:])]
    return [*lines, "", said(table.note)] if table.note else lines


_ENVIRONMENT = Environment(loader=PackageLoader("flows.run.reports", "."), autoescape=True, trim_blocks=True)
_ENVIRONMENT.filters["visible"] = plain
_TEMPLATE = _ENVIRONMENT.get_template("page.html")
