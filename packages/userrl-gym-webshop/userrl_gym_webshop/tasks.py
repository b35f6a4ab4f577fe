"""Tasks of WebShop: an objective, the shop's required state at the end, and a plan that leads there.

The numbers are AgentGym-RL's for WebArena: 372 training tasks (a twentieth of them for validation) and 50 test tasks.
A step of a plan is ``(action, role, name of the element, text)``; the demonstrator finds the element on the page.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from random import Random
from typing import Any

from userrl_core.errors import ConfigError
from userrl_core.records import Task
from userrl_core.seeding import content_hash, validation_of
from userrl_gym_webshop.store import KINDS, Product, Store, catalogue, money

TRAINED, TESTED = 372, 50
"""Numbers of training and testing queries (AgentGym-RL B.1)."""
VALIDATION = 0.05
TOWNS = ("Oslo", "Porto", "Ghent", "Turin", "Cork", "Basel", "Malmo", "Graz")
PEOPLE = ("Ada Berg", "Ben Sato", "Cleo Diaz", "Dan Weiss")
Step = tuple[str, ...]


def tasks(split: str, *, kinds: Sequence[str] = ()) -> Sequence[Task]:
    """Return our tasks of a split. kinds: only these kinds. Raises ConfigError for an unknown kind."""
    unknown = [kind for kind in kinds if kind not in MAKERS]
    if unknown:
        raise ConfigError("task.bad_option", f"WebShop has no kind '{unknown[0]}'. It has {', '.join(MAKERS)}.")
    return [task for task in _all() if task.split == split and (not kinds or task.tier in kinds)]


def generate(n: int, seed: int) -> list[Task]:
    """Return n tasks. They may be among our own."""
    return list(_drawn(n, Random(f"webshop/{seed}")).values())


@lru_cache(maxsize=1)
def _all() -> tuple[Task, ...]:
    ordered_tasks = sorted(_drawn(TRAINED + TESTED, Random("webshop")).values(), key=lambda task: content_hash(task.id))
    test, rest = ordered_tasks[:TESTED], ordered_tasks[TESTED:]
    train = (dataclasses.replace(task, split=validation_of(content_hash(task.payload), VALIDATION)) for task in rest)
    return (*(dataclasses.replace(task, split="test") for task in test), *train)


def _drawn(n: int, rng: Random) -> dict[str, Task]:
    tasks_by_id: dict[str, Task] = {}
    while len(tasks_by_id) < n:
        kind = rng.choice(list(MAKERS))
        objective, end, plan = MAKERS[kind](rng)
        payload = {
            "objective": objective,
            "end": {"state": Store().state(), **end},
            "plan": [list(step) for step in plan],
        }
        digest = content_hash(payload)
        tasks_by_id[digest] = Task("webshop", digest, "train", payload, tier=kind)
    return tasks_by_id


Made = tuple[str, dict[str, Any], list[Step]]


def _to(product: Product) -> Iterator[Step]:
    yield ("type", "textbox", "Search", product.name)
    yield ("click", "link", product.name)


def _fact(rng: Random) -> Made:
    product = rng.choice(list(catalogue().values()))
    question, answer = rng.choice(
        [("does the {} cost", money(product.price)), ("is the weight of the {}", f"{product.weight} g")]
    )
    return f"What {question.format(product.name)}?", {"answer": answer}, [*_to(product), ("stop", answer)]


def _extreme(rng: Random) -> Made:
    kind = rng.choice(list(KINDS))
    cheapest = min((p for p in catalogue().values() if p.category == kind), key=lambda p: p.price)
    plan: list[Step] = [("click", "link", kind.title()), ("click", "link", "Sort by price"), ("stop", cheapest.name)]
    return f"What is the name of the cheapest product among {kind}?", {"answer": cheapest.name}, plan


def _open(rng: Random) -> Made:
    product = rng.choice(list(catalogue().values()))
    page = f"http://shop/product/{product.id}"
    return f"Open the page of the {product.name}.", {"page": page}, [*_to(product), ("stop", "")]


def _cart(rng: Random) -> Made:
    product, count = rng.choice(list(catalogue().values())), rng.randint(1, 5)
    store = Store(cart={product.id: count})
    return (
        f"Put {count} of the {product.name} into the cart.",
        {"state": store.state()},
        [*_into(product, count), ("stop", "")],
    )


def _order(rng: Random) -> Made:
    product, count, town = rng.choice(list(catalogue().values())), rng.randint(1, 5), rng.choice(TOWNS)
    store = Store(cart={product.id: count})
    store.order(town)
    plan: list[Step] = [
        *_into(product, count),
        ("click", "link", "Check out"),
        ("type", "textbox", "Send to", town),
        ("stop", ""),
    ]
    return f"Order {count} of the {product.name}, sent to {town}.", {"state": store.state()}, plan


def _account(rng: Random) -> Made:
    field, value = rng.choice([("Town", rng.choice(TOWNS)), ("Name", rng.choice(PEOPLE))])
    store = Store(town=value) if field == "Town" else Store(name=value)
    plan: list[Step] = [("click", "link", "Account"), ("type", "textbox", field, value), ("stop", "")]
    return f"Change the {field.lower()} of the account to {value}.", {"state": store.state()}, plan


def _into(product: Product, count: int) -> Iterator[Step]:
    yield from _to(product)
    yield ("type", "textbox", "Quantity", str(count))


MAKERS: dict[str, Callable[[Random], Made]] = {
    "fact": _fact,
    "cheapest": _extreme,
    "open": _open,
    "cart": _cart,
    "order": _order,
    "account": _account,
}
"""Kinds of tasks, which are their tiers."""
