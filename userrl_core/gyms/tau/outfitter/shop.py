"""The shop's data and the descriptions of its tools (ours, with the tables and tools of tau-bench's retail domain).

The tools are `retail.TOOLS` themselves, so that skills learnt here apply there. There are 16 tools, and 7 change something.
Customers, products and orders are ours, drawn once with a fixed seed. The descriptions are part of the experiment.
"""

from __future__ import annotations

import itertools
import json
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from userrl_core.gyms.tau import retail
from userrl_core.gyms.tau.database import Record
from userrl_core.gyms.tau.tools import TRANSFER, schemas

SEED = 83
CUSTOMERS, VARIANTS = 250, 12
STATUSES = ("pending", "pending", "delivered", "delivered", "processed")

Tables = dict[str, dict[str, Record]]


@lru_cache(maxsize=1)
def tables() -> Tables:
    """Return customers (``users``), ``orders`` and ``products`` in retail's format; never changed."""
    names, rng = _names(), Random(SEED)
    products = dict(_product(names, rng, number) for number in range(len(names["products"])))
    users: dict[str, Record] = {}
    orders: dict[str, Record] = {}
    for number in range(CUSTOMERS):
        key, user = _user(names, rng, number)
        users[key] = user
        for _ in range(rng.choice([2, 2, 3])):
            order = _order(rng, key, user, products, f"#W{7000 + len(orders)}")
            orders[order["order_id"]] = order
            user["orders"].append(order["order_id"])
    return {"users": users, "orders": orders, "products": products}


@lru_cache(maxsize=1)
def _names() -> Record:
    names: Record = json.loads(Path(__file__).with_name("names.json").read_text(encoding="utf-8"))
    return names


def _product(names: Record, rng: Random, number: int) -> tuple[str, Record]:
    name, (price, kinds) = list(names["products"].items())[number]
    combinations = list(itertools.product(*(names["options"][kind] for kind in kinds)))
    combinations_kept = rng.sample(combinations, min(VARIANTS, len(combinations)))
    variants: dict[str, Record] = {}
    for index, values in enumerate(combinations_kept):
        item = f"{4000 + 37 * number + index}"
        variants[item] = {
            "item_id": item,
            "options": dict(zip(kinds, values, strict=True)),
            "available": rng.random() < 0.75,
            "price": round(price * rng.uniform(0.9, 1.2), 2),
        }
    key = f"P{10 + number}"
    return key, {"name": name, "product_id": key, "variants": variants}


def _user(names: Record, rng: Random, number: int) -> tuple[str, Record]:
    first, last = rng.choice(names["first_names"]), rng.choice(names["last_names"])
    methods: Record = {}
    for kind in rng.sample(["credit_card", "paypal", "gift_card"], rng.choice([2, 3])):
        key = f"{kind}_{3000 + 3 * number + len(methods)}"
        balance = {"balance": rng.randint(20, 90)} if kind == "gift_card" else {}
        methods[key] = {"source": kind, **balance, "id": key}
    return f"{first}_{last}_{500 + number}".lower(), {
        "name": {"first_name": first, "last_name": last},
        "address": new_address(rng),
        "email": f"{first}.{last}{number}@example.org".lower(),
        "payment_methods": methods,
        "orders": [],
    }


def new_address(rng: Random) -> Record:
    """Return an address in the format of the tables and the tools."""
    names = _names()
    city, state = rng.choice(names["cities"])
    return {
        "address1": f"{rng.randint(1, 200)} {rng.choice(names['streets'])}",
        "address2": f"Flat {rng.randint(1, 40)}",
        "city": city,
        "country": "USA",
        "state": state,
        "zip": str(rng.randint(10000, 98999)),
    }


def _order(rng: Random, key: str, user: Record, products: dict[str, Record], order_id: str) -> Record:
    items = []
    for product in rng.sample(list(products.values()), rng.choice([1, 2, 2, 3])):
        variant = rng.choice(list(product["variants"].values()))
        about = {"name": product["name"], "product_id": product["product_id"], "item_id": variant["item_id"]}
        items.append({**about, "price": variant["price"], "options": variant["options"]})
    paid_by = rng.choice([m for m in user["payment_methods"] if "gift_card" not in m])
    paid = {"transaction_type": "payment", "amount": round(sum(item["price"] for item in items), 2)}
    return {
        "order_id": order_id,
        "user_id": key,
        "address": user["address"],
        "items": items,
        "fulfillments": [],
        "status": rng.choice(STATUSES),
        "payment_history": [{**paid, "payment_method_id": paid_by}],
    }


def _list(of: str) -> Record:
    return {"type": "array", "items": {"type": "string"}, "description": of}


_USER, _ORDER = "id such as greta_gallo_501", "id such as #W7001"
_METHOD = "one of the customer's payment methods, such as paypal_3001"
_REASON = {"type": "string", "enum": list(retail.REASONS), "description": "why"}
_ITEMS = _list("ids of items of the order, one for each piece")
_SWAP = {"item_ids": _ITEMS, "new_item_ids": _list("ids of the items that take their places, in the same order")}
_ADDRESS = {
    "address1": "street and number",
    "address2": "flat",
    "city": "city",
    "state": "state, two letters",
    "country": "country",
    "zip": "postcode",
}

SCHEMAS = schemas(
    retail.TOOLS,
    {
        "find_user_id_by_email": {"email": "the customer's e-mail address"},
        "find_user_id_by_name_zip": {"first_name": "first name", "last_name": "last name", "zip": "postcode"},
        "get_user_details": {"user_id": _USER},
        "get_order_details": {"order_id": _ORDER},
        "get_product_details": {"product_id": "id such as P12"},
        "list_all_product_types": {},
        "cancel_pending_order": {"order_id": _ORDER, "reason": _REASON},
        "return_delivered_order_items": {"order_id": _ORDER, "item_ids": _ITEMS, "payment_method_id": _METHOD},
        "exchange_delivered_order_items": {"order_id": _ORDER, **_SWAP, "payment_method_id": _METHOD},
        "modify_pending_order_items": {"order_id": _ORDER, **_SWAP, "payment_method_id": _METHOD},
        "modify_pending_order_payment": {"order_id": _ORDER, "payment_method_id": _METHOD},
        "modify_pending_order_address": {"order_id": _ORDER, **_ADDRESS},
        "modify_user_address": {"user_id": _USER, **_ADDRESS},
        "calculate": {"expression": "such as 3 * (14 + 4)"},
        "think": {"thought": "what to keep in mind"},
        TRANSFER: {"summary": "what the customer needs"},
    },
)


def describe(options: dict[str, Any]) -> str:
    """Return an item's options in words."""
    return ", ".join(f"{kind} {value}" for kind, value in options.items())
