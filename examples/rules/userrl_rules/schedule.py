"""A horizon schedule from outside the tree: `schedule: {kind: at_once, short: 4, after: 20, long: 16}`."""

from typing import Literal

from pydantic import PositiveInt

from curricula.schedule import Level, Schedule


class AtOnce(Schedule):
    """A short horizon, then the long one at once."""

    kind: Literal["at_once"] = "at_once"
    """Which schedule this is."""

    short: PositiveInt
    """The first horizon, in agent turns."""

    after: PositiveInt
    """Training steps at the first horizon."""

    long: PositiveInt
    """The horizon after that."""

    def levels(self) -> tuple[Level, ...]:
        """Two spans, the second one open."""
        return (Level(self.short, self.after), Level(self.long))
