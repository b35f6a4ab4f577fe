"""The verb ``cross_play``, whose work is in the package `userrl-crossplay`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from userrl.machine.separate import part

if TYPE_CHECKING:
    import polars as pl


class StudyResults(Protocol):
    """The matrix and the contrasts of a cross-play study. Its text is what the command prints."""

    def as_json(self) -> dict[str, Any]:
        """Return the study's results as JSON."""

    def to_polars(self) -> pl.DataFrame:
        """Return the scores, one row per seed, training population and evaluation population."""


def cross_play(file: str, *, seeds: int | None = None, parallel: int = 2) -> StudyResults:
    """Run a cross-play study and return its matrix. Called again, it continues where it stopped.

    file: the study's YAML file, which is registered before its first run. seeds: per training population; by default the
    study's number, and fewer give no verdict. Raises ConfigError with one sentence.
    """
    results: StudyResults = part("userrl-crossplay", "played").play(
        {"file": file, "seeds": seeds, "parallel": parallel}
    )
    return results
