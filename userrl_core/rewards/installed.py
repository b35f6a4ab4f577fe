"""Turn credit from installed packages: the entry point ``userrl.credits``.

The entry point's name is the value of ``credit.shaping`` in a recipe. Its object is a pure function of padded rows,
as in `shaping.py`: ``rule(rewards_NT, real_NT, *, gamma, k)`` returns the shaped credit of every turn, shape [N, T].
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
    """A credit rule. Rewards and returned credit are zero at padding."""

    def __call__(
        self, rewards_NT: NDArray[np.float64], real_NT: NDArray[np.bool_], *, gamma: float, k: float
    ) -> NDArray[np.float64]:
        """Return shaped credit, shape [N, T]."""
        ...


@cache
def packages() -> Mapping[str, EntryPoint]:
    """Return entry points by name. Raises ConfigError where two packages have a rule of the same name."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=ENTRY_POINT):
        if found.setdefault(point.name, point).value != point.value:
            raise ConfigError(
                "credit.bad_package", f"Two packages define a credit rule '{point.name}'. Uninstall one of them."
            )
    return found


def rule_names(own: tuple[str, ...]) -> tuple[str, ...]:
    """Return our rules, then the packages' rules in order."""
    return (*own, *(name for name in sorted(packages()) if name not in own))


def checked(name: str, own: tuple[str, ...]) -> str:
    """Return the name if a rule has it. own: our rules. Raises ValueError naming the nearest known one."""
    known = rule_names(own)
    if name not in known:
        raise ConfigError(
            "credit.unknown_rule", f"there is no shaping '{name}'{nearest(name, known)}; known: {', '.join(known)}"
        )
    return name


def installed_credit(
    name: str, rewards_NT: NDArray[np.float64], real_NT: NDArray[np.bool_], *, gamma: float, k: float
) -> NDArray[np.float64]:
    """Return the credit by a package's rule. Raises ConfigError where the rule is missing or its result is invalid."""
    if name not in packages():
        raise ConfigError(
            "credit.unknown_rule", f"Unknown shaping {name!r}. Use naive, equalized, r2g or em, or install its package."
        )
    rule: TurnCredit = packages()[name].load()
    credit_NT = np.asarray(rule(rewards_NT.copy(), real_NT, gamma=gamma, k=k), dtype=np.float64)
    if credit_NT.shape != rewards_NT.shape or not np.isfinite(credit_NT).all():
        raise ConfigError(
            "credit.bad_package",
            f"Shaping {name!r} returned credit of shape {credit_NT.shape} for rewards of shape "
            f"{rewards_NT.shape}, or credit that is not finite. Correct {packages()[name].value}.",
        )
    return np.where(real_NT, credit_NT, 0.0)
