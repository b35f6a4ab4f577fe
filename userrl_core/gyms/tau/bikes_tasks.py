"""The bike-rental desk's data and tasks, drawn once from a fixed seed: customers, bikes, bookings, and what callers want.

A task is an instruction for the user, the gold actions, and what the agent must have told the user. No task of the set can
be solved by doing nothing: each needs a change of the database, or a figure that has to be looked up.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from userrl_core.gyms.tau.bikes import INSURANCE_PER_DAY, REASONS

SEED = 41
TODAY = datetime.date(2026, 6, 1)
CUSTOMERS, BIKES_PER_KIND = 75, 6

Record = dict[str, Any]
Tables = dict[str, dict[str, Record]]


@dataclass(frozen=True, slots=True)
class Wish:
    """What one caller wants. sentences: after the introduction, in the second person."""

    sentences: tuple[str, ...]
    actions: tuple[tuple[str, Mapping[str, Any]], ...]
    outputs: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def tables() -> Tables:
    """The desk's database; never changed, attempts lay their own layer over it."""
    words = json.loads(Path(__file__).with_name("bikes.json").read_text(encoding="utf-8"))
    rng = Random(SEED)
    bikes = _bikes(words, rng)
    customers: dict[str, Record] = {}
    bookings: dict[str, Record] = {}
    for number in range(CUSTOMERS):
        customer = _customer(words, rng, number)
        customers[customer["customer_id"]] = customer
        for _ in range(rng.choice([1, 1, 2])):
            booking = _booking(rng, customer, bikes, f"B{100 + len(bookings)}")
            customer["bookings"].append(booking["booking_id"])
            bookings[booking["booking_id"]] = booking
    return {"customers": customers, "bikes": bikes, "bookings": bookings}


def payloads(n: int, seed: int) -> list[Record]:
    """n different tasks' payloads, the same for the same seed."""
    rng, base = Random(seed), tables()
    found: dict[str, Record] = {}
    for _ in range(100 * n):
        if len(found) >= n:
            break
        family = rng.choice(FAMILIES)
        booking = rng.choice(list(base["bookings"].values()))
        wish = family(rng, base, booking)
        if wish is not None:
            payload = _payload(base["customers"][booking["customer_id"]], wish)
            found[payload["instruction"]] = payload
    return list(found.values())


def _payload(customer: Record, wish: Wish) -> Record:
    name = f"{customer['first_name']} {customer['last_name']}"
    who = f"You are {name}, and your e-mail address is {customer['email']}."
    first = {"name": "find_customer_by_email", "kwargs": {"email": customer["email"]}}
    return {
        "domain": "bikes",
        "database": None,
        "opening": "Hello, I need some help with my bike rental.",
        "instruction": " ".join([who, *wish.sentences]),
        "actions": [first, *({"name": name, "kwargs": dict(kwargs)} for name, kwargs in wish.actions)],
        "outputs": list(wish.outputs),
        "unprovable": "",
    }


def _cancel(rng: Random, base: Tables, booking: Record) -> Wish | None:
    if not _later(booking):
        return None
    key, reason = booking["booking_id"], rng.choice(REASONS)
    why = {"plans changed": "your plans have changed", "weather": "of the weather", "illness": "you are ill"}[reason]
    said = (f"You want to cancel your booking {key} because {why}.", "You want to know how many coins you get back.")
    look = ("get_booking", {"booking_id": key})
    return Wish(said, (look, ("cancel_booking", {"booking_id": key, "reason": reason})), (str(booking["total"]),))


def _move(rng: Random, base: Tables, booking: Record) -> Wish | None:
    if booking["status"] != "booked":
        return None
    key, date = booking["booking_id"], _day(rng, 40, 80)
    said = (f"You want your booking {key} to begin on {date} instead.", "Nothing else about it changes.")
    return Wish(said, (("get_booking", {"booking_id": key}), ("move_booking", {"booking_id": key, "date": date})))


def _too_late(rng: Random, base: Tables, booking: Record) -> Wish | None:
    if booking["status"] != "booked" or _later(booking):
        return None
    key, date = booking["booking_id"], _day(rng, 20, 60)
    said = (
        f"You want to cancel your booking {key}.",
        f"If it begins too soon to be cancelled, you want it to begin on {date} instead.",
    )
    return Wish(said, (("get_booking", {"booking_id": key}), ("move_booking", {"booking_id": key, "date": date})))


def _longer(rng: Random, base: Tables, booking: Record) -> Wish | None:
    if booking["status"] != "booked" or not _by_card(base, booking):
        return None
    key, days = booking["booking_id"], booking["days"] + rng.randint(1, 4)
    said = (
        f"You want to keep the bike of booking {key} for {days} days in all.",
        "You ask what the booking costs then.",
    )
    calls = (("get_booking", {"booking_id": key}), ("set_days", {"booking_id": key, "days": days}))
    return Wish(said, calls, (str(_total(base, {**booking, "days": days})),))


def _insure(rng: Random, base: Tables, booking: Record) -> Wish | None:
    if booking["status"] != "booked" or booking["insurance"] == "yes" or not _by_card(base, booking):
        return None
    key, date = booking["booking_id"], _day(rng, 40, 80)
    total = str(_total(base, {**booking, "insurance": "yes"}))
    look, insure = ("get_booking", {"booking_id": key}), ("add_insurance", {"booking_id": key})
    said = (f"You want to insure your booking {key}.", "You ask for its new total.")
    if rng.random() < 0.5:
        return Wish(said, (look, insure), (total,))
    more = f"You also want it to begin on {date}."
    return Wish((*said, more), (look, insure, ("move_booking", {"booking_id": key, "date": date})), (total,))


def _swap(rng: Random, base: Tables, booking: Record) -> Wish | None:
    kind = rng.choice(["city", "touring", "mountain", "cargo", "electric"])
    bike = _cheapest(base, booking["station"], kind)
    if booking["status"] != "booked" or bike is None or base["bikes"][booking["bike_id"]]["kind"] == kind:
        return None
    if not _by_card(base, booking):
        return None
    key = booking["booking_id"]
    said = (
        f"You would rather have a {kind} bike for your booking {key}.",
        "You want the cheapest one that is free at the same station.",
        "You ask for the new total of the booking.",
    )
    calls = (
        ("get_booking", {"booking_id": key}),
        ("list_bikes", {"station": booking["station"], "kind": kind}),
        ("change_bike", {"booking_id": key, "bike_id": bike["bike_id"]}),
    )
    return Wish(said, calls, (str(_total(base, {**booking, "bike_id": bike["bike_id"]})),))


def _relocate(rng: Random, base: Tables, booking: Record) -> Wish | None:
    customer = booking["customer_id"]
    street, postcode = (
        f"{rng.randint(1, 90)} {rng.choice(['Elm Street', 'Ferry Road', 'Bell Yard'])}",
        str(rng.randint(20000, 29999)),
    )
    said = (f"You have moved to {street} in Altmoor, postcode {postcode}.", "You want your address to be changed.")
    return Wish(
        said,
        (("change_address", {"customer_id": customer, "street": street, "city": "Altmoor", "postcode": postcode}),),
    )


def _book(rng: Random, base: Tables, booking: Record) -> Wish | None:
    customer = base["customers"][booking["customer_id"]]
    kind, days, insurance = rng.choice(["city", "touring", "cargo"]), rng.randint(1, 6), rng.choice(["yes", "no"])
    bike, date = _cheapest(base, booking["station"], kind), _day(rng, 10, 60)
    card = next((key for key, method in customer["payments"].items() if method["kind"] == "card"), None)
    if bike is None or card is None:
        return None
    extra = "with insurance" if insurance == "yes" else "without insurance"
    said = (
        f"You want to rent the cheapest {kind} bike at {booking['station']} from {date} for {days} days, {extra}.",
        f"You pay with {card}.",
        "You ask for the total.",
    )
    call = {"customer_id": customer["customer_id"], "bike_id": bike["bike_id"], "date": date, "days": days}
    calls = (
        ("list_bikes", {"station": booking["station"], "kind": kind}),
        ("book_bike", {**call, "insurance": insurance, "payment_id": card}),
    )
    return Wish(said, calls, (str(_total(base, {**call, "insurance": insurance})),))


def _refuse(rng: Random, base: Tables, booking: Record) -> Wish | None:
    if booking["status"] != "out":
        return None
    key = booking["booking_id"]
    said = (
        f"You want to cancel your booking {key}, although you have the bike already.",
        "If that cannot be done, you only want to know what you pay in total.",
    )
    return Wish(said, (("get_booking", {"booking_id": key}),), (str(booking["total"]),))


FAMILIES: tuple[Callable[[Random, Tables, Record], Wish | None], ...] = (
    _cancel,
    _move,
    _too_late,
    _longer,
    _insure,
    _swap,
    _relocate,
    _book,
    _refuse,
)


def _later(booking: Record) -> bool:
    """Still booked, and far enough away to be cancelled."""
    return bool(booking["status"] == "booked" and booking["date"] > str(TODAY + datetime.timedelta(days=1)))


def _by_card(base: Tables, booking: Record) -> bool:
    method = base["customers"][booking["customer_id"]]["payments"][booking["payment_id"]]
    return bool(method["kind"] == "card")


def _cheapest(base: Tables, station: str, kind: str) -> Record | None:
    """The cheapest free bike of a kind, None when two cost the same or there is none."""
    found = [b for b in base["bikes"].values() if (b["station"], b["kind"], b["status"]) == (station, kind, "free")]
    found.sort(key=lambda bike: bike["price"])
    return found[0] if found and (len(found) == 1 or found[0]["price"] < found[1]["price"]) else None


def _total(base: Tables, booking: Mapping[str, Any]) -> int:
    extra = INSURANCE_PER_DAY if booking["insurance"] == "yes" else 0
    return int(booking["days"] * (base["bikes"][booking["bike_id"]]["price"] + extra))


def _day(rng: Random, first: int, last: int) -> str:
    return str(TODAY + datetime.timedelta(days=rng.randint(first, last)))


def _bikes(words: Record, rng: Random) -> dict[str, Record]:
    found: dict[str, Record] = {}
    for station in words["stations"]:
        for kind, price in words["kinds"].items():
            for _ in range(2 * BIKES_PER_KIND):
                key = f"K{len(found) + 1}"
                found[key] = {
                    "bike_id": key,
                    "model": rng.choice(words["models"]),
                    "kind": kind,
                    "station": station,
                    "price": price + rng.randint(-4, 9),
                    "status": "free",
                }
    return found


def _customer(words: Record, rng: Random, number: int) -> Record:
    first = words["first_names"][number % len(words["first_names"])]
    last = words["last_names"][number % len(words["last_names"])]
    card = f"card_{rng.randint(1000, 9999)}"
    payments: Record = {card: {"kind": "card", "payment_id": card}}
    if rng.random() < 0.5:
        voucher = f"voucher_{100 + number}"
        payments[voucher] = {"kind": "voucher", "payment_id": voucher, "balance": rng.randint(100, 400)}
    return {
        "customer_id": f"C{number + 1}",
        "first_name": first,
        "last_name": last,
        "email": f"{first}.{last}{rng.randint(10, 99)}@example.org".lower(),
        "address": {
            "street": f"{rng.randint(1, 120)} {rng.choice(words['streets'])}",
            "city": rng.choice(words["cities"]),
            "postcode": str(rng.randint(10000, 19999)),
        },
        "payments": payments,
        "bookings": [],
    }


def _booking(rng: Random, customer: Record, bikes: dict[str, Record], key: str) -> Record:
    bike = rng.choice([bike for bike in bikes.values() if bike["status"] == "free"])
    status = rng.choice(["booked", "booked", "booked", "booked", "out"])
    bike["status"] = "reserved" if status == "booked" else "out"
    begins = rng.choice([0, 1, rng.randint(3, 30), rng.randint(3, 30)]) if status == "booked" else -rng.randint(1, 3)
    booking: Record = {
        "booking_id": key,
        "customer_id": customer["customer_id"],
        "bike_id": bike["bike_id"],
        "station": bike["station"],
        "date": str(TODAY + datetime.timedelta(days=begins)),
        "days": rng.randint(1, 7),
        "insurance": rng.choice(["yes", "no", "no"]),
        "payment_id": rng.choice(list(customer["payments"])),
        "status": status,
    }
    booking["total"] = _total({"bikes": bikes}, booking)
    return booking
