"""Dialogue acts: what an utterance does in a conversation. Rules read acts, and a reader says which acts an utterance has.

A reader is either a set of patterns or a model. Nothing here knows which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

Act = Literal[
    "confirms", "refuses", "asks", "states", "leaves", "announces", "coaches", "hands_over", "hesitates"
]  # fmt: skip
ACTS: tuple[Act, ...] = get_args(Act)
"""confirms: agrees to what was proposed. refuses: does not, or says that something is not possible. asks: wants an answer, with
or without a question mark. states: tells a fact. leaves: takes leave. announces: says what the speaker does next. coaches: tells
the agent which tool or rule to use. hands_over: passes the customer on to a person. hesitates: does not know or does not say.
"""


@dataclass(frozen=True, slots=True)
class Utterance:
    """Words of the user or the agent. before: the other side's words just before, "" for the first."""

    speaker: Literal["user", "agent"]
    before: str
    text: str


class ActReader(Protocol):
    """A reader of acts. name: what reports call it."""

    @property
    def name(self) -> str:
        """Return patterns or encoder."""

    def read(self, utterances: Sequence[Utterance]) -> list[frozenset[Act]]:
        """Return the acts of each utterance."""
