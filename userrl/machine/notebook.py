"""Results in a notebook: as text, and as a data frame."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import polars as pl


class Printed:
    """A result that a notebook shows as the command line prints it, and not as its fields."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        """Return the printed text as a block of code."""
        text = str(self)
        fence = "`" * (1 + max(map(len, re.findall("`{2,}", text)), default=2))
        return f"{fence}\n{text}\n{fence}"


class Tabular:
    """A result with rows that a data frame can hold."""

    __slots__ = ()
    frame_types: ClassVar[Mapping[str, type] | None] = None
    """Type of each column, for results that may have no rows."""

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return the rows of the data frame: column name to value."""
        raise NotImplementedError

    def to_polars(self) -> pl.DataFrame:
        """Return the result as a data frame with the rows of `frame_rows`."""
        import polars as pl

        return pl.DataFrame(self.frame_rows(), schema=self.frame_types, infer_schema_length=None)
