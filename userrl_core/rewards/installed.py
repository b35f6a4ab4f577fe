"""Turn credit from installed packages: the entry point ``userrl.credits``.

The entry point's name is the value of ``credit.shaping`` in a recipe. Its object is a pure function of padded rows,
as in `shaping.py`: ``rule(rewards_NT, real_NT, *, gamma, k)`` returns the shaped credit of every turn, shape [N, T].
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from userrl_core.errors import ConfigError, in_one_line
from userrl_core.installed.same_name import loaded, offered, same_name
from userrl_core.suggest import nearest

ENTRY_POINT = "userrl.credits"
NOUN = "credit rule"


class TurnCredit(Protocol):
    """A credit rule. Rewards and returned credit are zero at padding."""

    def __call__(
        self, rewards_NT: NDArray[np.float64], real_NT: NDArray[np.bool_], *, gamma: float, k: float
    ) -> NDArray[np.float64]:
        """Return shaped credit, shape [N, T]."""


def packages() -> Mapping[str, tuple[EntryPoint, ...]]:
    """Return the entry points of installed packages by the rule's name."""
    return offered(ENTRY_POINT)


def rule_names(own: tuple[str, ...]) -> tuple[str, ...]:
    """Return our rules, then the packages' rules in order. Leave out a rule that several packages define."""
    return (*own, *(name for name, points in packages().items() if name not in own and not same_name(NOUN, points)))


def checked(name: str, own: tuple[str, ...]) -> str:
    """Return the name if one rule has it. own: our rules.

    Raises ConfigError naming the nearest known rule, or the packages if several define this one.
    """
    points = packages().get(name, ())
    if refusal := same_name(NOUN, points, f"userrl_core.rewards.shaping:{name}" if name in own else ""):
        raise ConfigError("credit.bad_package", refusal)
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
    points = packages()[name]
    if refusal := same_name(NOUN, points):
        raise ConfigError("credit.bad_package", refusal)
    rule: TurnCredit = loaded(points[0], "credit.bad_package")
    try:
        credit_NT = np.asarray(rule(rewards_NT.copy(), real_NT, gamma=gamma, k=k), dtype=np.float64)
    except Exception as error:
        raise ConfigError(
            "credit.bad_package",
            f"Shaping {name!r} failed ({in_one_line(error)}). Correct {points[0].value}.",
        ) from error
    if credit_NT.shape != rewards_NT.shape or not np.isfinite(credit_NT).all():
        raise ConfigError(
            "credit.bad_package",
            f"Shaping {name!r} returned credit of shape {credit_NT.shape} for rewards of shape "
            f"{rewards_NT.shape}, or credit that is not finite. Correct {points[0].value}.",
        )
    return np.where(real_NT, credit_NT, 0.0)
