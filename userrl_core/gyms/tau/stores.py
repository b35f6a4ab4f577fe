"""The database of an episode: a layer over shared records, or its own copy in SQLite.

Both answer every call alike. ``memory`` is for training: starting an episode is free. ``sqlite`` is the store of each
session of `userrl serve-tools` (TARL 2.1); data/tau/README.md has its costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from userrl_core.gyms.tau.database import Database, Tables
from userrl_core.gyms.tau.relational import Inner, NestedRecord, RecordTable, Schema, SqliteDatabase, Template
from userrl_core.gyms.tau.tasks import load_domain
from userrl_core.gyms.tau.tools import Domain

Store = Literal["memory", "sqlite"]


def open_database(domain: Domain, folder: str | None, base: Tables, store: Store) -> Database:
    """Open a database for one episode. folder: of the domain's data. base: the domain's records, or the task's own."""
    if store == "memory":
        return Database(base)
    template = _template(domain.name, folder) if base is domain.base else Template(SCHEMAS[domain.name], base)
    return SqliteDatabase(template)


@lru_cache(maxsize=8)
def _template(name: str, folder: str | None) -> Template:
    return Template(SCHEMAS[name], load_domain(name, folder).base)


_NAME = NestedRecord("name", ("first_name", "last_name"))
_ADDRESS = NestedRecord("address", ("address1", "address2", "city", "country", "state", "zip"))
_SEATS = ("basic_economy", "economy", "business")
_PERSON = ("first_name", "last_name", "dob")


def _methods(amount: str) -> Inner:
    fields = ("source", "brand", "last_four", amount, "id")
    return Inner("payment_methods", RecordTable("payment_methods", "method_id", fields, "map"))


def _list(name: str, table: str, *fields: str | Inner) -> Inner:
    return Inner(name, RecordTable(table, "position", fields, "list"))


def _values(name: str, table: str, key: str = "position") -> Inner:
    return Inner(name, RecordTable(table, key, (), "values"))


def _options(table: str) -> Inner:
    return Inner("options", RecordTable(table, "name", (), "pairs"))


RETAIL: Schema = {
    "users": RecordTable(
        "users", "user_id", (_NAME, _ADDRESS, "email", _methods("balance"), _values("orders", "user_orders"))
    ),
    "orders": RecordTable(
        "orders",
        "key",
        (
            "order_id",
            "user_id",
            _ADDRESS,
            _list("items", "order_items", "name", "product_id", "item_id", "price", _options("order_item_options")),
            _list(
                "fulfillments",
                "fulfillments",
                _values("tracking_id", "fulfillment_tracking", "number"),
                _values("item_ids", "fulfillment_items", "number"),
            ),
            "status",
            _list("payment_history", "order_payments", "transaction_type", "amount", "payment_method_id"),
            "cancel_reason",
            "exchange_items",
            "exchange_new_items",
            "exchange_payment_method_id",
            "exchange_price_difference",
            "return_items",
            "return_payment_method_id",
        ),
    ),
    "products": RecordTable(
        "products",
        "key",
        (
            "name",
            "product_id",
            Inner(
                "variants",
                RecordTable(
                    "variants", "variant", ("item_id", _options("variant_options"), "available?", "price"), "map"
                ),
            ),
        ),
    ),
}

AIRLINE: Schema = {
    "users": RecordTable(
        "users",
        "user_id",
        (
            _NAME,
            _ADDRESS,
            "email",
            "dob",
            _methods("amount"),
            _list("saved_passengers", "saved_passengers", *_PERSON),
            "membership",
            _values("reservations", "user_reservations"),
        ),
    ),
    "flights": RecordTable(
        "flights",
        "key",
        (
            "flight_number",
            "origin",
            "destination",
            "scheduled_departure_time_est",
            "scheduled_arrival_time_est",
            Inner(
                "dates",
                RecordTable(
                    "flight_days",
                    "date",
                    (
                        "status",
                        "actual_departure_time_est",
                        "actual_arrival_time_est",
                        "estimated_departure_time_est",
                        "estimated_arrival_time_est",
                        NestedRecord("available_seats", _SEATS),
                        NestedRecord("prices", _SEATS),
                    ),
                    "map",
                ),
            ),
        ),
    ),
    "reservations": RecordTable(
        "reservations",
        "key",
        (
            "reservation_id",
            "user_id",
            "origin",
            "destination",
            "flight_type",
            "cabin",
            _list("flights", "reservation_flights", "origin", "destination", "flight_number", "date", "price"),
            _list("passengers", "passengers", *_PERSON),
            _list("payment_history", "reservation_payments", "payment_id", "amount"),
            "created_at",
            "total_baggages",
            "nonfree_baggages",
            "insurance",
            "status",
        ),
    ),
}

BIKES: Schema = {
    "customers": RecordTable(
        "customers",
        "key",
        (
            "customer_id",
            "first_name",
            "last_name",
            "email",
            NestedRecord("address", ("street", "city", "postcode")),
            Inner("payments", RecordTable("payments", "method", ("kind", "payment_id", "balance"), "map")),
            _values("bookings", "customer_bookings"),
        ),
    ),
    "bikes": RecordTable("bikes", "key", ("bike_id", "model", "kind", "station", "price", "status")),
    "bookings": RecordTable(
        "bookings",
        "key",
        ("booking_id", "customer_id", "bike_id", "station", "date", "days", "insurance", "payment_id", "status", "total",
         "reason"),
    ),
}  # fmt: skip

TINY: Schema = {"items": RecordTable("items", "item", ("status",))}

SCHEMAS: Mapping[str, Schema] = {
    "retail": RETAIL,
    "outfitter": RETAIL,
    "airline": AIRLINE,
    "bikes": BIKES,
    "outfitter-tiny": TINY,
}
"""Schemas by domain. The outfitter's shop has retail's tables."""
