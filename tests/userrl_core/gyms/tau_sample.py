"""A small data set in tau-bench's layout, with enough records for every tool of both domains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from userrl_core.gyms.tau import airline as tau_airline
from userrl_core.gyms.tau import retail as tau_retail

ADDRESS = {"address1": "1 Way", "address2": "", "city": "X", "country": "USA", "state": "CA", "zip": "10000"}


def variant(key: str, price: float, available: bool = True) -> dict[str, Any]:
    return {"item_id": key, "options": {"size": key}, "available": available, "price": price}


def order(key: str, status: str, paid_by: str, *items: str) -> dict[str, Any]:
    rows = [{"name": "Cup", "product_id": "p", "item_id": i, "price": 10.0, "options": {"size": i}} for i in items]
    payment = {"transaction_type": "payment", "amount": 10.0 * len(items), "payment_method_id": paid_by}
    common = {"order_id": key, "user_id": "ann", "address": ADDRESS, "items": rows, "fulfillments": []}
    return {**common, "status": status, "payment_history": [payment]}


RETAIL: dict[str, Any] = {
    "users": {
        "ann": {
            "name": {"first_name": "Ann", "last_name": "Lee"},
            "address": ADDRESS,
            "email": "ann@example.org",
            "payment_methods": {
                "credit_card_1": {"source": "credit_card", "id": "credit_card_1"},
                "gift_card_1": {"source": "gift_card", "balance": 15, "id": "gift_card_1"},
                "paypal_1": {"source": "paypal", "id": "paypal_1"},
            },
            "orders": ["#P", "#G", "#D"],
        }
    },
    "orders": {
        "#P": order("#P", "pending", "credit_card_1", "a", "b"),
        "#G": order("#G", "pending", "gift_card_1", "a"),
        "#D": order("#D", "delivered", "credit_card_1", "a", "a", "b"),
    },
    "products": {
        "p": {
            "name": "Cup",
            "product_id": "p",
            "variants": {
                v["item_id"]: v
                for v in (variant("a", 10.0), variant("b", 12.5), variant("c", 99.0), variant("d", 1, False))
            },
        }
    },
}


def flight(key: str, origin: str, destination: str, leaves: str, lands: str) -> dict[str, Any]:
    day = {
        "status": "available",
        "available_seats": {"basic_economy": 0, "economy": 2, "business": 9},
        "prices": {"basic_economy": 50, "economy": 100, "business": 300},
    }
    times = {"scheduled_departure_time_est": leaves, "scheduled_arrival_time_est": lands}
    dates = {"2024-05-20": day, "2024-05-21": {**day, "prices": {"basic_economy": 1, "economy": 2, "business": 3}}}
    dates["2024-05-22"] = {"status": "delayed"}
    return {"flight_number": key, "origin": origin, "destination": destination, **times, "dates": dates}


AIRLINE: dict[str, Any] = {
    "users": {
        "bo": {
            "name": {"first_name": "Bo", "last_name": "Ray"},
            "payment_methods": {
                "credit_card_2": {"source": "credit_card", "id": "credit_card_2"},
                "gift_card_2": {"source": "gift_card", "amount": 120, "id": "gift_card_2"},
                "certificate_2": {"source": "certificate", "amount": 80, "id": "certificate_2"},
            },
            "membership": "gold",
            "reservations": ["R1"],
        }
    },
    "flights": {
        "F1": flight("F1", "SFO", "DEN", "08:00:00", "10:00:00"),
        "F2": flight("F2", "DEN", "JFK", "11:00:00", "15:00:00"),
        "F3": flight("F3", "SFO", "DEN", "22:00:00", "01:00:00+1"),
        "F4": flight("F4", "SFO", "JFK", "09:00:00", "14:00:00"),
    },
    "reservations": {
        "R1": {
            "reservation_id": "R1",
            "user_id": "bo",
            "origin": "SFO",
            "destination": "DEN",
            "flight_type": "one_way",
            "cabin": "economy",
            "flights": [
                {"origin": "SFO", "destination": "DEN", "flight_number": "F1", "date": "2024-05-20", "price": 70}
            ],
            "passengers": [{"first_name": "Bo", "last_name": "Ray", "dob": "1990-01-01"}],
            "payment_history": [{"payment_id": "credit_card_2", "amount": 70}],
            "created_at": "2024-05-01T00:00:00",
            "total_baggages": 1,
            "nonfree_baggages": 0,
            "insurance": "no",
        }
    },
}


def write(root: Path) -> Path:
    """The sample as files under root; one task per file, and one more in retail's test whose gold fails."""
    good = {"user_id": "ann", "instruction": "You are Ann Lee. You want to cancel order #P.", "outputs": []}
    cancel = {"name": "cancel_pending_order", "kwargs": {"order_id": "#P", "reason": "no longer needed"}}
    late = {"name": "cancel_pending_order", "kwargs": {"order_id": "#D", "reason": "no longer needed"}}
    over = {"name": "transfer_to_human_agents", "kwargs": {"summary": "s"}}
    bags = {"reservation_id": "R1", "total_baggages": 2, "nonfree_baggages": 1, "payment_id": "credit_card_2"}
    bag = {"name": "update_reservation_baggages", "kwargs": bags}
    tasks = {
        "retail": {
            "train": [{**good, "actions": [cancel]}],
            "dev": [{**good, "actions": [over], "outputs": ["20.0"]}],
            "test": [{**good, "actions": [cancel], "outputs": ["1,000"]}, {**good, "actions": [late]}],
        },
        "airline": {"test": [{**good, "actions": [bag], "outputs": ["50"]}]},
    }
    for name, tables, module in (("retail", RETAIL, tau_retail), ("airline", AIRLINE, tau_airline)):
        folder = root / name
        folder.mkdir(parents=True)
        for table, rows in tables.items():
            (folder / f"{table}.json").write_text(json.dumps(rows))
        free = {"type": "object", "additionalProperties": True}
        schemas = [{"type": "function", "function": {"name": tool, "parameters": free}} for tool in module.TOOLS]
        (folder / "tools.json").write_text(json.dumps(schemas))
        for part, rows in tasks[name].items():
            (folder / f"tasks_{part}.json").write_text(json.dumps(rows))
    return root
