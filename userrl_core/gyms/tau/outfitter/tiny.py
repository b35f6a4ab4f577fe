"""The shop at laptop size: three tools, one word an item, four to six turns (ours).

A customer wants some items of an order given up. An item that is still open is cancelled, one that was sent is refunded; which
is which is seen by looking at the order. The tools check little, as those of tau-bench: cancelling what was sent is carried
out, and the task is lost. So without looking every item is a gamble, and an item that nobody wanted given up is lost at once.

Each task has an order of its own, so that nothing can be known by heart. Calls are written in short, ``cancel hat``.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Any

from userrl_core.errors import ConfigError
from userrl_core.gyms.tau.database import Database, Record
from userrl_core.gyms.tau.rule_user import STOP
from userrl_core.gyms.tau.tools import Domain, Tool, ToolError, need, schemas
from userrl_core.interact import InteractCall
from userrl_core.records import ModelCall, Task
from userrl_core.seeding import content_hash, split_of

DOMAIN = "outfitter-tiny"
CUSTOMERS = ("ada", "ben", "cleo", "dan", "eva", "finn", "gus", "hana", "ivo", "jen", "kim", "leo")
ITEMS = ("belt", "boots", "cap", "coat", "gloves", "hat", "scarf", "shirt", "shoes", "socks")
OPEN, SENT = "open", "sent"
PER_ORDER, MOST, PER_SIZE = 4, 3, 552
ASK, BYE = "what", "done"
"""What the demonstrator says: a question, and that all is settled."""


def look(db: Database, customer: str) -> str:
    """The items of a customer's order, and whether each is open or sent."""
    return ",".join(f"{key} {item['status']}" for key, item in db.rows("items") if item["customer"] == customer) or "no"


def cancel(db: Database, item: str) -> str:
    """Cancel an item that is open."""
    return _close(db, item, "cancelled")


def refund(db: Database, item: str) -> str:
    """Take back an item that was sent, and refund it."""
    return _close(db, item, "refunded")


def _close(db: Database, item: str, status: str) -> str:
    if need(db, "items", item, "item")["status"] not in (OPEN, SENT):
        raise ToolError("that item is settled")
    db.edit("items", item)["status"] = status
    return "ok"


TOOLS: dict[str, Tool] = {"look": look, "cancel": cancel, "refund": refund}
WRITES = frozenset({"cancel", "refund"})
SCHEMAS = schemas(
    TOOLS,
    {"look": {"customer": "name of the customer"}, "cancel": {"item": "the item"}, "refund": {"item": "the item"}},
)


def domain(policy: str) -> Domain:
    """The three tools; a task brings its own order."""
    return Domain(DOMAIN, TOOLS, WRITES, SCHEMAS, policy, {"items": {}}, terse=True)


class TerseUser:
    """Says what is to be given up, as often as asked; ends the conversation when told that all is settled."""

    def __init__(self, task: Task, rng: random.Random) -> None:
        self.ledger: list[ModelCall] = []
        self._wanted, self._told = ",".join(task.payload["wanted"]), False

    async def reply(self, message: str) -> str:
        """The items, or the stop token."""
        if self._told and message.strip().lower() == BYE:
            return STOP
        self._told = True
        return self._wanted


def conversation(payload: Mapping[str, Any]) -> list[InteractCall]:
    """Ask, look, settle every item, say so."""
    calls = [InteractCall("answer", _short(action)) for action in payload["actions"]]
    return [InteractCall("action", ASK), *calls, InteractCall("action", BYE)]


def useless(payload: Mapping[str, Any], rng: Random) -> InteractCall:
    """Any call that the order allows."""
    if rng.random() < 0.3:
        return InteractCall("action", rng.choice([ASK, BYE]))
    name = rng.choice(list(TOOLS))
    value = payload["opening"] if name == "look" else rng.choice(list(payload["tables"]["items"]))
    return InteractCall("answer", f"{name} {value}")


def tasks(split: str, sizes: Iterable[int]) -> Sequence[Task]:
    """The tasks of a split with these numbers of items to give up. Raises ConfigError for a number there is not."""
    chosen = list(sizes)
    unknown = [size for size in chosen if size not in range(1, MOST + 1)]
    if unknown or not chosen:
        raise ConfigError(f"The outfitter's tiny tier has sizes 1 to {MOST}, not {unknown or 'none'}; set sizes.")
    return [task for size in chosen for task in _of_size(size) if task.split == split]


def generate(n: int, seed: int) -> list[Task]:
    """n tasks of all sizes. Raises ConfigError for more than there are."""
    pool = [task for size in range(1, MOST + 1) for task in _of_size(size)]
    if n > len(pool):
        raise ConfigError(f"The outfitter's tiny tier has {len(pool)} tasks; {n} were asked for.")
    return Random(seed).sample(pool, n)


@lru_cache(maxsize=MOST)
def _of_size(size: int) -> tuple[Task, ...]:
    rng = Random(f"outfitter/{size}")
    drawn: dict[str, Task] = {}
    while len(drawn) < PER_SIZE:
        task = _task(rng, size)
        drawn[task.id] = task
    return tuple(drawn.values())


def _task(rng: Random, size: int) -> Task:
    customer = rng.choice(CUSTOMERS)
    items = {key: {"customer": customer, "status": rng.choice([OPEN, SENT])} for key in rng.sample(ITEMS, PER_ORDER)}
    wanted = rng.sample(list(items), size)
    closing = [("cancel" if items[key]["status"] == OPEN else "refund", {"item": key}) for key in wanted]
    payload: dict[str, Any] = {
        "domain": DOMAIN,
        "database": None,
        "tables": {"items": items},
        "opening": customer,
        "instruction": f"You are {customer}. You want to give up these items of your order: {', '.join(wanted)}.",
        "wanted": wanted,
        "actions": [{"name": name, "kwargs": kwargs} for name, kwargs in [("look", {"customer": customer}), *closing]],
        "outputs": [],
        "unprovable": "",
    }
    digest = content_hash(["outfitter-tiny", payload["tables"], wanted])
    return Task("tau", digest, split_of(digest), payload, tier=f"tiny-{size}")


def _short(action: Record) -> str:
    return " ".join([action["name"], *action["kwargs"].values()])
