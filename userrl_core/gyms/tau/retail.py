"""tau-bench's retail domain: 16 tools over users, orders and products (rules as observed; tau-bench, MIT)."""

from __future__ import annotations

from typing import Any

from userrl_core.gyms.tau.database import Database, Record
from userrl_core.gyms.tau.tools import ToolError, need, with_common

REASONS = ("no longer needed", "ordered by mistake")


def find_user_id_by_email(db: Database, email: str) -> str:
    """The user with this e-mail address, in any case."""
    for key, user in db.rows("users"):
        if user["email"].lower() == email.lower():
            return key
    raise ToolError("user not found")


def find_user_id_by_name_zip(db: Database, first_name: str, last_name: str, zip: str) -> str:
    """The user with this name, in any case, and postcode."""
    for key, user in db.rows("users"):
        name = user["name"]
        same = name["first_name"].lower() == first_name.lower() and name["last_name"].lower() == last_name.lower()
        if same and user["address"]["zip"] == zip:
            return key
    raise ToolError("user not found")


def get_user_details(db: Database, user_id: str) -> Record:
    """The user's record."""
    return need(db, "users", user_id, "user")


def get_order_details(db: Database, order_id: str) -> Record:
    """The order's record."""
    return need(db, "orders", order_id, "order")


def get_product_details(db: Database, product_id: str) -> Record:
    """The product with all its variants."""
    return need(db, "products", product_id, "product")


def list_all_product_types(db: Database) -> Record:
    """Product names to ids, sorted by name."""
    return dict(sorted((product["name"], product["product_id"]) for _, product in db.rows("products")))


def cancel_pending_order(db: Database, order_id: str, reason: str) -> Record:
    """Cancel and refund every payment; gift cards are credited at once."""
    order = _order(db, order_id, "pending", "cancelled")
    if reason not in REASONS:
        raise ToolError("invalid reason")
    refunds = []
    for payment in order["payment_history"]:
        method = payment["payment_method_id"]
        refunds.append({"transaction_type": "refund", "amount": payment["amount"], "payment_method_id": method})
        if "gift_card" in method:
            _method(db, order["user_id"], method)
    for refund in refunds:
        if "gift_card" in refund["payment_method_id"]:
            _charge(db, order["user_id"], refund["payment_method_id"], -refund["amount"])
    order = db.edit("orders", order_id)
    order["status"], order["cancel_reason"] = "cancelled", reason
    order["payment_history"].extend(refunds)
    return order


def exchange_delivered_order_items(
    db: Database, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
) -> Record:
    """Request an exchange of delivered items for others of the same products."""
    order = _order(db, order_id, "delivered", "exchanged")
    difference, _ = _price_difference(db, order, item_ids, new_item_ids)
    method = _method(db, order["user_id"], payment_method_id)
    if method["source"] == "gift_card" and method["balance"] < difference:
        raise ToolError("insufficient gift card balance to pay for the price difference")
    order = db.edit("orders", order_id)
    order["status"] = "exchange requested"
    order["exchange_items"], order["exchange_new_items"] = sorted(item_ids), sorted(new_item_ids)
    order["exchange_payment_method_id"], order["exchange_price_difference"] = payment_method_id, difference
    return order


def modify_pending_order_items(
    db: Database, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
) -> Record:
    """Replace items of a pending order, once; charges or refunds the difference."""
    order = _order(db, order_id, "pending", "modified")
    difference, variants = _price_difference(db, order, item_ids, new_item_ids)
    method = _method(db, order["user_id"], payment_method_id)
    if method["source"] == "gift_card" and method["balance"] < difference:
        raise ToolError("insufficient gift card balance to pay for the new item")
    order = db.edit("orders", order_id)
    kind = "payment" if difference > 0 else "refund"
    order["payment_history"].append(
        {"transaction_type": kind, "amount": abs(difference), "payment_method_id": payment_method_id}
    )
    if method["source"] == "gift_card":
        _charge(db, order["user_id"], payment_method_id, difference)
    for item_id, variant in zip(item_ids, variants, strict=True):
        item = next(item for item in order["items"] if item["item_id"] == item_id)
        item.update(item_id=variant["item_id"], price=variant["price"], options=variant["options"])
    order["status"] = "pending (item modified)"
    return order


def modify_pending_order_payment(db: Database, order_id: str, payment_method_id: str) -> Record:
    """Charge another payment method for a pending order and refund the first."""
    order = _order(db, order_id, "pending", "modified")
    method = _method(db, order["user_id"], payment_method_id)
    history = order["payment_history"]
    if len(history) != 1 or history[0]["transaction_type"] != "payment":
        raise ToolError("there should be exactly one payment for a pending order")
    old, amount = history[0]["payment_method_id"], history[0]["amount"]
    if old == payment_method_id:
        raise ToolError("the new payment method should be different from the current one")
    if method["source"] == "gift_card" and method["balance"] < amount:
        raise ToolError("insufficient gift card balance to pay for the order")
    _method(db, order["user_id"], old)
    order = db.edit("orders", order_id)
    order["payment_history"] += [
        {"transaction_type": "payment", "amount": amount, "payment_method_id": payment_method_id},
        {"transaction_type": "refund", "amount": amount, "payment_method_id": old},
    ]
    if method["source"] == "gift_card":
        _charge(db, order["user_id"], payment_method_id, amount)
    if "gift_card" in old:
        _charge(db, order["user_id"], old, -amount)
    return order


def modify_pending_order_address(db: Database, order_id: str, **address: str) -> Record:
    """Change the address of a pending order."""
    _order(db, order_id, "pending", "modified")
    order = db.edit("orders", order_id)
    order["address"] = _address(address)
    return order


def modify_user_address(db: Database, user_id: str, **address: str) -> Record:
    """Change a user's own address."""
    need(db, "users", user_id, "user")
    user = db.edit("users", user_id)
    user["address"] = _address(address)
    return user


def return_delivered_order_items(db: Database, order_id: str, item_ids: list[str], payment_method_id: str) -> Record:
    """Request a return of delivered items; refunds go to the first payment method or a gift card."""
    order = _order(db, order_id, "delivered", "returned")
    _method(db, order["user_id"], payment_method_id)
    first = order["payment_history"][0]["payment_method_id"]
    if "gift_card" not in payment_method_id and payment_method_id != first:
        raise ToolError("payment method should be either the original payment method or a gift card")
    _has_items(order, item_ids)
    order = db.edit("orders", order_id)
    order["status"], order["return_items"] = "return requested", sorted(item_ids)
    order["return_payment_method_id"] = payment_method_id
    return order


TOOLS = with_common(
    find_user_id_by_email,
    find_user_id_by_name_zip,
    get_user_details,
    get_order_details,
    get_product_details,
    list_all_product_types,
    cancel_pending_order,
    exchange_delivered_order_items,
    modify_pending_order_items,
    modify_pending_order_payment,
    modify_pending_order_address,
    modify_user_address,
    return_delivered_order_items,
)
WRITES = frozenset(name for name in TOOLS if name.startswith(("cancel", "exchange", "modify", "return")))


def _order(db: Database, order_id: str, status: str, verb: str) -> Record:
    order = need(db, "orders", order_id, "order")
    if order["status"] != status:
        raise ToolError(f"non-{status} order cannot be {verb}")
    return order


def _method(db: Database, user_id: str, method_id: str) -> Record:
    methods: dict[str, Record] = need(db, "users", user_id, "user")["payment_methods"]
    if method_id not in methods:
        raise ToolError("payment method not found")
    return methods[method_id]


def _charge(db: Database, user_id: str, gift_card: str, amount: float) -> None:
    card = db.edit("users", user_id)["payment_methods"][gift_card]
    card["balance"] = round(card["balance"] - amount, 2)


def _has_items(order: Record, item_ids: list[str]) -> None:
    owned = [item["item_id"] for item in order["items"]]
    for item_id in item_ids:
        if item_ids.count(item_id) > owned.count(item_id):
            raise ToolError(f"item {item_id} not found")


def _price_difference(db: Database, order: Record, old: list[str], new: list[str]) -> tuple[float, list[Record]]:
    _has_items(order, old)
    if len(old) != len(new):
        raise ToolError("the number of items to be exchanged should match")
    difference, variants = 0.0, []
    for old_id, new_id in zip(old, new, strict=True):
        item = next(item for item in order["items"] if item["item_id"] == old_id)
        variant = need(db, "products", item["product_id"], "product")["variants"].get(new_id)
        if variant is None or not variant["available"]:
            raise ToolError(f"new item {new_id} not found or available")
        difference += variant["price"] - item["price"]
        variants.append(variant)
    return round(difference, 2), variants


def _address(arguments: dict[str, str]) -> dict[str, Any]:
    return {name: arguments[name] for name in ("address1", "address2", "city", "state", "country", "zip")}
