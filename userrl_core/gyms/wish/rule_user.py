"""The rule user of WishGym: it tells a colour plainly, or only when asked again, with one word an answer.

Its hesitation is drawn from the task, not from the conversation. All trajectories of a group, and all tested policies, meet
the same hesitations in the same order.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from userrl_core.errors import ConfigError
from userrl_core.gyms.population import ASIDES, Persona
from userrl_core.gyms.wish.tasks import COLOURS
from userrl_core.records import ModelCall, Task
from userrl_core.seeding import derive_seed

Manner = Literal["plain", "vague", "second", "mute"]
"""plain: tells at once. vague, mute: hesitates each time with probability .5, .75. second: hesitates the first time."""

HESITATION: dict[str, float] = {"plain": 0.0, "vague": 0.5, "mute": 0.75}
HESITATES, ANYTHING = "hm", "any"


class RuleWishUser:
    """A deterministic user.

    manner: one `Manner`, or several; the task draws one of them. population: the users to draw from, instead of a manner.
    """

    def __init__(
        self,
        task: Task,
        rng: random.Random,
        *,
        manner: Manner | Sequence[Manner] = "plain",
        population: str | Mapping[str, Any] | None = None,
    ) -> None:
        manners = [manner] if isinstance(manner, str) else list(manner)
        unknown = [name for name in manners if name not in get_args(Manner)]
        if unknown or not manners:
            raise ConfigError(
                "user.bad_option",
                f"WishGym's user has no manner {unknown or 'none'}. It has {', '.join(get_args(Manner))}.",
            )
        if population is not None and manner != "plain":
            raise ConfigError(
                "user.bad_option",
                "WishGym's user has a manner and a population. A manner is one point of a population.",
            )
        self.persona = None if population is None else Persona("wish", task.id, population)
        self.volunteered: str | None = None
        """The garment whose colour the last answer told unasked."""
        self._wished: Mapping[str, str] = task.payload["wished"]
        self._told: set[str] = set()
        self.ledger: list[ModelCall] = []
        self._rng = random.Random(derive_seed("wish", task.id))
        self.manner = self._rng.choice(manners)
        self._asked: set[str] = set()

    async def colour(self, garment: str, colour: str | None, repeated: bool) -> tuple[str, bool]:
        """Return the colour, ``hm``, or ``any`` for a garment outside the outfit."""
        self.volunteered = None
        if colour is None:
            return ANYTHING, False
        if self.persona is not None:
            return self._as_drawn(self.persona, garment, colour, repeated)
        if not repeated and self.hesitates(garment):
            return HESITATES, False
        return colour, True

    def _as_drawn(self, persona: Persona, garment: str, colour: str, repeated: bool) -> tuple[str, bool]:
        """Return the answer of a drawn user. A colour that was told is told again at once."""
        if repeated:
            return colour, True
        move = persona.move(garment)
        if move in ASIDES:
            return ASIDES[move][0], False
        if move == "slips":
            return persona.pick([other for other in COLOURS if other != colour]), False
        self._told.add(garment)
        untold = [other for other in self._wished if other not in self._told]
        if untold and persona.volunteers():
            self.volunteered = persona.pick(untold)
            self._told.add(self.volunteered)
            return f"{colour}, {self.volunteered} {self._wished[self.volunteered]}", True
        return colour, True

    def hesitates(self, garment: str) -> bool:
        """Return whether the agent must ask for the colour again."""
        first = garment not in self._asked
        self._asked.add(garment)
        return first if self.manner == "second" else self._rng.random() < HESITATION[self.manner]
