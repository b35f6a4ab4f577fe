"""Task curricula: which tasks of a pool the next batch gets, by how often the agent has passed them.

A curriculum gives every task of a pool a priority, and a batch gets the tasks of the highest priorities. Priorities are a
pure function of the recorded outcomes and of one uniform number per task, so a resumed run draws the tasks of an
uninterrupted one.

Shapes: T tasks of a pool, F families.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, SerializeAsAny, ValidatorFunctionWrapHandler, WrapValidator, model_validator

from userrl_core.errors import ConfigError
from userrl_core.installed.same_name import installed_kind
from userrl_core.settings import Settings

Floats = NDArray[np.float64]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class TaskCurriculum(Settings):
    """Base of all kinds that estimate pass rates.

    A task's estimate is a Beta distribution: what its own conversations showed, and a few conversations with the pass rate of
    its family (its gym and tier). So a task that was never played is as hard as its family, also in a pool so large that few
    tasks come twice. Only admitted conversations count.
    """

    prior: tuple[PositiveFloat, PositiveFloat] = (1.0, 1.0)
    """Conversations passed and failed that every family starts with."""

    family: PositiveFloat = 2.0
    """Number of conversations with the family's pass rate in each task's estimate."""

    half_life: PositiveFloat | None = 20.0
    """Training steps after which an outcome counts half, since the agent changes; null: outcomes never fade."""

    def posterior(self, passed_T: Floats, failed_T: Floats, family_T: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Return the parameters of each task's Beta distribution, [T] each.

        passed_T, failed_T: faded numbers of conversations. family_T: the number of each task's family.
        """
        passed_F = np.bincount(family_T, passed_T) + self.prior[0]
        failed_F = np.bincount(family_T, failed_T) + self.prior[1]
        rates_T = (passed_F / (passed_F + failed_F))[family_T]
        return passed_T + self.family * rates_T, failed_T + self.family * (1.0 - rates_T)

    def priorities(self, alpha_T: Floats, beta_T: Floats, uniform_T: Floats) -> Floats:
        """Return a priority for every task, [T]; the next batch gets the highest.

        alpha_T, beta_T: parameters of the estimates. uniform_T: independent numbers in (0, 1).
        """
        raise NotImplementedError


class Uniform(Settings):
    """Every task once per epoch, in random order."""

    kind: Literal["uniform"] = "uniform"


class Oversample(Settings):
    """Every task once per epoch, and a share of each batch from tasks whose last group was mixed (after DAPO).

    The chance of a mixed task is in proportion to p (1 - p), p its last group's share of successes.
    """

    kind: Literal["oversample"] = "oversample"
    share: Share = 0.25
    """Share of a batch."""


class Learnability(TaskCurriculum):
    """Tasks in proportion to p (1 - p), p their estimated pass rate: those that the agent sometimes solves."""

    kind: Literal["learnability"] = "learnability"

    def priorities(self, alpha_T: Floats, beta_T: Floats, uniform_T: Floats) -> Floats:
        """See `TaskCurriculum.priorities`."""
        rates = alpha_T / (alpha_T + beta_T)
        return in_proportion(rates * (1.0 - rates), uniform_T)


class Thompson(TaskCurriculum):
    """Posterior sampling: the tasks of the largest q (1 - q), q drawn from the posterior of each pass rate.

    A task that was seldom played has a wide posterior and is tried again. A task that always fails is given up slowly.
    """

    kind: Literal["thompson"] = "thompson"

    def priorities(self, alpha_T: Floats, beta_T: Floats, uniform_T: Floats) -> Floats:
        """See `TaskCurriculum.priorities`."""
        from scipy.special import betaincinv  # its import takes a tenth of a second

        drawn_T = betaincinv(alpha_T, beta_T, uniform_T)
        priorities: Floats = drawn_T * (1.0 - drawn_T)
        return priorities


class Pools(TaskCurriculum):
    """Easy, medium and hard tasks, with fixed expected shares. A task is promoted as its estimated pass rate rises.

    A task that was not played yet is where its family is: medium at first.
    """

    kind: Literal["pools"] = "pools"
    easy_from: Share = 0.75
    """Pass rate from which a task is easy."""

    hard_below: Share = 0.25
    """Pass rate below which a task is hard."""

    easy: Share = 0.15
    """Expected share of easy tasks in a batch. The share of a pool without tasks goes to the others."""

    medium: Share = 0.7
    """Expected share of medium tasks."""

    hard: Share = 0.15
    """Expected share of hard tasks."""

    @model_validator(mode="after")
    def _sensible(self) -> Pools:
        if self.hard_below >= self.easy_from:
            raise ConfigError("recipe.conflict", "hard_below must be lower than easy_from")
        if abs(self.easy + self.medium + self.hard - 1.0) > 1e-6:
            raise ConfigError("recipe.invalid_value", "the shares of easy, medium and hard tasks must sum to 1")
        return self

    def priorities(self, alpha_T: Floats, beta_T: Floats, uniform_T: Floats) -> Floats:
        """See `TaskCurriculum.priorities`."""
        rates = alpha_T / (alpha_T + beta_T)
        weights = np.zeros(len(rates))
        pools = (
            rates < self.hard_below,
            (rates >= self.hard_below) & (rates < self.easy_from),
            rates >= self.easy_from,
        )
        for share, pool in zip((self.hard, self.medium, self.easy), pools, strict=True):
            weights[pool] = share / max(int(pool.sum()), 1)
        return in_proportion(weights, uniform_T)


def in_proportion(weights_T: Floats, uniform_T: Floats) -> Floats:
    """Return priorities whose highest are a draw without replacement in proportion to the weights (the Gumbel-max trick)."""
    with np.errstate(divide="ignore"):
        priorities: Floats = np.log(weights_T) - np.log(-np.log(uniform_T))
    return priorities


ENTRY_POINT = "userrl.curricula"
"""Kinds of curricula from installed packages. The entry point's name is the ``kind``, its object a `TaskCurriculum` class."""

OURS = tuple(kind.model_fields["kind"].default for kind in (Uniform, Oversample, Learnability, Pools, Thompson))


def _or_installed(value: Any, ours: ValidatorFunctionWrapHandler) -> Any:
    return installed_kind(value, ours, TaskCurriculum, ENTRY_POINT, OURS, "curriculum.bad_package")


AnyCurriculum = Annotated[
    Annotated[Uniform | Oversample | Learnability | Pools | Thompson, Field(discriminator="kind")],
    WrapValidator(_or_installed),
    SerializeAsAny(),
]
