"""Turn credit from installed packages: the entry point ``userrl.credits``.

Its name is what a recipe writes as ``credit.shaping``; its object a pure function of padded rows, as those of `shaping.py`:
``rule(rewards_NT, real_NT, *, gamma, k)`` returns the shaped credit of every turn, shape [N, T].
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from userrl_core.errors import ConfigError
from userrl_core.suggest import nearest

ENTRY_POINT = "userrl.credits"


class TurnCredit(Protocol):
    """A rule: rewards are zero at padding, and so is what it returns there."""

    def __call__(
        self, rewards_NT: NDArray[np.float64], real_NT: NDArray[np.bool_], *, gamma: float, k: float
    ) -> NDArray[np.float64]:
        """Shaped credit, shape [N, T]."""
        ...


@cache
def packages() -> Mapping[str, EntryPoint]:
    """Entry points by name. Raises ConfigError where two packages bring a rule of one name."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=ENTRY_POINT):
        if found.setdefault(point.name, point).value != point.value:
            raise ConfigError(f"Two packages bring a credit rule '{point.name}'; uninstall one of them.")
    return found


def rule_names(own: tuple[str, ...]) -> tuple[str, ...]:
    """Ours, then the packages' in order."""
    return (*own, *(each for each in sorted(packages()) if each not in own))


def checked(name: str, own: tuple[str, ...]) -> str:
    """The name, if a rule is called so. own: the names of ours. Raises ValueError naming the nearest known one."""
    known = rule_names(own)
    if name not in known:
        raise ValueError(f"there is no shaping '{name}'{nearest(name, known)}; known: {', '.join(known)}")
    return name


def installed_credit(
    name: str, rewards_NT: NDArray[np.float64], real_NT: NDArray[np.bool_], *, gamma: float, k: float
) -> NDArray[np.float64]:
    """What a package's rule makes of the rewards. Raises ConfigError where it is not there or returns something else."""
    if name not in packages():
        raise ConfigError(f"Unknown shaping {name!r}; use naive, equalized, r2g or em, or install its package.")
    rule: TurnCredit = packages()[name].load()
    credit_NT = np.asarray(rule(rewards_NT.copy(), real_NT, gamma=gamma, k=k), dtype=np.float64)
    if credit_NT.shape != rewards_NT.shape or not np.isfinite(credit_NT).all():
        raise ConfigError(
            f"Shaping {name!r} returned credit of shape {credit_NT.shape} for rewards of shape {rewards_NT.shape}, or not "
            f"all of it finite; correct {packages()[name].value}."
        )
    return np.where(real_NT, credit_NT, 0.0)
