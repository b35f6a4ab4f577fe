"""The reference solution of a TauGym task for a judge of turns, and the turns that deviate from its gold writes.

A turn deviates in two cases. Its write succeeded but is not among the open gold writes. Or a gold write was possible
for the last time at that turn and was not made. Order does not matter, arguments must be equal (5 and 5.0 are). Gold
writes that fail on replay do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from userrl_core.gyms.tau.blame import HANDOVER, claims, declines, offered, proposal_of, refuses, tool_subjects
from userrl_core.gyms.tau.database import Tables
from userrl_core.gyms.tau.tools import Domain, ToolError
from userrl_core.gyms.tau.verifier import Write, exact, replay
from userrl_core.records import Turn

Call = tuple[str, dict[str, Any]]
LOOKED_UP = ("order_id", "reservation_id", "item", "booking_id")
"""Arguments that identify the object of a write. The policies require a look-up first."""


@dataclass(frozen=True, slots=True)
class TauReference:
    """Implements `gyms.solution.ReferenceSolution`. gold: the gold actions, reads too. base: the records before them."""

    domain: Domain
    instruction: str
    gold: tuple[Call, ...]
    base: Tables

    @property
    def policy(self) -> str:
        """The domain's policy."""
        return self.domain.policy

    def departures(self, turns: Sequence[Turn]) -> list[int]:
        """Return the numbers of the deviating turns, ascending. The conversation went wrong at the first."""
        writes = [(turn.number, self.domain.read(turn.content or "")) for turn in turns if turn.info.get("write")]
        made_calls = [call for _, call in writes]
        open_writes: dict[str, list[Write]] = {}
        for call in self._carried_out(self.gold):
            open_writes.setdefault(exact(call), []).append(call)
        turn_numbers: set[int] = set()
        for number, call in writes:
            if same := open_writes.get(exact(call)):
                same.pop()
            else:
                turn_numbers.add(number)
        for missing_call in (call for calls in open_writes.values() for call in calls):
            # None: it needs another gold write, which is missing as well.
            last = next(
                (k for k in range(len(made_calls), -1, -1) if self._succeeds(missing_call, made_calls[:k])), None
            )
            if last is not None:
                turn_numbers.add(writes[last][0] if last < len(writes) else turns[-1].number)
        return sorted(turn_numbers)

    def deviates(self, turns: Sequence[Turn], answer: str) -> bool:
        """Return whether this call would be a successful write that is not among the open gold writes."""
        try:
            call = self.domain.read(answer)
        except ToolError:
            return False
        if call[0] not in self.domain.writes:
            return False
        made_calls = [self.domain.read(turn.content or "") for turn in turns if turn.info.get("write")]
        still_open = Counter(map(exact, self._carried_out(self.gold))) - Counter(map(exact, made_calls))
        return not still_open[exact(call)] and self._succeeds(call, made_calls)

    def origin(self, turns: Sequence[Turn], departure: int) -> int:
        """Return the turn that led to a deviation: a refusal or handover before a missing write, or the offer of a wrong one."""
        turn = turns[departure - 1]
        if turn.info.get("write") and departure in self._wrong(turns):
            _, arguments = self.domain.read(turn.content or "")
            earlier = offered(turns[: departure - 1], arguments, [gold for _, gold in self._carried_out(self.gold)])
            return earlier or departure
        return next((earlier_turn.number for earlier_turn in turns[:departure] if refuses(earlier_turn)), departure)

    def source(self, turns: Sequence[Turn], departure: int) -> int | None:
        """Return the turn that led to a deviation, or None where it is not certain that the agent did.

        A wrong write follows from the last message that proposed it (`proposal_of`). A missing one follows from the first
        refusal or handover, or else from a last message that claims that something was done.
        """
        turn = turns[departure - 1]
        if turn.info.get("write") and departure in self._wrong(turns):
            name, arguments = self.domain.read(turn.content or "")
            gold = [gold_arguments for gold_name, gold_arguments in self._carried_out(self.gold) if gold_name == name]
            messages = [earlier for earlier in turns[: departure - 1] if earlier.choice == "action"]
            return proposal_of(messages, arguments, gold) or departure
        missing = {name for name, _ in self._missing(turns)}
        subjects, others = tool_subjects(missing), tool_subjects(self.domain.writes - missing)
        refusal = next(
            (earlier.number for earlier in turns[:departure] if declines(earlier, subjects, others - subjects)), None
        )
        if refusal is not None:
            return refusal
        return departure if claims(turn) else None

    def by_products(self, turns: Sequence[Turn], origin: int) -> list[int]:
        """Return later turns that refuse again, or claim that all is settled."""
        wrong = turns[origin - 1]
        needless = False
        if wrong.info.get("write"):
            _, arguments = self.domain.read(wrong.content or "")
            objects = {str(value) for value in arguments.values() if isinstance(value, str)}
            golden = {
                str(value)
                for _, gold_arguments in self._carried_out(self.gold)
                for value in gold_arguments.values()
                if isinstance(value, str)
            }
            needless = not objects & golden
        return [turn.number for turn in turns[origin:] if refuses(turn) or (claims(turn) and not needless)]

    def slips(self, turns: Sequence[Turn]) -> list[int]:
        """Return writes on an object that was not looked up before, and handovers that gold does not make."""
        looked_up: set[tuple[str, str]] = set()
        turn_numbers = []
        handovers = {name for name, _ in self.gold if name.startswith(HANDOVER)}
        for turn in turns:
            if turn.choice != "answer" or turn.info.get("tool_error"):
                continue
            name, arguments = self.domain.read(turn.content or "")
            objects = {(key, str(value)) for key, value in arguments.items() if key in LOOKED_UP}
            if (turn.info.get("write") and objects - looked_up) or (name.startswith(HANDOVER) and not handovers):
                turn_numbers.append(turn.number)
            looked_up |= objects
        return turn_numbers

    def _missing(self, turns: Sequence[Turn]) -> list[Write]:
        made = Counter(exact(self.domain.read(turn.content or "")) for turn in turns if turn.info.get("write"))
        missing = []
        for call in self._carried_out(self.gold):
            if made[exact(call)]:
                made[exact(call)] -= 1
            else:
                missing.append(call)
        return missing

    def _wrong(self, turns: Sequence[Turn]) -> set[int]:
        still_open = Counter(map(exact, self._carried_out(self.gold)))
        wrong = set()
        for turn in turns:
            if turn.info.get("write"):
                call = exact(self.domain.read(turn.content or ""))
                if still_open[call]:
                    still_open[call] -= 1
                else:
                    wrong.add(turn.number)
        return wrong

    def _succeeds(self, call: Write, after: Sequence[Write]) -> bool:
        return len(self._carried_out([*after, call])) > len(self._carried_out(after))

    def _carried_out(self, calls: Sequence[Write]) -> list[Write]:
        """Return the successful writes among the calls, executed in order."""
        actions = [{"name": name, "kwargs": arguments} for name, arguments in calls]
        return replay(self.domain, actions, self.base).writes
