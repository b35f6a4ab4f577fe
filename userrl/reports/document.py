"""A page as data, and its output forms: text for a terminal, Markdown, and one self-contained HTML file.

Every text is plain: text of models, users and servers is escaped in every form. The HTML loads nothing, and its content
security policy forbids loading. `flows/page` draws the same blocks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader

from userrl.machine.foreign_text import plain
from userrl.machine.output_files import writing
from userrl_core.replaced_file import write_text

_SPECIAL = re.compile(
    r"""([\\`*|~]
       |(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])   # inside a word it is a letter
       |\](?=[(\[:])                         # ends the text of a link, or the name of one
       |<(?=[A-Za-z/!?])                     # begins a tag
       |&(?=\#?\w+;)                         # begins a character's name
       |^[#>]|^[-+](?=\s))                   # begins a heading, a quotation or a list
    """,
    re.VERBOSE,
)
"""Characters that Markdown would interpret. Brackets of intervals, arrows and signs of numbers are kept."""
_BAR = re.compile(r"(?<!\\)\|")
_NUMBER = re.compile(r"[-+−–.,\d\s%$±\[\]∞()]*|–")


@dataclass(frozen=True, slots=True)
class Code:
    """A name, a path or a command within a text."""

    text: str


@dataclass(frozen=True, slots=True)
class Link:
    """A link within a text. This program makes the address."""

    text: str
    address: str


RED, PLAIN = "\x1b[31m", "\x1b[0m"
"""Escape sequences of a terminal that begin and end red text."""

Inline = str | Code | Link
Line = Inline | tuple[Inline, ...]
"""A text of a block: plain, or made of parts."""


def parts(line: Line) -> tuple[Inline, ...]:
    """Return the parts of a text."""
    return line if isinstance(line, tuple) else (line,)


def unmarked(line: Line) -> str:
    """Return a text without its markup."""
    return "".join(part if isinstance(part, str) else part.text for part in parts(line))


@dataclass(frozen=True, slots=True)
class Heading:
    """The heading of a section."""

    text: str
    kind: str = "heading"


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph. strong: emphasised, because it is important. alarm: shown in red."""

    text: Line
    strong: bool = False
    alarm: bool = False
    kind: str = "text"


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple[Line, ...]
    kind: str = "items"


@dataclass(frozen=True, slots=True)
class TableBlock:
    """Rows of text under a head. note: a sentence below the table."""

    head: tuple[str, ...]
    rows: tuple[tuple[Line, ...], ...]
    note: str = ""
    kind: str = "table"

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Return whether each column holds numbers, which are right-aligned."""
        return tuple(
            bool(self.rows) and all(_NUMBER.fullmatch(unmarked(row[column])) for row in self.rows)
            for column in range(len(self.head))
        )


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure.

    draw: makes the SVG; it must come from `userrl.reports.figures`, because SVG is not escaped. None for a figure of text
    lines only. lines: the figure in a terminal. An output that shows the lines never draws.
    """

    draw: Callable[..., str] | None
    caption: str
    lines: tuple[str, ...] = ()
    kind: str = "figure"

    @property
    def svg(self) -> str:
        """The SVG; "" for a figure of text lines only."""
        return "" if self.draw is None else self.draw()


@dataclass(frozen=True, slots=True)
class TurnBlock:
    """One turn of a conversation.

    title: its number, choice and credit. share: the reward as a part of the largest reward, in [-1, 1]; None without a
    reward. reply: the text of the user or environment.
    """

    number: int
    title: str
    agent: str
    reply: str
    thought: str = ""
    share: float | None = None
    kind: str = "turn"


@dataclass(frozen=True, slots=True)
class Folded:
    """Blocks under a summary. In HTML a reader unfolds them. is_open: unfolded at first."""

    summary: str
    blocks: tuple[Block, ...]
    is_open: bool = False
    kind: str = "folded"


Block = Heading | Text | Items | TableBlock | Figure | TurnBlock | Folded


@dataclass(frozen=True, slots=True)
class Document:
    """A page. title: "" for a part of another page."""

    title: str
    blocks: tuple[Block, ...]

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The figures with an SVG, in order."""
        return tuple(block for block in _flat(self.blocks) if isinstance(block, Figure) and block.draw)

    def html(self) -> str:
        """Return one self-contained HTML file."""
        return _TEMPLATE.render(title=plain(self.title), blocks=self.blocks, parts=parts)

    def markdown(self, figures: Sequence[str] = ()) -> str:
        """Return Markdown. figures: addresses of the figures, in order. A figure without an address is written as its
        text lines.
        """
        addresses = iter(figures)

        def figure(block: Figure) -> list[str]:
            address = next(addresses, None) if block.draw else None
            return [f"![{_escaped(block.caption)}]({address})"] if address else _indented(block)

        return self._lined(_in_markdown, figure, padded=False)

    def text(self, *, colour: bool = False) -> str:
        """Return text for a terminal: Markdown without escapes, with figures as a line or two.

        colour: alarms are red. All other escape sequences are disarmed.
        """
        return self._lined(lambda line: _one_line(unmarked(line)), _indented, padded=True, colour=colour)

    def _lined(
        self,
        render: Callable[[Line], str],
        figure: Callable[[Figure], list[str]],
        *,
        padded: bool,
        colour: bool = False,
    ) -> str:
        lines = [f"# {render(self.title)}", ""] if self.title else []
        for block in _flat(self.blocks):
            block_lines = figure(block) if isinstance(block, Figure) else _lines(block, render, padded)
            if colour and isinstance(block, Text) and block.alarm:
                block_lines = [f"{RED}{line}{PLAIN}" for line in block_lines]
            lines += [*block_lines, ""] if block_lines else []
        return "\n".join(lines)

    def write(self, path: Path) -> list[Path]:
        """Write HTML, or, to a ``.md`` file, Markdown with its figures next to it. Returns the written paths.

        Raises ConfigError if one cannot be written.
        """
        if path.suffix != ".md":
            with writing(path):
                write_text(path, self.html())
            return [path]
        drawings = [path.with_name(f"{path.stem}-{number}.svg") for number in range(1, len(self.figures) + 1)]
        with writing(path):
            for drawing, figure in zip(drawings, self.figures, strict=True):
                write_text(drawing, figure.svg)
            write_text(path, self.markdown([drawing.name.replace(" ", "%20") for drawing in drawings]))
        return [path, *drawings]


def _flat(blocks: Sequence[Block]) -> Iterator[Block]:
    """Yield the blocks. Folded ones follow their summary as a heading."""
    for block in blocks:
        if isinstance(block, Folded):
            yield Heading(block.summary)
            yield from _flat(block.blocks)
        else:
            yield block


def section(heading: str, blocks: Iterator[Block]) -> Iterator[Block]:
    """Yield the blocks under a heading. Yields nothing if there are no blocks."""
    for number, block in enumerate(blocks):
        if number == 0:
            yield Heading(heading)
        yield block


def _one_line(text: str) -> str:
    return " ".join(plain(text).split())


def _escaped(text: str) -> str:
    line = _one_line(text)
    return line if _NUMBER.fullmatch(line) else _SPECIAL.sub(r"\\\1", line)


def _in_markdown(line: Line) -> str:
    return "".join(_marked(part) for part in parts(line))


def _marked(part: Inline) -> str:
    match part:
        case Code(text):
            return _code(_one_line(text))
        case Link(text, address):
            return f"[{_escaped(text)}]({address})"
        case str():
            # Spaces at the ends separate it from the neighbouring parts.
            line = _escaped(part)
            return f"{' ' * part[:1].isspace()}{line}{' ' * (part[-1:].isspace() and len(part) > 1)}"


def _code(text: str) -> str:
    """Return a code span. Text with backticks gets a longer fence."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence, space = "`" * (longest + 1), " " * bool(longest)
    return f"{fence}{space}{text}{space}{fence}"


def _indented(block: Figure) -> list[str]:
    return [f"    {_one_line(line)}" for line in block.lines]


def _lines(block: Block, render: Callable[[Line], str], padded: bool) -> list[str]:
    match block:
        case TurnBlock(title=title, agent=agent, reply=reply, thought=thought):
            texts = {"Thought": thought, "Agent": agent, "User or environment": reply}
            return [f"**{render(title)}**", "", *(f"- {name}: {render(text)}" for name, text in texts.items() if text)]
        case Heading(text):
            return [f"## {render(text)}"]
        case Text(text, strong):
            return [f"**{render(text)}**" if strong else render(text)]
        case Items(items):
            return [f"- {render(item)}" for item in items]
        case TableBlock():
            lines = table_lines(block, render, padded=padded)
            return [*lines, "", render(block.note)] if block.note else lines
        case Figure() | Folded():  # drawn and unfolded by the caller
            return []


def table_lines(table: TableBlock, render: Callable[[Line], str] = _in_markdown, *, padded: bool = False) -> list[str]:
    """Return the head, the rule and the rows of a table. padded: make the cells of a column equally wide."""
    cells = [[render(cell) for cell in row] for row in (table.head, *table.rows)]
    right = table.numeric
    if not padded:
        rule = ["---:" if at else "---" for at in right]
        cells = [
            [_BAR.sub(r"\\|", cell) for cell in row] for row in cells
        ]  # also inside code, as GitHub's tables require
        return [f"| {' | '.join(row)} |" for row in (cells[0], rule, *cells[1:])]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(table.head))]
    aligned = [
        [cell.rjust(width) if at else cell.ljust(width) for cell, width, at in zip(row, widths, right, strict=True)]
        for row in cells
    ]
    rule = ["-" * (width - 1) + (":" if at else "-") for width, at in zip(widths, right, strict=True)]
    return [f"| {' | '.join(row)} |".rstrip() for row in (aligned[0], rule, *aligned[1:])]


_ENVIRONMENT = Environment(loader=PackageLoader("userrl.reports", "."), autoescape=True, trim_blocks=True)
_ENVIRONMENT.filters["visible"] = plain
_TEMPLATE = _ENVIRONMENT.get_template("page.html")
