"""The solution of a task, for a judge that compares a conversation with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from userrl_core.records import Turn


class ReferenceSolution(Protocol):
    """The knowledge about a task that a judge of turns needs (TARL appendix C): its reference solution and rules."""

    @property
    def policy(self) -> str:
        """The rules given to the agent."""

    @property
    def instruction(self) -> str:
        """The instruction given to the user, which the agent does not see."""

    @property
    def gold(self) -> Sequence[tuple[str, dict[str, Any]]]:
        """The calls that solve the task, as pairs of name and arguments."""

    def departures(self, turns: Sequence[Turn]) -> list[int]:
        """Return the numbers of the turns that deviate from the gold calls, ascending."""

    def deviates(self, turns: Sequence[Turn], answer: str) -> bool:
        """Return whether an answer after these turns would deviate from the gold calls."""

    def origin(self, turns: Sequence[Turn], departure: int) -> int:
        """Return the number of the turn that led to this deviation: an earlier turn that refused or offered it, or itself."""

    def source(self, turns: Sequence[Turn], departure: int) -> int | None:
        """Return what `origin` returns, by the second rules; None where the agent's part in the deviation is not certain."""

    def by_products(self, turns: Sequence[Turn], origin: int) -> list[int]:
        """Return the numbers of later turns that only repeat the deviation or report it as settled."""

    def slips(self, turns: Sequence[Turn]) -> list[int]:
        """Return the numbers of turns that broke a rule of the policy without a change to the written data."""
