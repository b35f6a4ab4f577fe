"""Gold writes of tau-bench's airline that break the policy's rules which can be computed.

A failure at such a task says little about either side. The rules: cancelling within 24 hours, with insurance or in business;
no change of basic economy; no change or cancellation of flown segments; bags are added and never removed; the number of free
bags; the payment methods of a booking; who may have a certificate.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping
from typing import Any

from userrl_core.gyms.tau import airline
from userrl_core.gyms.tau.database import Database
from userrl_core.gyms.tau.tools import Domain, ToolError

FREE_BAGS: Mapping[str, Mapping[str, int]] = {
    "regular": {"basic_economy": 0, "economy": 1, "business": 2},
    "silver": {"basic_economy": 1, "economy": 2, "business": 3},
    "gold": {"basic_economy": 2, "economy": 3, "business": 3},
}
"""Free bags per passenger by membership and cabin."""
MAX_PAYMENTS: Mapping[str, int] = {"certificate": 1, "credit_card": 1, "gift_card": 3}
NOW = datetime.datetime.fromisoformat(airline.NOW)
DAY = datetime.timedelta(days=1)

Record = Mapping[str, Any]


def broken_rules(domain: Domain, actions: list[Record]) -> tuple[str, ...]:
    """Return the rules that the gold writes break, as sentences, in the order of the writes."""
    database, broken = Database(domain.base), []
    cabins: dict[str, str] = {}
    for action in actions:
        name, arguments = str(action["name"]), action["kwargs"]
        if name not in airline.WRITES:
            continue
        broken += _broken(database, name, arguments, cabins)
        try:
            domain.execute(database, name, arguments)
        except ToolError:
            continue
        if name == "update_reservation_flights":
            cabins[arguments["reservation_id"]] = arguments["cabin"]
    return tuple(broken)


def _broken(database: Database, name: str, arguments: Record, cabins: Mapping[str, str]) -> list[str]:
    if name == "book_reservation":
        return _booking(database, arguments)
    if name == "send_certificate":
        return _certificate(database, arguments)
    key = str(arguments["reservation_id"])
    reservation = database.get("reservations", key)
    if reservation is None:
        return []
    cabin = cabins.get(key, reservation["cabin"])
    if name == "cancel_reservation":
        return _cancelling(database, key, reservation, cabin)
    if name == "update_reservation_flights":
        return _changing(database, key, reservation, arguments)
    if name == "update_reservation_baggages":
        return _bags(database, key, reservation, cabin, arguments)
    return []


def _cancelling(database: Database, key: str, reservation: Record, cabin: str) -> list[str]:
    broken = []
    if _flown(database, reservation):
        broken.append(f"{key} is cancelled although a segment was flown")
    created = datetime.datetime.fromisoformat(reservation["created_at"])
    by_airline = any(_status(database, leg) == "cancelled" for leg in reservation["flights"])
    if not (NOW - created <= DAY or by_airline or cabin == "business" or reservation["insurance"] == "yes"):
        broken.append(f"{key} is cancelled after 24 hours, in {cabin}, without insurance")
    return broken


def _changing(database: Database, key: str, reservation: Record, arguments: Record) -> list[str]:
    broken = []
    before, after = (
        [(leg["flight_number"], leg["date"]) for leg in legs] for legs in (reservation["flights"], arguments["flights"])
    )
    if reservation["cabin"] == "basic_economy" and before != after:
        broken.append(f"{key} is basic economy and its flights are changed")
    flown = [leg for leg in reservation["flights"] if _is_flown(database, leg)]
    if arguments["cabin"] != reservation["cabin"] and flown:
        broken.append(f"{key} changes its cabin although a segment was flown")
    if any((leg["flight_number"], leg["date"]) not in after for leg in flown):
        broken.append(f"{key} changes a segment that was flown")
    return broken


def _bags(database: Database, key: str, reservation: Record, cabin: str, arguments: Record) -> list[str]:
    broken = []
    if arguments["total_baggages"] < reservation["total_baggages"]:
        broken.append(f"{key} has bags removed")
    user = database.get("users", reservation["user_id"])
    expected = _paid_bags(user, cabin, len(reservation["passengers"]), arguments["total_baggages"])
    if arguments["nonfree_baggages"] != expected:
        broken.append(f"{key} pays for {arguments['nonfree_baggages']} bags, and the rule says {expected}")
    return broken


def _booking(database: Database, arguments: Record) -> list[str]:
    user = database.get("users", arguments["user_id"])
    passengers, broken = len(arguments["passengers"]), []
    if passengers > 5:
        broken.append("a booking has more than five passengers")
    expected = _paid_bags(user, arguments["cabin"], passengers, arguments["total_baggages"])
    if arguments["nonfree_baggages"] != expected:
        broken.append(f"a booking pays for {arguments['nonfree_baggages']} bags, and the rule says {expected}")
    methods = user["payment_methods"] if user else {}
    kinds = Counter(
        methods.get(payment["payment_id"], {}).get("source", "unknown") for payment in arguments["payment_methods"]
    )
    broken += [
        f"a booking is paid with {count} of {kind.replace('_', ' ')}, and {MAX_PAYMENTS.get(kind, 0)} may be used"
        for kind, count in sorted(kinds.items())
        if count > MAX_PAYMENTS.get(kind, 0)
    ]
    return broken


def _certificate(database: Database, arguments: Record) -> list[str]:
    user = database.get("users", arguments["user_id"])
    if user is None or user.get("membership") in ("silver", "gold"):
        return []
    reservations = [database.get("reservations", key) for key in user["reservations"]]
    entitled = any(r is not None and (r["insurance"] == "yes" or r["cabin"] == "business") for r in reservations)
    return [] if entitled else [f"{arguments['user_id']} gets a certificate without membership, insurance or business"]


def _paid_bags(user: Record | None, cabin: str, passengers: int, total: int) -> int:
    free = FREE_BAGS[str((user or {}).get("membership", "regular"))][cabin]
    return max(0, int(total) - free * passengers)


def _flown(database: Database, reservation: Record) -> bool:
    return any(_is_flown(database, leg) for leg in reservation["flights"])


def _is_flown(database: Database, leg: Record) -> bool:
    return _status(database, leg) in ("landed", "flying")


def _status(database: Database, leg: Record) -> str:
    flight = database.get("flights", leg["flight_number"]) or {"dates": {}}
    return str(flight["dates"].get(leg["date"], {}).get("status", "unknown"))
