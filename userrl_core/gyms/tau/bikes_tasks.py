"""Data and tasks of the bike-rental domain, drawn once with a fixed seed: customers, bikes, bookings and requests.

A task is an instruction for the user, the gold actions, and the outputs that the agent must tell the user. Doing
nothing solves no task: each needs a change of the database, or a figure that must be looked up.
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
class BikeRequest:
    """One customer's request. sentences: the instruction after its introduction, in the second person."""

    sentences: tuple[str, ...]
    actions: tuple[tuple[str, Mapping[str, Any]], ...]
    outputs: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def tables() -> Tables:
    """Return the domain's database. It never changes: each episode has its own layer of changes over it."""
    names = json.loads(Path(__file__).with_name("bikes.json").read_text(encoding="utf-8"))
    rng = Random(SEED)
    bikes = _bikes(names, rng)
    customers: dict[str, Record] = {}
    bookings: dict[str, Record] = {}
    for number in range(CUSTOMERS):
        customer = _customer(names, rng, number)
        customers[customer["customer_id"]] = customer
        for _ in range(rng.choice([1, 1, 2])):
            booking = _booking(rng, customer, bikes, f"B{100 + len(bookings)}")
            customer["bookings"].append(booking["booking_id"])
            bookings[booking["booking_id"]] = booking
    return {"customers": customers, "bikes": bikes, "bookings": bookings}


def payloads(n: int, seed: int) -> list[Record]:
    """Return the payloads of n different tasks."""
    rng, base = Random(seed), tables()
    by_instruction: dict[str, Record] = {}
    for _ in range(100 * n):
        if len(by_instruction) >= n:
            break
        family = rng.choice(FAMILIES)
        booking = rng.choice(list(base["bookings"].values()))
        request = family(rng, base, booking)
        if request is not None:
            payload = _payload(base["customers"][booking["customer_id"]], request)
            by_instruction[payload["instruction"]] = payload
    return list(by_instruction.values())


def _payload(customer: Record, request: BikeRequest) -> Record:
    name = f"{customer['first_name']} {customer['last_name']}"
    introduction = f"You are {name}, and your e-mail address is {customer['email']}."
    lookup = {"name": "find_customer_by_email", "kwargs": {"email": customer["email"]}}
    return {
        "domain": "bikes",
        "database": None,
        "opening": "Hello, I need some help with my bike rental.",
        "instruction": " ".join([introduction, *request.sentences]),
        "actions": [lookup, *({"name": name, "kwargs": dict(kwargs)} for name, kwargs in request.actions)],
        "outputs": list(request.outputs),
        "unprovable": "",
    }


def _cancel(rng: Random, base: Tables, booking: Record) -> BikeRequest | None:
    if not _can_be_cancelled(booking):
        return None
    key, reason = booking["booking_id"], rng.choice(REASONS)
    reason_text = {"plans changed": "your plans have changed", "weather": "of the weather", "illness": "you are ill"}[
        reason
    ]
    sentences = (
        f"You want to cancel your booking {key} because {reason_text}.",
        "You want to know how many coins you get back.",
    )
    lookup = ("get_booking", {"booking_id": key})
    return BikeRequest(
        sentences, (lookup, ("cancel_booking", {"booking_id": key, "reason": reason})), (str(booking["total"]),)
    )


def _move(rng: Random, base: Tables, booking: Record) -> BikeRequest | None:
    if booking["status"] != "booked":
        return None
    key, date = booking["booking_id"], _day(rng, 40, 80)
    sentences = (f"You want your booking {key} to begin on {date} instead.", "Nothing else about it changes.")
    return BikeRequest(
        sentences, (("get_booking", {"booking_id": key}), ("move_booking", {"booking_id": key, "date": date}))
    )


def _too_late(rng: Random, base: Tables, booking: Record) -> BikeRequest | None:
    if booking["status"] != "booked" or _can_be_cancelled(booking):
        return None
    key, date = booking["booking_id"], _day(rng, 20, 60)
    sentences = (
        f"You want to cancel your booking {key}.",
        f"If it begins too soon to be cancelled, you want it to begin on {date} instead.",
    )
    return BikeRequest(
        sentences, (("get_booking", {"booking_id": key}), ("move_booking", {"booking_id": key, "date": date}))
    )


def _longer(rng: Random, base: Tables, booking: Record) -> BikeRequest | None:
    if booking["status"] != "booked" or not _by_card(base, booking):
        return None
    key, days = booking["booking_id"], booking["days"] + rng.randint(1, 4)
    sentences = (
        f"You want to keep the bike of booking {key} for {days} days in all.",
        "You ask what the booking costs then.",
    )
    calls = (("get_booking", {"booking_id": key}), ("set_days", {"booking_id": key, "days": days}))
    return BikeRequest(sentences, calls, (str(_total(base, {**booking, "days": days})),))


def _insure(rng: Random, base: Tables, booking: Record) -> BikeRequest | None:
    if booking["status"] != "booked" or booking["insurance"] == "yes" or not _by_card(base, booking):
        return None
    key, date = booking["booking_id"], _day(rng, 40, 80)
    total = str(_total(base, {**booking, "insurance": "yes"}))
    lookup, insure = ("get_booking", {"booking_id": key}), ("add_insurance", {"booking_id": key})
    sentences = (f"You want to insure your booking {key}.", "You ask for its new total.")
    if rng.random() < 0.5:
        return BikeRequest(sentences, (lookup, insure), (total,))
    move = f"You also want it to begin on {date}."
    return BikeRequest(
        (*sentences, move), (lookup, insure, ("move_booking", {"booking_id": key, "date": date})), (total,)
    )


def _swap(rng: Random, base: Tables, booking: Record) -> BikeRequest | None:
    kind = rng.choice(["city", "touring", "mountain", "cargo", "electric"])
    bike = _cheapest(base, booking["station"], kind)
    if booking["status"] != "booked" or bike is None or base["bikes"][booking["bike_id"]]["kind"] == kind:
        return None
    if not _by_card(base, booking):
        return None
    key = booking["booking_id"]
    sentences = (
        f"You would rather have a {kind} bike for your booking {key}.",
        "You want the cheapest one that is free at the same station.",
        "You ask for the new total of the booking.",
    )
    calls = (
        ("get_booking", {"booking_id": key}),
        ("list_bikes", {"station": booking["station"], "kind": kind}),
        ("change_bike", {"booking_id": key, "bike_id": bike["bike_id"]}),
    )
    return BikeRequest(sentences, calls, (str(_total(base, {**booking, "bike_id": bike["bike_id"]})),))


def _relocate(rng: Random, base: Tables, booking: Record) -> BikeRequest | None:
    customer = booking["customer_id"]
    street, postcode = (
        f"{rng.randint(1, 90)} {rng.choice(['Elm Street', 'Ferry Road', 'Bell Yard'])}",
        str(rng.randint(20000, 29999)),
    )
    sentences = (f"You have moved to {street} in Altmoor, postcode {postcode}.", "You want your address to be changed.")
    return BikeRequest(
        sentences,
        (("change_address", {"customer_id": customer, "street": street, "city": "Altmoor", "postcode": postcode}),),
    )


def _book(rng: Random, base: Tables, booking: Record) -> BikeRequest | None:
    customer = base["customers"][booking["customer_id"]]
    kind, days, insurance = rng.choice(["city", "touring", "cargo"]), rng.randint(1, 6), rng.choice(["yes", "no"])
    bike, date = _cheapest(base, booking["station"], kind), _day(rng, 10, 60)
    card = next((key for key, method in customer["payments"].items() if method["kind"] == "card"), None)
    if bike is None or card is None:
        return None
    extra = "with insurance" if insurance == "yes" else "without insurance"
    sentences = (
        f"You want to rent the cheapest {kind} bike at {booking['station']} from {date} for {days} days, {extra}.",
        f"You pay with {card}.",
        "You ask for the total.",
    )
    call = {"customer_id": customer["customer_id"], "bike_id": bike["bike_id"], "date": date, "days": days}
    calls = (
        ("list_bikes", {"station": booking["station"], "kind": kind}),
        ("book_bike", {**call, "insurance": insurance, "payment_id": card}),
    )
    return BikeRequest(sentences, calls, (str(_total(base, {**call, "insurance": insurance})),))


def _refuse(rng: Random, base: Tables, booking: Record) -> BikeRequest | None:
    if booking["status"] != "out":
        return None
    key = booking["booking_id"]
    sentences = (
        f"You want to cancel your booking {key}, although you have the bike already.",
        "If that cannot be done, you only want to know what you pay in total.",
    )
    return BikeRequest(sentences, (("get_booking", {"booking_id": key}),), (str(booking["total"]),))


FAMILIES: tuple[Callable[[Random, Tables, Record], BikeRequest | None], ...] = (
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


def _can_be_cancelled(booking: Record) -> bool:
    return bool(booking["status"] == "booked" and booking["date"] > str(TODAY + datetime.timedelta(days=1)))


def _by_card(base: Tables, booking: Record) -> bool:
    method = base["customers"][booking["customer_id"]]["payments"][booking["payment_id"]]
    return bool(method["kind"] == "card")


def _cheapest(base: Tables, station: str, kind: str) -> Record | None:
    """Return the cheapest free bike of a kind; None if two have that price or none is free."""
    bikes = [b for b in base["bikes"].values() if (b["station"], b["kind"], b["status"]) == (station, kind, "free")]
    bikes.sort(key=lambda bike: bike["price"])
    return bikes[0] if bikes and (len(bikes) == 1 or bikes[0]["price"] < bikes[1]["price"]) else None


def _total(base: Tables, booking: Mapping[str, Any]) -> int:
    extra = INSURANCE_PER_DAY if booking["insurance"] == "yes" else 0
    return int(booking["days"] * (base["bikes"][booking["bike_id"]]["price"] + extra))


def _day(rng: Random, first: int, last: int) -> str:
    return str(TODAY + datetime.timedelta(days=rng.randint(first, last)))


def _bikes(names: Record, rng: Random) -> dict[str, Record]:
    bikes: dict[str, Record] = {}
    for station in names["stations"]:
        for kind, price in names["kinds"].items():
            for _ in range(2 * BIKES_PER_KIND):
                key = f"K{len(bikes) + 1}"
                bikes[key] = {
                    "bike_id": key,
                    "model": rng.choice(names["models"]),
                    "kind": kind,
                    "station": station,
                    "price": price + rng.randint(-4, 9),
                    "status": "free",
                }
    return bikes


def _customer(names: Record, rng: Random, number: int) -> Record:
    first = names["first_names"][number % len(names["first_names"])]
    last = names["last_names"][number % len(names["last_names"])]
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
            "street": f"{rng.randint(1, 120)} {rng.choice(names['streets'])}",
            "city": rng.choice(names["cities"]),
            "postcode": str(rng.randint(10000, 19999)),
        },
        "payments": payments,
        "bookings": [],
    }


def _booking(rng: Random, customer: Record, bikes: dict[str, Record], key: str) -> Record:
    bike = rng.choice([bike for bike in bikes.values() if bike["status"] == "free"])
    status = rng.choice(["booked", "booked", "booked", "booked", "out"])
    bike["status"] = "reserved" if status == "booked" else "out"
    starts_in_days = (
        rng.choice([0, 1, rng.randint(3, 30), rng.randint(3, 30)]) if status == "booked" else -rng.randint(1, 3)
    )
    booking: Record = {
        "booking_id": key,
        "customer_id": customer["customer_id"],
        "bike_id": bike["bike_id"],
        "station": bike["station"],
        "date": str(TODAY + datetime.timedelta(days=starts_in_days)),
        "days": rng.randint(1, 7),
        "insurance": rng.choice(["yes", "no", "no"]),
        "payment_id": rng.choice(list(customer["payments"])),
        "status": status,
    }
    booking["total"] = _total({"bikes": bikes}, booking)
    return booking
