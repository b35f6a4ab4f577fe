"""The register of a claim: the claim, its hashes, and the run of every arm and seed, written before an arm starts.

Each claim has a run in the warehouse, ``claim-<name>``, without conversations. Its events ``claim`` and ``claim_arm``
are the register (queries ``claims`` and ``claim_arms``). The first ``claim`` event of a name is its registration. It
holds three hashes: of the claim's file and recipes, of the code that trains, and of the code that measures.
Registrations up to 25 November 2026 hold only the first hash, and still open.

A register is a file in one home folder. It shows what was registered there first. It cannot show runs elsewhere.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from curricula.claims import CHECKS, Claim
from userrl.claims.code import measuring_code, registration, training_code
from userrl.machine.home import warehouse_dir
from warehouse import open_warehouse
from warehouse.write.turn_log import TurnLog

CHANGED = "the claim, or a recipe of its arms, was changed after it was registered"
BUDGET = "another budget than the claim's"
OWN_ARM = "an arm of one's own"
EARLIER = "the run began before the claim was registered"


@dataclass(slots=True)
class Register:
    """The open register of one claim.

    exploratory: the reason why all arms are exploratory, "" for the claim as registered. registered: Unix seconds of
    this hash's first event. rows: the newest event of each arm and seed under this hash, with
    the label of its last start (0: this claim did not start it).
    """

    claim: Claim
    exploratory: str
    registered: float
    log: TurnLog
    rows: dict[tuple[str, int], Mapping[str, Any]] = field(default_factory=dict)

    def note(
        self, arm: str, seed: int, *, run: str, began: float, state: str, of_person: bool = False, **more: Any
    ) -> None:
        """Record the run of an arm's seed and its state; durable on return.

        began: Unix seconds when the run started. of_person: whether a person added the arm. more: fields that the next start
        reads. A run keeps the hash of the code with which it started.
        """
        earlier = self.rows.get((arm, seed))
        if earlier is not None and earlier["run"] == run:
            code = earlier.get("code")
        else:
            run_code = None if state == "started" else _code_of(run)
            code = run_code or (training_code() if began >= self.registered else None)
        reasons = [
            self.exploratory,
            OWN_ARM if of_person else "",
            EARLIER if began < self.registered and not of_person else "",
        ]
        fields = {
            "claim": self.claim.name,
            "hash": self.claim.hash,
            "arm": arm,
            "seed": seed,
            "run": run,
            "state": state,
            "exploratory": "; ".join(filter(None, reasons)),
            "target": self.claim.target,
            "code": code,
            **more,
        }
        self.log.event("claim_arm", **fields)
        self.rows[arm, seed] = fields


@contextmanager
def registered(claim: Claim, *, changed_budget: bool) -> Iterator[Register]:
    """Open the claim's register. A new hash is registered first, as exploratory unless it is the claim's first hash."""
    events = _events(claim.name)
    hashes = [fields for kind, _, fields in events if kind == "claim"]
    # A budget of one's own is no registration of the claim, whoever came first.
    first = next((entry["hash"] for entry in hashes if entry["exploratory"] != BUDGET), claim.hash)
    exploratory = BUDGET if changed_budget else CHANGED if first != claim.hash else ""
    registration_times = [at for kind, at, fields in events if kind == "claim" and fields["hash"] == claim.hash]
    with TurnLog.open(warehouse_dir(), f"claim-{claim.name}", run_fields={"name": f"claim-{claim.name}"}) as log:
        if not registration_times:
            log.event(
                "claim",
                claim=claim.name,
                hash=claim.hash,
                code=training_code(),
                measure=measuring_code(),
                registration=registration(claim.hash),
                of_kind=claim.kind,
                text=claim.text,
                exploratory=exploratory,
                values=claim.model_dump(mode="json"),
            )
        register = Register(claim, exploratory, registration_times[0] if registration_times else time.time(), log)
        for kind, _, fields in events:
            if kind == "claim_arm" and fields["hash"] == claim.hash:
                place = fields["arm"], int(fields["seed"])
                # The event of an end has no label, and a start may not repeat one: Prefect would return the finished flow run.
                register.rows[place] = {"label": register.rows.get(place, {}).get("label", 0), **fields}
        yield register


def as_registered(claim: Claim) -> Claim:
    """Return the claim in the form registered in this home: the published form if only that one is registered."""
    if not warehouse_dir().is_dir():
        return claim
    hashes = {fields["hash"] for kind, _, fields in _events(claim.name) if kind == "claim"}
    return claim.as_published if claim.hash not in hashes and claim.as_published.hash in hashes else claim


def runs_of(names: Iterable[str]) -> set[str]:
    """Return the runs behind the tables of these claims and of their checks, and the registers."""
    registers = {
        f"claim-{claim_name}" for name in names for claim_name in (name, *(f"{name}.{which}" for which in CHECKS))
    }
    text = "SELECT DISTINCT fields->>'run' AS run FROM events WHERE kind = 'claim_arm'"
    with open_warehouse(warehouse_dir(), run=registers) as warehouse:
        return registers | {row["run"] for row in warehouse.rows(text)}


def _code_of(run: str) -> str | None:
    """Return the code hash of a run that another claim started, or None if no claim of this home started it."""
    text = "SELECT max(fields->>'code') AS code FROM events WHERE kind = 'claim_arm' AND fields->>'run' = $run"
    with open_warehouse(warehouse_dir()) as warehouse:
        return str(code) if (code := warehouse.rows(text, run=run)[0]["code"]) else None


def _events(name: str) -> list[tuple[str, float, dict[str, Any]]]:
    """Return kind, time and fields of the claim's events, oldest first."""
    with open_warehouse(warehouse_dir(), run=f"claim-{name}") as warehouse:
        rows = warehouse.rows(
            """SELECT kind, logged_at, fields FROM events WHERE run_id = $run AND kind IN ('claim', 'claim_arm')
               ORDER BY incarnation, seq""",
            run=f"claim-{name}",
        )
    return [(row["kind"], row["logged_at"], json.loads(row["fields"])) for row in rows]
