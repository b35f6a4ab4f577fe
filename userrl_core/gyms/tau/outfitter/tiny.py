"""The shop at laptop size: three tools, one word an item, four turns for one item and two for each further one (ours).

A customer wants to give up some items. An open item must be cancelled, a sent one refunded; only a look at the item shows its
state. The tools check little, like tau-bench's: cancelling a sent item is carried out, and the task is lost. Without looking,
every item is a gamble. Giving up an unwanted item loses the task at once.

Each task has its own items, so that nothing can be learnt by heart. Calls are written in short form, ``cancel hat``.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Any

from userrl_core.gyms.pool import check_sizes, distinct_tasks, draw_tasks
from userrl_core.gyms.population import ASIDES, Persona
from userrl_core.gyms.tau.database import Database
from userrl_core.gyms.tau.stopping import STOP
from userrl_core.gyms.tau.tools import Domain, Tool, ToolError, need, schemas
from userrl_core.interact import InteractCall
from userrl_core.records import ModelCall, Task
from userrl_core.seeding import content_hash, split_of

DOMAIN = "outfitter-tiny"
ITEMS = tuple(
    "anorak apron bag belt beret blanket blazer boots bowl brooch cap cape cardigan cloak coat dress flask gloves gown hat hood "  # noqa: SIM905
    "jacket jeans jersey kilt lamp mat mittens mug parka poncho pouch robe rope rug sandals scarf shawl shirt shoes skirt "
    "slippers socks stove sweater tent tie towel".split()
)
OPEN, SENT = "open", "sent"
OTHERS, MOST = 2, 3
"""Number of items to keep; most items to give up."""
PER_SIZE = {1: 2 * len(ITEMS), 2: 900, 3: 900}
"""Tasks by the number of items to give up. For one item this is every possible task."""
ASK, BYE = "what", "done"
"""The demonstrator's messages: a question, and the statement that all is settled."""


def look(db: Database, item: str) -> str:
    """Whether an item is open or sent, cancelled or refunded."""
    return str(need(db, "items", item, "item")["status"])


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
SCHEMAS = schemas(TOOLS, {name: {"item": "the item"} for name in TOOLS})


def domain(policy: str) -> Domain:
    """Return the domain with the three tools. A task brings its own items."""
    return Domain(DOMAIN, TOOLS, WRITES, SCHEMAS, policy, {"items": {}}, terse=True)


class TerseUser:
    """A customer who names the items as often as asked, and ends the conversation when told that all is settled.

    population: the customers to draw from. A drawn customer who slips leaves out one item at first.
    """

    def __init__(self, task: Task, rng: random.Random, *, population: str | Mapping[str, Any] | None = None) -> None:
        self.persona = None if population is None else Persona("tau", task.id, population)
        self._messages = 0
        self.ledger: list[ModelCall] = []
        self._wanted, self._told = ",".join(task.payload["wanted"]), False

    async def reply(self, message: str) -> str:
        """Return the items, or the stop token."""
        if self._told and message.strip().lower() == BYE:
            return STOP
        if (persona := self.persona) is not None:
            self._messages += 1
            if persona.leaves(self._messages):
                return STOP
            move = "tells" if self._told else persona.move("items")
            if move in ASIDES:
                return ASIDES[move][0]
            if move == "slips" and "," in self._wanted:
                return self._wanted.rpartition(",")[0]
        self._told = True
        return self._wanted


def conversation(payload: Mapping[str, Any]) -> list[InteractCall]:
    """Ask, look at every item and settle it, report."""
    calls = [InteractCall("answer", f"{action['name']} {action['kwargs']['item']}") for action in payload["actions"]]
    return [InteractCall("action", ASK), *calls, InteractCall("action", BYE)]


def useless(payload: Mapping[str, Any], rng: Random) -> InteractCall:
    """Return a random call on a random item."""
    if rng.random() < 0.3:
        return InteractCall("action", rng.choice([ASK, BYE]))
    return InteractCall("answer", f"{rng.choice(list(TOOLS))} {rng.choice(list(payload['tables']['items']))}")


def tasks(split: str, sizes: Iterable[int]) -> Sequence[Task]:
    """Return the tasks of a split with these numbers of items to give up. Raises ConfigError for an unknown number."""
    chosen = check_sizes(sizes, MOST, "The tiny tier of outfitter has sizes")
    return [task for size in chosen for task in _of_size(size) if task.split == split]


def generate(n: int, seed: int) -> list[Task]:
    """Return n tasks of all sizes. Raises ConfigError if there are fewer than n."""
    pool = [task for size in range(1, MOST + 1) for task in _of_size(size)]
    return draw_tasks(pool, n, seed, "The tiny tier of outfitter")


@lru_cache(maxsize=MOST)
def _of_size(size: int) -> tuple[Task, ...]:
    rng = Random(f"outfitter/{size}")
    return tuple(distinct_tasks("tau", PER_SIZE[size], lambda: _task(rng, size)))


def _task(rng: Random, size: int) -> Task:
    """Make a task. Its id covers only the wanted actions, so that no two tasks differ only in irrelevant items."""
    keys = rng.sample(ITEMS, size + OTHERS)
    items = {key: {"status": rng.choice([OPEN, SENT])} for key in rng.sample(keys, len(keys))}
    wanted_items = keys[:size]
    closing = {key: "cancel" if items[key]["status"] == OPEN else "refund" for key in wanted_items}
    actions = [{"name": name, "kwargs": {"item": key}} for key in wanted_items for name in ("look", closing[key])]
    payload: dict[str, Any] = {
        "domain": DOMAIN,
        "database": None,
        "tables": {"items": items},
        "opening": "hello",
        "instruction": f"You want to give up these items that you ordered: {', '.join(wanted_items)}.",
        "wanted": wanted_items,
        "actions": actions,
        "outputs": [],
        "unprovable": "",
    }
    digest = content_hash([DOMAIN, actions])
    return Task("tau", digest, split_of(digest), payload, tier=f"tiny-{size}")
