"""Requests of the shop's customers: instructions in words, with the calls that fulfil them (ours).

Every task needs at least one call that changes something, so doing nothing solves no task. A request that an order's status
forbids also occurs, always with an alternative that is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from userrl_core.gyms.tau import retail
from userrl_core.gyms.tau.database import Record
from userrl_core.gyms.tau.outfitter.shop import Tables, describe, new_address, tables

OPENING = "Hello! I need some help with something that I ordered."


@dataclass(frozen=True, slots=True)
class OrderRequest:
    """A request about one order. sentences: the instruction's, in the second person. calls: names with arguments."""

    sentences: tuple[str, ...]
    calls: tuple[tuple[str, Mapping[str, Any]], ...]

    @property
    def moves(self) -> bool:
        """Return whether the request changes the customer's own address."""
        return any(name == "modify_user_address" for name, _ in self.calls)


def payloads(n: int, seed: int) -> list[Record]:
    """Return the payloads of up to n different tasks."""
    rng, base = Random(seed), tables()
    customers = list(base["users"])
    by_instruction: dict[str, Record] = {}
    for _ in range(100 * n):
        if len(by_instruction) >= n:
            break
        user_id = rng.choice(customers)
        orders = rng.sample(base["users"][user_id]["orders"], rng.choice([1, 1, 2]))
        requests = [_request(rng, base, base["orders"][key]) for key in orders]
        # Two requests that change the customer's own address would contradict each other.
        if all(requests) and sum(request.moves for request in requests if request) < 2:
            payload = _payload(rng, base, user_id, [request for request in requests if request])
            by_instruction[payload["instruction"]] = payload
    return list(by_instruction.values())


def _request(rng: Random, base: Tables, order: Record) -> OrderRequest | None:
    """Draw a request that the order's status allows; None if the drawn kind does not fit the order."""
    request = rng.choice(KINDS[order["status"]])(rng, base, order)
    if request is None:
        return None
    return OrderRequest(request.sentences, (("get_order_details", {"order_id": order["order_id"]}), *request.calls))


def _payload(rng: Random, base: Tables, user_id: str, requests: list[OrderRequest]) -> Record:
    user = base["users"][user_id]
    first, last = user["name"]["first_name"], user["name"]["last_name"]
    if rng.random() < 0.5:
        who = f"You are {first} {last}, and your e-mail address is {user['email']}."
        find = ("find_user_id_by_email", {"email": user["email"]})
    else:
        who = f"You are {first} {last}, your postcode is {user['address']['zip']}, and you do not remember your e-mail address."
        find = ("find_user_id_by_name_zip", {"first_name": first, "last_name": last, "zip": user["address"]["zip"]})
    calls = [find, *(call for request in requests for call in request.calls)]
    return {
        "domain": "outfitter",
        "database": None,
        "opening": OPENING,
        "instruction": " ".join([who, *(sentence for request in requests for sentence in request.sentences)]),
        "actions": [{"name": name, "kwargs": dict(arguments)} for name, arguments in calls],
        "outputs": [],
        "unprovable": "",
    }


def _cancel(rng: Random, base: Tables, order: Record) -> OrderRequest:
    key, reason = order["order_id"], rng.choice(retail.REASONS)
    reason_text = {"no longer needed": "you no longer need it", "ordered by mistake": "you ordered it by mistake"}[
        reason
    ]
    call = ("cancel_pending_order", {"order_id": key, "reason": reason})
    return OrderRequest((f"You want to cancel order {key} because {reason_text}.",), (call,))


def _get_rid(rng: Random, base: Tables, order: Record) -> OrderRequest:
    """Cancel or return, whichever the status allows. The customer does not know the status."""
    key = order["order_id"]
    sentences = (
        f"You no longer need anything of order {key}.",
        "You want it cancelled, or all of it returned for a refund to the payment method of the order, whichever can be done.",
    )
    if order["status"] == "pending":
        return OrderRequest(sentences, (("cancel_pending_order", {"order_id": key, "reason": "no longer needed"}),))
    items = [item["item_id"] for item in order["items"]]
    arguments = {"order_id": key, "item_ids": items, "payment_method_id": _paid_by(order)}
    return OrderRequest(sentences, (("return_delivered_order_items", arguments),))


def _return(rng: Random, base: Tables, order: Record) -> OrderRequest:
    key, items = order["order_id"], _some(rng, order)
    cards = [key for key in _methods(base, order) if "gift_card" in key]
    method = rng.choice([_paid_by(order), *cards])
    where = f"your gift card {method}" if method in cards else "the payment method of the order"
    sentences = (f"You want to return {_named(items)} of order {key}.", f"You want the refund on {where}.")
    arguments = {"order_id": key, "item_ids": [item["item_id"] for item in items], "payment_method_id": method}
    return OrderRequest(sentences, (("return_delivered_order_items", arguments),))


def _swap(rng: Random, base: Tables, order: Record) -> OrderRequest | None:
    """Request other options of an item: an exchange if delivered, a change if pending."""
    key, item = order["order_id"], rng.choice(order["items"])
    other_variants = [v for v in _variants(base, item) if v["available"] and v["options"] != item["options"]]
    method = _other_card(rng, base, order)
    if not other_variants or method is None:
        return None
    new = rng.choice(other_variants)
    changed = {kind: value for kind, value in new["options"].items() if item["options"][kind] != value}
    verb = "exchange" if order["status"] == "delivered" else "change"
    sentences = (
        f"You want to {verb} the {item['name']} of order {key} for one with {describe(changed)} and else the same options.",
        f"Pay or get the difference with {method}.",
    )
    product = ("get_product_details", {"product_id": item["product_id"]})
    return OrderRequest(sentences, (product, (_swapping(order), _swapped(order, item, new, method))))


def _cheapest(rng: Random, base: Tables, order: Record) -> OrderRequest | None:
    key, item = order["order_id"], rng.choice(order["items"])
    kind = rng.choice(list(item["options"]))
    same = [v for v in _variants(base, item) if v["available"] and v["options"][kind] == item["options"][kind]]
    same.sort(key=lambda variant: float(variant["price"]))
    method = _other_card(rng, base, order)
    clear = len(same) > 1 and same[0]["price"] < same[1]["price"] and same[0]["item_id"] != item["item_id"]
    if not clear or method is None:
        return None
    verb = "exchange" if order["status"] == "delivered" else "change"
    sentences = (
        f"You want to {verb} the {item['name']} of order {key} for the cheapest available one of the same {kind}.",
        f"Pay or get the difference with {method}.",
    )
    product = ("get_product_details", {"product_id": item["product_id"]})
    return OrderRequest(sentences, (product, (_swapping(order), _swapped(order, item, same[0], method))))


def _repay(rng: Random, base: Tables, order: Record) -> OrderRequest | None:
    key, method = order["order_id"], _other_card(rng, base, order)
    if method is None or method == _paid_by(order):
        return None
    call = ("modify_pending_order_payment", {"order_id": key, "payment_method_id": method})
    return OrderRequest((f"You want to pay order {key} with {method} instead.",), (call,))


def _redirect(rng: Random, base: Tables, order: Record) -> OrderRequest:
    key, where = order["order_id"], new_address(rng)
    call = ("modify_pending_order_address", {"order_id": key, **where})
    return OrderRequest((f"You want order {key} sent to {_spelled(where)} instead.",), (call,))


def _move(rng: Random, base: Tables, order: Record) -> OrderRequest:
    """Change the customer's own address. An order that can no longer be redirected stays unchanged."""
    key, where = order["order_id"], new_address(rng)
    sentences: tuple[str, ...] = (f"You have moved, and want your own address changed to {_spelled(where)}.",)
    if order["status"] == "processed":
        sentences = (
            f"You want to know whether order {key} can still be cancelled; if not, you leave it as it is.",
            *sentences,
        )
    return OrderRequest(sentences, (("modify_user_address", {"user_id": order["user_id"], **where}),))


Kind = Callable[[Random, Tables, Record], OrderRequest | None]
KINDS: Mapping[str, tuple[Kind, ...]] = {
    "pending": (_cancel, _get_rid, _swap, _cheapest, _repay, _redirect),
    "delivered": (_return, _get_rid, _swap, _cheapest),
    "processed": (_move,),
}
"""Kinds of requests by the order's status."""


def _swapping(order: Record) -> str:
    return "exchange_delivered_order_items" if order["status"] == "delivered" else "modify_pending_order_items"


def _swapped(order: Record, item: Record, new: Record, method: str) -> Record:
    ids = {"item_ids": [item["item_id"]], "new_item_ids": [new["item_id"]]}
    return {"order_id": order["order_id"], **ids, "payment_method_id": method}


def _variants(base: Tables, item: Record) -> list[Record]:
    return list(base["products"][item["product_id"]]["variants"].values())


def _methods(base: Tables, order: Record) -> list[str]:
    return list(base["users"][order["user_id"]]["payment_methods"])


def _other_card(rng: Random, base: Tables, order: Record) -> str | None:
    methods = [key for key in _methods(base, order) if "gift_card" not in key]
    return rng.choice(methods) if methods else None


def _paid_by(order: Record) -> str:
    return str(order["payment_history"][0]["payment_method_id"])


def _some(rng: Random, order: Record) -> list[Record]:
    count = rng.randint(1, len(order["items"]))
    indices = rng.sample(range(len(order["items"])), count)
    return [order["items"][number] for number in sorted(indices)]


def _named(items: list[Record]) -> str:
    return " and ".join(f"the {item['name']}" for item in items)


def _spelled(where: Record) -> str:
    return f"{where['address1']}, {where['address2']}, {where['city']}, {where['state']} {where['zip']}, {where['country']}"
