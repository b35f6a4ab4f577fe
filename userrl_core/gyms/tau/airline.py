"""tau-bench's airline domain: 14 tools over users, flights and reservations (rules as observed; tau-bench, MIT).

The tools check little, as published. The policy says what may be cancelled or changed, and the agent must follow it. A cabin
change changes prices but not the reservation's ``cabin`` field, as in recorded conversations with the original.
"""

from __future__ import annotations

from typing import Any

from userrl_core.gyms.tau.database import Database, Record
from userrl_core.gyms.tau.tools import ToolError, need, with_common

NOW = "2024-05-15T15:00:00"
BAG_PRICE, INSURANCE_PRICE = 50, 30
NEW_RESERVATIONS = ("HATHAT", "HATHAU", "HATHAV")
NEW_CERTIFICATES = ("certificate_3221322", "certificate_3221323", "certificate_3221324")
AIRPORTS = {
    "SFO": "San Francisco", "JFK": "New York", "LAX": "Los Angeles", "ORD": "Chicago", "DFW": "Dallas",
    "DEN": "Denver", "SEA": "Seattle", "ATL": "Atlanta", "MIA": "Miami", "BOS": "Boston", "PHX": "Phoenix",
    "IAH": "Houston", "LAS": "Las Vegas", "MCO": "Orlando", "EWR": "Newark", "CLT": "Charlotte",
    "MSP": "Minneapolis", "DTW": "Detroit", "PHL": "Philadelphia", "LGA": "LaGuardia",
}  # fmt: skip


def get_user_details(db: Database, user_id: str) -> Record:
    """The user's record."""
    return need(db, "users", user_id, "user")


def get_reservation_details(db: Database, reservation_id: str) -> Record:
    """The reservation's record."""
    return need(db, "reservations", reservation_id, "reservation")


def list_all_airports(db: Database) -> dict[str, str]:
    """Airport codes to cities."""
    return AIRPORTS


def search_direct_flight(db: Database, origin: str, destination: str, date: str) -> list[Record]:
    """Flights available on that day."""
    return [
        _offer(flight, date)
        for _, flight in db.rows("flights")
        if flight["origin"] == origin and flight["destination"] == destination and _open(flight, date)
    ]


def search_onestop_flight(db: Database, origin: str, destination: str, date: str) -> list[list[Record]]:
    """Pairs of flights with one stop, the second not before the first has landed."""
    pairs = []
    for _, first in db.rows("flights"):
        if first["origin"] != origin:
            continue
        overnight = "+1" in first["scheduled_arrival_time_est"]
        for _, second in db.rows("flights"):
            if second["destination"] != destination or second["origin"] != first["destination"]:
                continue
            onward = f"2024-05-{int(date[-2:]) + 1:02d}" if overnight else date
            if first["scheduled_arrival_time_est"] > second["scheduled_departure_time_est"]:
                continue
            if _open(first, date) and _open(second, onward):
                pairs.append([{**_offer(first, date), "date": date}, {**_offer(second, onward), "date": onward}])
    return pairs


def book_reservation(
    db: Database,
    user_id: str,
    origin: str,
    destination: str,
    flight_type: str,
    cabin: str,
    flights: list[Record],
    passengers: list[Record],
    payment_methods: list[Record],
    total_baggages: int,
    nonfree_baggages: int,
    insurance: str,
) -> Record:
    """Book flights; the payments must equal fares, extra bags and insurance."""
    user = need(db, "users", user_id, "user")
    key = next((key for key in NEW_RESERVATIONS if db.get("reservations", key) is None), NEW_RESERVATIONS[-1])
    legs = [_leg(db, flight, cabin, len(passengers)) for flight in flights]
    total = sum(leg["price"] for leg in legs) * len(passengers) + BAG_PRICE * nonfree_baggages
    total += INSURANCE_PRICE * len(passengers) if insurance == "yes" else 0
    for payment in payment_methods:
        method = _method(user, payment["payment_id"])
        if method["source"] in ("gift_card", "certificate") and method["amount"] < payment["amount"]:
            raise ToolError(f"not enough balance in payment method {payment['payment_id']}")
    paid = sum(payment["amount"] for payment in payment_methods)
    if paid != total:
        raise ToolError(f"payment amount does not add up, total price is {total}, but paid {paid}")
    reservation = {
        "reservation_id": key, "user_id": user_id, "origin": origin, "destination": destination,
        "flight_type": flight_type, "cabin": cabin, "flights": legs, "passengers": passengers,
        "payment_history": payment_methods, "created_at": NOW, "total_baggages": total_baggages,
        "nonfree_baggages": nonfree_baggages, "insurance": insurance,
    }  # fmt: skip
    user = db.edit("users", user_id)
    for payment in payment_methods:
        method = _method(user, payment["payment_id"])  # as in tau-bench, fails for a certificate that is named twice
        if method["source"] == "gift_card":
            method["amount"] -= payment["amount"]
        elif method["source"] == "certificate":
            del user["payment_methods"][payment["payment_id"]]
    user["reservations"].append(key)
    db.add("reservations", key, reservation)
    return reservation


def cancel_reservation(db: Database, reservation_id: str) -> Record:
    """Cancel the whole trip; every payment is refunded."""
    need(db, "reservations", reservation_id, "reservation")
    reservation = db.edit("reservations", reservation_id)
    paid = reservation["payment_history"]
    paid += [{"payment_id": payment["payment_id"], "amount": -payment["amount"]} for payment in paid]
    reservation["status"] = "cancelled"
    return reservation


def send_certificate(db: Database, user_id: str, amount: float) -> str:
    """Give a user a travel certificate."""
    user = need(db, "users", user_id, "user")
    key = next((key for key in NEW_CERTIFICATES if key not in user["payment_methods"]), None)
    if key is None:
        raise ToolError("the user has too many certificates already")
    db.edit("users", user_id)["payment_methods"][key] = {"source": "certificate", "amount": amount, "id": key}
    return f"Certificate {key} added to user {user_id} with amount {amount}."


def update_reservation_baggages(
    db: Database, reservation_id: str, total_baggages: int, nonfree_baggages: int, payment_id: str
) -> Record:
    """Change the number of bags; additional paid bags are charged."""
    reservation = need(db, "reservations", reservation_id, "reservation")
    price = BAG_PRICE * max(0, nonfree_baggages - reservation["nonfree_baggages"])
    _charge(db, reservation, payment_id, price)
    reservation = db.edit("reservations", reservation_id)
    reservation["total_baggages"], reservation["nonfree_baggages"] = total_baggages, nonfree_baggages
    return reservation


def update_reservation_flights(
    db: Database, reservation_id: str, cabin: str, flights: list[Record], payment_id: str
) -> Record:
    """Replace the flights; segments kept in the same cabin keep their price, the difference is charged or refunded."""
    reservation = need(db, "reservations", reservation_id, "reservation")
    passengers = len(reservation["passengers"])
    legs = []
    for flight in flights:
        kept_leg = _kept(reservation, flight) if cabin == reservation["cabin"] else None
        legs.append(_as_leg(flight, kept_leg) if kept_leg else _leg(db, flight, cabin, passengers))
    before = sum(leg["price"] for leg in reservation["flights"])
    _charge(db, reservation, payment_id, (sum(leg["price"] for leg in legs) - before) * passengers)
    reservation = db.edit("reservations", reservation_id)
    reservation["flights"] = legs
    return reservation


def update_reservation_passengers(db: Database, reservation_id: str, passengers: list[Record]) -> Record:
    """Replace the passengers by the same number of others."""
    reservation = need(db, "reservations", reservation_id, "reservation")
    if len(passengers) != len(reservation["passengers"]):
        raise ToolError("number of passengers does not match")
    reservation = db.edit("reservations", reservation_id)
    reservation["passengers"] = passengers
    return reservation


TOOLS = with_common(
    get_user_details,
    get_reservation_details,
    list_all_airports,
    search_direct_flight,
    search_onestop_flight,
    book_reservation,
    cancel_reservation,
    send_certificate,
    update_reservation_baggages,
    update_reservation_flights,
    update_reservation_passengers,
)
WRITES = frozenset(name for name in TOOLS if name.startswith(("book", "cancel", "send", "update")))


def _open(flight: Record, date: str) -> bool:
    return bool(flight["dates"].get(date, {}).get("status") == "available")


def _offer(flight: Record, date: str) -> Record:
    return {**{key: value for key, value in flight.items() if key != "dates"}, **flight["dates"][date]}


def _leg(db: Database, requested: Record, cabin: str, passengers: int) -> Record:
    flight = need(db, "flights", requested["flight_number"], f"flight {requested['flight_number']}")
    if not _open(flight, requested["date"]):
        raise ToolError(f"flight {requested['flight_number']} not available on date {requested['date']}")
    day = flight["dates"][requested["date"]]
    if day["available_seats"].get(cabin, 0) < passengers:
        raise ToolError(f"not enough seats on flight {requested['flight_number']}")
    return _as_leg(requested, {**flight, "price": day["prices"][cabin]})


def _as_leg(requested: Record, flight: Record) -> Record:
    return {**requested, "price": flight["price"], "origin": flight["origin"], "destination": flight["destination"]}


def _kept(reservation: Record, requested: Record) -> Record | None:
    legs = reservation["flights"]
    return next((leg for leg in legs if all(leg[k] == requested[k] for k in ("flight_number", "date"))), None)


def _method(user: Record, payment_id: str) -> Record:
    method: Record | None = user["payment_methods"].get(payment_id)
    if method is None:
        raise ToolError(f"payment method {payment_id} not found")
    return method


def _charge(db: Database, reservation: Record, payment_id: str, price: Any) -> None:
    """Charge a change of a reservation, or refund a negative price. Raises ToolError before any change."""
    user_id, key = reservation["user_id"], reservation["reservation_id"]
    method = _method(need(db, "users", user_id, "user"), payment_id)
    if method["source"] == "certificate":
        raise ToolError("certificate cannot be used to update reservation")
    if method["source"] == "gift_card":
        if method["amount"] < price:
            raise ToolError("gift card balance is not enough")
        db.edit("users", user_id)["payment_methods"][payment_id]["amount"] -= price
    if price != 0:
        db.edit("reservations", key)["payment_history"].append({"payment_id": payment_id, "amount": price})
