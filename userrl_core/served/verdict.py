"""The replies of the guessing games' judges, accepted in any case.

These schemas (class names, docstrings, field names) are sent to the model: they are part of the experiment.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator

Answer = Literal["No", "Maybe", "Yes"]


def _normalised(value: Any) -> Any:
    return value.strip().strip(".!\"'").capitalize() if isinstance(value, str) else value


class YesNoMaybe(BaseModel):
    """A judge's reply to a yes/no question; ``yes``, ``YES.`` and ``Yes`` are the same."""

    thought: str = ""
    """Why, for the judge's own use; never shown."""

    response: Annotated[Answer, BeforeValidator(_normalised)]


class SameThing(BaseModel):
    """A judge's decision whether a guess or an answer means the truth."""

    thought: str = ""
    """Why, for the judge's own use; never shown."""

    correct: Annotated[Literal["No", "Yes"], BeforeValidator(_normalised)]


def read_answer(value: Any) -> Answer:
    """Return Yes, No or Maybe in any case. Raises ValueError for anything else."""
    answer = _normalised(value)
    if answer not in ("No", "Maybe", "Yes"):
        raise ValueError("the answer is none of Yes, No and Maybe")
    return answer  # type: ignore[no-any-return]
