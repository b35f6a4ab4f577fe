"""Our own domain in the style of tau-bench: a bike-rental shop with customers, bikes and bookings.

The tools check stock, balances and states, as tau-bench's tools do; the agent must follow the rest of the policy. The tools'
docstrings are their descriptions in the agent's prompt and part of the experiment.
"""

from __future__ import annotations

from typing import Any

from userrl_core.gyms.tau.database import Database, Record
from userrl_core.gyms.tau.tools import TRANSFER, ToolError, need, schemas, with_common

INSURANCE_PER_DAY = 4
REASONS = ("plans changed", "weather", "illness")


def find_customer_by_email(db: Database, email: str) -> str:
    """The customer with this address, whatever its case."""
    for key, customer in db.rows("customers"):
        if customer["email"].lower() == email.lower():
            return key
    raise ToolError("customer not found")


def find_customer_by_name(db: Database, first_name: str, last_name: str, postcode: str) -> str:
    """The customer of this name and postcode, whatever the case."""
    for key, customer in db.rows("customers"):
        identity = (customer["first_name"].lower(), customer["last_name"].lower(), customer["address"]["postcode"])
        if identity == (first_name.lower(), last_name.lower(), postcode):
            return key
    raise ToolError("customer not found")


def get_customer(db: Database, customer_id: str) -> Record:
    """The customer's record."""
    return need(db, "customers", customer_id, "customer")


def get_booking(db: Database, booking_id: str) -> Record:
    """The booking's record."""
    return need(db, "bookings", booking_id, "booking")


def list_bikes(db: Database, station: str, kind: str) -> list[Record]:
    """Free bikes of a kind at a station."""
    return [bike for _, bike in db.rows("bikes") if _free(bike) and (bike["station"], bike["kind"]) == (station, kind)]


def book_bike(
    db: Database, customer_id: str, bike_id: str, date: str, days: int, insurance: str, payment_id: str
) -> Record:
    """A new booking of a free bike."""
    customer = need(db, "customers", customer_id, "customer")
    bike = need(db, "bikes", bike_id, "bike")
    if not _free(bike):
        raise ToolError("the bike is not free")
    if days < 1:
        raise ToolError("a booking lasts one day or more")
    key = f"N{1 + sum(name.startswith('N') for name, _ in db.rows('bookings'))}"
    booking = {
        "booking_id": key, "customer_id": customer_id, "bike_id": bike_id, "station": bike["station"], "date": date,
        "days": days, "insurance": insurance, "payment_id": payment_id, "status": "booked",
        "total": _total(bike, days, insurance),
    }  # fmt: skip
    _charge(db, customer, payment_id, booking["total"])
    db.edit("bikes", bike_id)["status"] = "reserved"
    db.edit("customers", customer_id)["bookings"].append(key)
    db.add("bookings", key, booking)
    return booking


def cancel_booking(db: Database, booking_id: str, reason: str) -> Record:
    """Cancel and refund; the bike is free again."""
    booking = _booked(db, booking_id)
    if reason not in REASONS:
        raise ToolError(f"the reason must be one of {', '.join(REASONS)}")
    _charge(db, need(db, "customers", booking["customer_id"], "customer"), booking["payment_id"], -booking["total"])
    db.edit("bikes", booking["bike_id"])["status"] = "free"
    booking = db.edit("bookings", booking_id)
    booking["status"], booking["reason"] = "cancelled", reason
    return booking


def move_booking(db: Database, booking_id: str, date: str) -> Record:
    """Another first day."""
    _booked(db, booking_id)
    booking = db.edit("bookings", booking_id)
    booking["date"] = date
    return booking


def set_days(db: Database, booking_id: str, days: int) -> Record:
    """Another length; the difference is charged or refunded."""
    booking = _booked(db, booking_id)
    if days < 1:
        raise ToolError("a booking lasts one day or more")
    return _reprice(db, booking, days=days)


def add_insurance(db: Database, booking_id: str) -> Record:
    """Insure a booking that is not insured."""
    booking = _booked(db, booking_id)
    if booking["insurance"] == "yes":
        raise ToolError("the booking is insured already")
    return _reprice(db, booking, insurance="yes")


def change_bike(db: Database, booking_id: str, bike_id: str) -> Record:
    """Another free bike at the same station; the difference is charged or refunded."""
    booking, bike = _booked(db, booking_id), need(db, "bikes", bike_id, "bike")
    if not _free(bike) or bike["station"] != booking["station"]:
        raise ToolError("the bike is not free at the booking's station")
    changed = _reprice(db, booking, bike_id=bike_id)
    db.edit("bikes", booking["bike_id"])["status"] = "free"
    db.edit("bikes", bike_id)["status"] = "reserved"
    return changed


def change_address(db: Database, customer_id: str, street: str, city: str, postcode: str) -> Record:
    """Another address of a customer."""
    need(db, "customers", customer_id, "customer")
    customer = db.edit("customers", customer_id)
    customer["address"] = {"street": street, "city": city, "postcode": postcode}
    return customer


def _free(bike: Record) -> bool:
    return bool(bike["status"] == "free")


def _booked(db: Database, booking_id: str) -> Record:
    booking = need(db, "bookings", booking_id, "booking")
    if booking["status"] != "booked":
        raise ToolError(f"the booking is {booking['status']} and can no longer be changed")
    return booking


def _total(bike: Record, days: int, insurance: str) -> int:
    return int(days * (bike["price"] + (INSURANCE_PER_DAY if insurance == "yes" else 0)))


def _reprice(db: Database, booking: Record, **changes: Any) -> Record:
    """Change a booking and settle the difference. Raises ToolError before any change."""
    new = {**booking, **changes}
    new["total"] = _total(need(db, "bikes", new["bike_id"], "bike"), new["days"], new["insurance"])
    customer = need(db, "customers", booking["customer_id"], "customer")
    _charge(db, customer, booking["payment_id"], new["total"] - booking["total"])
    db.add("bookings", booking["booking_id"], new)
    return new


def _charge(db: Database, customer: Record, payment_id: str, amount: int) -> None:
    method = customer["payments"].get(payment_id)
    if method is None:
        raise ToolError("payment method not found")
    if method["kind"] == "voucher":
        if method["balance"] < amount:
            raise ToolError("the voucher's balance is not enough")
        db.edit("customers", customer["customer_id"])["payments"][payment_id]["balance"] -= amount


_DAYS = {"type": "integer", "description": "number of days"}
_INSURANCE = {"type": "string", "enum": ["yes", "no"], "description": "whether the booking is insured"}
_REASON = {"type": "string", "enum": list(REASONS), "description": "why"}

TOOLS = with_common(
    find_customer_by_email,
    find_customer_by_name,
    get_customer,
    get_booking,
    list_bikes,
    book_bike,
    cancel_booking,
    move_booking,
    set_days,
    add_insurance,
    change_bike,
    change_address,
)
SCHEMAS = schemas(
    TOOLS,
    {
        "find_customer_by_email": {"email": "the customer's e-mail address"},
        "find_customer_by_name": {"first_name": "first name", "last_name": "last name", "postcode": "postcode"},
        "get_customer": {"customer_id": "id such as C7"},
        "get_booking": {"booking_id": "id such as B107"},
        "list_bikes": {"station": "name of the station", "kind": "kind of bike, such as city or cargo"},
        "book_bike": {
            "customer_id": "id such as C7",
            "bike_id": "id such as K12",
            "date": "first day, YYYY-MM-DD",
            "days": _DAYS,
            "insurance": _INSURANCE,
            "payment_id": "a payment method of the customer",
        },
        "cancel_booking": {"booking_id": "id such as B107", "reason": _REASON},
        "move_booking": {"booking_id": "id such as B107", "date": "new first day, YYYY-MM-DD"},
        "set_days": {"booking_id": "id such as B107", "days": _DAYS},
        "add_insurance": {"booking_id": "id such as B107"},
        "change_bike": {"booking_id": "id such as B107", "bike_id": "id such as K12"},
        "change_address": {
            "customer_id": "id such as C7",
            "street": "street and number",
            "city": "city",
            "postcode": "postcode",
        },
        "calculate": {"expression": "such as 3 * (14 + 4)"},
        "think": {"thought": "what to keep in mind"},
        TRANSFER: {"summary": "what the customer needs"},
    },
)

WRITES = frozenset(
    {"book_bike", "cancel_booking", "move_booking", "set_days", "add_insurance", "change_bike", "change_address"}
)
