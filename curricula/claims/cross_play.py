"""Cross-play studies: agents trained on one population of users each, evaluated on every population.

A study is a YAML file like a claim's, and is registered like one. Its arms are its training populations. All arms have the same
demonstrations, with the gym's own rule user unless the file names another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, PositiveInt, model_validator

from curricula.claims.claim import Claim
from curricula.schedule import Turns
from curricula.validation import validated
from curricula.yaml_files import read, stem
from userrl_core.errors import ConfigError
from userrl_core.gyms.population import TRAITS, Population, population

Ranges = str | dict[str, Any]
"""A population: its name, or ranges of traits."""


class CrossPlay(Claim):
    """One cross-play study, written down before it is run. `Claim` has the other fields; `arms` are made from `train`."""

    train: dict[str, Ranges] = Field(min_length=2)
    """The training populations by name, one arm each."""

    evaluate: dict[str, Ranges] = Field(min_length=2)
    """The evaluation populations by name, the columns of the matrix. One must be shifted: a trait of the training
    populations beyond their ranges. One must have a trait that no training population has.
    """

    outside: tuple[str, ...] = ()
    """The columns of the contrasts; none: all shifted and unseen ones."""

    further: tuple[tuple[str, str], ...] = ()
    """Planned contrasts after the primary one, as pairs (more, than). All are adjusted by Holm's method."""

    seeds: PositiveInt = 16
    """Seeds per training population."""

    evaluation_tasks: PositiveInt = 400
    """Test tasks of every evaluation, the same for all agents and columns."""

    evaluation_horizon: Turns | None = None
    """Maximum agent turns of the evaluations; null: `horizon`."""

    @model_validator(mode="before")
    @classmethod
    def _arms_of_populations(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or not isinstance(values.get("train"), Mapping) or "arms" in values:
            return values
        mix = values.get("mix") or {}
        if not isinstance(mix, Mapping) or len(mix) != 1:
            raise ConfigError("claim.bad_file", "mix needs exactly one gym, such as {wish: 1}")
        overrides = values.get("overrides") or {}
        if not isinstance(overrides, Mapping):
            raise ConfigError("claim.bad_file", "overrides needs keys with values, such as {seed: 1}")
        user = f"gyms.{next(iter(mix))}.user"
        arms = {
            name: {"overrides": {user: {"kind": "rule", "population": ranges}}}
            for name, ranges in values["train"].items()
        }
        shared = {"demonstrations.user": {"kind": "rule"}, **overrides}
        return {**values, "arms": arms, "overrides": shared}

    @model_validator(mode="after")
    def _columns_fit(self) -> CrossPlay:
        if not self.shifted:
            raise ConfigError(
                "claim.bad_file",
                "evaluate needs a shifted population: one whose range of a trait begins where the training ranges end",
            )
        if not set(self.unseen) - {self.shifted[0]}:
            raise ConfigError(
                "claim.bad_file",
                "evaluate needs a population with a trait that no training population has, besides the shifted one",
            )
        if unknown := [name for name in self.outside if name not in self.evaluate]:
            raise ConfigError(
                "claim.bad_file", f"outside names '{unknown[0]}'; evaluate has {', '.join(self.evaluate)}"
            )
        if unknown := [name for pair in self.further for name in pair if name not in self.train]:
            raise ConfigError("claim.bad_file", f"further names '{unknown[0]}'; train has {', '.join(self.train)}")
        return self

    @property
    def gym(self) -> str:
        """Return the gym of the study."""
        return next(iter(self.mix))

    @property
    def contrasted(self) -> tuple[str, ...]:
        """Return the columns of the contrasts."""
        return self.outside or tuple(name for name in self.evaluate if name in (*self.shifted, *self.unseen))

    @property
    def contrasts(self) -> tuple[tuple[str, str], ...]:
        """Return the planned contrasts, the primary one first."""
        return ((self.contrast.more, self.contrast.than), *self.further)

    @property
    def shifted(self) -> tuple[str, ...]:
        """Return the columns with a trait of the training populations beyond their ranges."""
        trained = [population(ranges) for ranges in self.train.values()]
        maxima = {trait: max(population_ranges.ends(trait)[1] for population_ranges in trained) for trait in TRAITS}
        return tuple(
            name
            for name, ranges in self.evaluate.items()
            if any(0 < maxima[trait] <= population(ranges).ends(trait)[0] for trait in TRAITS)
            and not self._of_training(population(ranges))
        )

    @property
    def unseen(self) -> tuple[str, ...]:
        """Return the columns with a trait that no training population has."""
        trained = [population(ranges) for ranges in self.train.values()]
        trained_traits = {
            trait for trait in TRAITS if any(population_ranges.has(trait) for population_ranges in trained)
        }
        return tuple(
            name
            for name, ranges in self.evaluate.items()
            if any(population(ranges).has(trait) for trait in TRAITS if trait not in trained_traits)
        )

    @property
    def own(self) -> dict[str, str]:
        """Return the column of each training population that is also evaluated, perhaps with other draws."""
        return {
            row: column
            for row, ranges in self.train.items()
            for column, others in self.evaluate.items()
            if _ranges(population(ranges)) == _ranges(population(others))
        }

    def _of_training(self, column: Population) -> bool:
        return any(_ranges(population(ranges)) == _ranges(column) for ranges in self.train.values())


def load_cross_play(path: str | Path) -> CrossPlay:
    """Load a study from its YAML file. Raises ConfigError for an unknown key and for populations that do not fit."""
    return validated(
        CrossPlay, {"name": stem(Path(path)), **read(Path(path))}, f"cross-play study '{stem(Path(path))}'"
    )


def _ranges(drawn_from: Population) -> dict[str, Any]:
    return drawn_from.model_dump(include=set(TRAITS))
