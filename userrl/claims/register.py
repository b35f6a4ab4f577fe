"""What is written down before an arm starts: the claim, its hash, and which run every arm and seed is.

A claim has a run of its own in the warehouse, ``claim-<name>``, which holds no conversations: its events ``claim`` and
``claim_arm`` are the register (queries ``claims`` and ``claim_arms``). The first ``claim`` event of a name is its registration.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from curricula.claims import CHECKS, Claim
from userrl.machine.home import warehouse_dir
from warehouse import open_warehouse
from warehouse.write.turn_log import TurnLog

CHANGED = "the claim, or a recipe of its arms, was changed after it was registered"
BUDGET = "another budget than the claim's"
OWN_ARM = "an arm of one's own"
EARLIER = "the run began before the claim was registered"


@dataclass(slots=True)
class Register:
    """The open register of one claim. exploratory: why all of its arms are, "" where it stands as it was registered.

    registered: Unix seconds of this hash's first event. rows: the newest event of each arm and seed under this hash.
    """

    claim: Claim
    exploratory: str
    registered: float
    log: TurnLog
    rows: dict[tuple[str, int], Mapping[str, Any]] = field(default_factory=dict)

    def note(self, arm: str, seed: int, *, run: str, began: float, state: str, own: bool = False, **more: Any) -> None:
        """Which run an arm's seed is, and how it stands; durable on return.

        began: Unix seconds, when the run did. own: a person's arm. more: what the next start wants to know.
        """
        reasons = [self.exploratory, OWN_ARM if own else "", EARLIER if began < self.registered and not own else ""]
        fields = {
            "claim": self.claim.name,
            "hash": self.claim.hash,
            "arm": arm,
            "seed": seed,
            "run": run,
            "state": state,
            "exploratory": "; ".join(filter(None, reasons)),
            "target": self.claim.target,
            **more,
        }
        self.log.event("claim_arm", **fields)
        self.rows[arm, seed] = fields


@contextmanager
def registered(claim: Claim, *, changed_budget: bool) -> Iterator[Register]:
    """The claim's register; a hash that is not in it is registered first, exploratory unless it is the claim's first one."""
    events = _events(claim.name)
    hashes = [fields for kind, _, fields in events if kind == "claim"]
    # A budget of one's own is no registration of the claim, whoever came first.
    first = next((each["hash"] for each in hashes if each["exploratory"] != BUDGET), claim.hash)
    exploratory = BUDGET if changed_budget else CHANGED if first != claim.hash else ""
    known = [at for kind, at, fields in events if kind == "claim" and fields["hash"] == claim.hash]
    with TurnLog.open(warehouse_dir(), f"claim-{claim.name}", run_fields={"name": f"claim-{claim.name}"}) as log:
        if not known:
            log.event(
                "claim",
                claim=claim.name,
                hash=claim.hash,
                of_kind=claim.kind,
                text=claim.text,
                exploratory=exploratory,
                values=claim.model_dump(mode="json"),
            )
        found = Register(claim, exploratory, known[0] if known else time.time(), log)
        for kind, _, fields in events:
            if kind == "claim_arm" and fields["hash"] == claim.hash:
                found.rows[fields["arm"], int(fields["seed"])] = fields
        yield found


def runs_of(names: Iterable[str]) -> set[str]:
    """The runs that tables of these claims and of their checks are made of, and the registers: what to open a warehouse for."""
    registers = {f"claim-{each}" for name in names for each in (name, *(f"{name}.{which}" for which in CHECKS))}
    text = "SELECT DISTINCT fields->>'run' AS run FROM events WHERE kind = 'claim_arm'"
    with open_warehouse(warehouse_dir(), run=registers) as warehouse:
        return registers | {row["run"] for row in warehouse.rows(text)}


def _events(name: str) -> list[tuple[str, float, dict[str, Any]]]:
    """Kind, time and fields of the claim's events, the oldest first."""
    with open_warehouse(warehouse_dir(), run=f"claim-{name}") as warehouse:
        rows = warehouse.rows(
            """SELECT kind, logged_at, fields FROM events WHERE run_id = $run AND kind IN ('claim', 'claim_arm')
               ORDER BY incarnation, seq""",
            run=f"claim-{name}",
        )
    return [(row["kind"], row["logged_at"], json.loads(row["fields"])) for row in rows]
