"""The price of a model call, from the table next to this file."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files

import yaml

_DATED = re.compile(r"-\d{4}-\d{2}-\d{2}$")


def price_of(model: str, prompt_tokens: int, completion_tokens: int) -> float | None:
    """Return the list price of one call in US dollars; None where the model's price is not known."""
    table = _table()
    row = table.get(model) or table.get(_DATED.sub("", model))
    if row is None:
        return None
    return (prompt_tokens * row[0] + completion_tokens * row[1]) / 1_000_000


@lru_cache(maxsize=1)
def _table() -> dict[str, tuple[float, float]]:
    text = (files("userrl_core.served") / "prices.yaml").read_text(encoding="utf-8")
    models = yaml.safe_load(text)["models"]
    return {str(name): (float(row["input"]), float(row["output"])) for name, row in models.items()}
