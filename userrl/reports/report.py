"""What every report can do: it is printed, written as a page, read as JSON and as a data frame.

The command `userrl report` and a notebook render the same objects. There are three kinds: the report of a trained run, of an
imported run, and of people beside simulated users.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from userrl.machine.notebook import Tabular
from userrl.reports.document import Document


class Report(Tabular, ABC):
    """The results of a run."""

    __slots__ = ()

    @property
    def note(self) -> str:
        """What a reader must know about the choice of the run, or ""."""
        return ""

    @abstractmethod
    def document(self) -> Document:
        """Return the report as a terminal shows it."""

    def page(self) -> Document:
        """Return the report as a page, with figures, intervals and cost where the kind has them."""
        return self.document()

    @abstractmethod
    def as_json(self) -> Any:
        """Return the report's numbers as JSON."""

    def write(self, path: str | Path) -> list[Path]:
        """Write the page as HTML or Markdown, by the ending of the path, and return the paths."""
        return list(self.page().write(Path(path)))

    def __str__(self) -> str:
        return "\n\n".join(filter(None, (self.note, self.document().text())))

    def _repr_markdown_(self) -> str:
        return "\n\n".join(filter(None, (self.note, self.document().markdown())))
