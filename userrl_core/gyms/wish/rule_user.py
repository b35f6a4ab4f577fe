"""The rule user of WishGym: it tells a colour plainly, or only when asked again, with one word an answer.

Its hesitation is drawn from the task, not from the conversation. All trajectories of a group, and all tested policies, meet
the same hesitations in the same order.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal, get_args

from userrl_core.errors import ConfigError
from userrl_core.records import ModelCall, Task
from userrl_core.seeding import derive_seed

Manner = Literal["plain", "vague", "second", "mute"]
"""plain: tells at once. vague, mute: hesitates each time with probability .5, .75. second: hesitates the first time."""

HESITATION: dict[str, float] = {"plain": 0.0, "vague": 0.5, "mute": 0.75}
HESITATES, ANYTHING = "hm", "any"


class RuleWishUser:
    """A deterministic user. manner: one `Manner`, or several; the task draws one of them."""

    def __init__(self, task: Task, rng: random.Random, *, manner: Manner | Sequence[Manner] = "plain") -> None:
        manners = [manner] if isinstance(manner, str) else list(manner)
        unknown = [one for one in manners if one not in get_args(Manner)]
        if unknown or not manners:
            raise ConfigError(
                "user.bad_option",
                f"WishGym's user has no manner {unknown or 'none'}. It has {', '.join(get_args(Manner))}.",
            )
        self.ledger: list[ModelCall] = []
        self._rng = random.Random(derive_seed("wish", task.id))
        self.manner = self._rng.choice(manners)
        self._asked: set[str] = set()

    async def colour(self, garment: str, colour: str | None, told: bool) -> tuple[str, bool]:
        """Return the colour, ``hm``, or ``any`` for a garment outside the outfit."""
        if colour is None:
            return ANYTHING, False
        if not told and self.hesitates(garment):
            return HESITATES, False
        return colour, True

    def hesitates(self, garment: str) -> bool:
        """Return whether the agent must ask for the colour again."""
        first = garment not in self._asked
        self._asked.add(garment)
        return first if self.manner == "second" else self._rng.random() < HESITATION[self.manner]
