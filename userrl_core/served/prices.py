"""The price of a model call, from the package ``genai-prices`` or the table next to this file.

The package ships its data, and nothing here asks the network for newer prices. A row of ``prices.yaml`` overrides it.

The package finds a model by its name. A server on this machine may serve open weights under a name that some provider also
sells. So a name has a price only if its maker alone sells it, or if the address of the server belongs to a provider.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import yaml
from pydantic import BaseModel, Field, NonNegativeFloat, ValidationError

from userrl_core.errors import ConfigError
from userrl_core.settings import refuse_truth_values

FILE = Path(__file__).with_name("prices.yaml")
MAKERS = ("openai", "anthropic", "google", "x-ai")
"""Providers whose models are sold under these names by their makers, apart from those in `OPEN`."""
OPEN = ("gpt-oss", "gemma", "grok-1")
"""Beginnings of names of open weights of these makers."""


class Price(NamedTuple):
    """A price in US dollars. source: the date of the look-up and the table: ``2026-11-25 genai-prices 0.2.3``."""

    dollars: float
    source: str


def price_of(model: str, prompt_tokens: int, completion_tokens: int, base_url: str | None = None) -> Price | None:
    """Return the list price of one call, or None if the model's price is not known. Unknown is never 0."""
    as_of, rows = own_prices()
    if (row := rows.get(model)) is not None:
        return Price((prompt_tokens * row.input + completion_tokens * row.output) / 1_000_000, f"{as_of} prices.yaml")
    dollars = _from_package(model, prompt_tokens, completion_tokens, base_url)
    if dollars is None:
        return None
    return Price(dollars, f"{datetime.now(UTC).date()} genai-prices {_version()}")


def _from_package(model: str, prompt_tokens: int, completion_tokens: int, base_url: str | None) -> float | None:
    from genai_prices import Usage, calc_price

    usage = Usage(input_tokens=prompt_tokens, output_tokens=completion_tokens)
    if base_url is not None:
        try:
            return float(calc_price(usage, model, provider_api_url=base_url).total_price)
        except (LookupError, ValueError):  # not a provider's address: a proxy, or a server of one's own
            pass
    try:
        price = calc_price(usage, model)
    except (LookupError, ValueError):
        return None
    sold_by_maker = price.provider.id in MAKERS and not price.model.id.startswith(OPEN)
    return float(price.total_price) if sold_by_maker else None


@lru_cache(maxsize=1)
def _version() -> str:
    return version("genai-prices")


class _Row(BaseModel):
    input: NonNegativeFloat = Field(allow_inf_nan=False)
    output: NonNegativeFloat = Field(allow_inf_nan=False)


class _Table(BaseModel):
    as_of: date
    models: dict[str | int | float, _Row] | None


@lru_cache(maxsize=1)
def own_prices() -> tuple[str, dict[str, _Row]]:
    """Return the date and the rows of ``prices.yaml``. Raises ConfigError for a row without both prices."""
    try:
        values = yaml.safe_load(FILE.read_text(encoding="utf-8"))
        table = _Table.model_validate(values)
        refuse_truth_values(values, table)
    except (OSError, ValueError, yaml.YAMLError) as error:
        rows = (
            {str(fault["loc"][1]) for fault in error.errors() if len(fault["loc"]) > 1}
            if isinstance(error, ValidationError)
            else ()
        )
        wrong = f"row {' and '.join(sorted(rows))} of " if rows else ""
        raise ConfigError(
            "file.unreadable",
            f"{wrong}{FILE} must have as_of: DATE and models: {{NAME: {{input: 2.50, output: 10.00}}}}, in dollars. Correct it.",
        ) from None
    return str(table.as_of), {str(name): row for name, row in (table.models or {}).items()}
