"""Results in a notebook."""

from __future__ import annotations

import re


class Printed:
    """A result that a notebook shows as the command line prints it, and not as its fields."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        """Return the printed text as a block of code."""
        text = str(self)
        fence = "`" * (1 + max(map(len, re.findall("`{2,}", text)), default=2))
        return f"{fence}\n{text}\n{fence}"
