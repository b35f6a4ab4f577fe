"""Tasks of WebShop: an objective, the shop's required state at the end, and a plan that leads there.

The numbers are AgentGym-RL's for WebArena: 372 training tasks (a twentieth of them for validation) and 50 test tasks.
A step of a plan is ``(action, role, name of the element, text)``; the demonstrator finds the element on the page.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Any

from userrl_core.errors import ConfigError
from userrl_core.gyms.pool import distinct_tasks
from userrl_core.records import Task
from userrl_core.seeding import content_hash, split_of, validation_of
from userrl_gym_webshop.short import short_catalogue
from userrl_gym_webshop.store import KINDS, Product, Store, catalogue, money

TRAINED, TESTED = 372, 50
"""Numbers of training and testing queries (AgentGym-RL B.1)."""
VALIDATION = 0.05
SHORT = 400
"""Number of tasks of the short tier."""
TOWNS = ("Oslo", "Porto", "Ghent", "Turin", "Cork", "Basel", "Malmo", "Graz")
PEOPLE = ("Ada Berg", "Ben Sato", "Cleo Diaz", "Dan Weiss")
SHORT_NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gina", "Hugo")
Step = tuple[str, ...]


def tasks(split: str, *, tier: str = "full", kinds: Sequence[str] = ()) -> Sequence[Task]:
    """Return our tasks of a split. tier: ``full`` or ``short``. kinds: only these kinds.

    Raises ConfigError for an unknown tier or kind.
    """
    makers = _makers(tier)
    unknown = [kind for kind in kinds if kind not in makers]
    if unknown:
        of = " in its short tier" if tier == "short" else ""
        raise ConfigError("task.bad_option", f"WebShop has no kind '{unknown[0]}'{of}. It has {', '.join(makers)}.")
    pool = _all() if tier == "full" else _short()
    return [task for task in pool if task.split == split and (not kinds or task.tier.removeprefix("short-") in kinds)]


def generate(n: int, seed: int, *, tier: str = "full") -> list[Task]:
    """Return n tasks of a tier. They may be among our own. Raises ConfigError for an unknown tier and too many tasks."""
    return _drawn(n, Random(f"webshop/{seed}"), _makers(tier))


def _makers(tier: str) -> Mapping[str, Callable[[Random], Made]]:
    if tier not in ("full", "short"):
        raise ConfigError("task.bad_option", f"WebShop has no tier '{tier}'. Use full or short.")
    return MAKERS if tier == "full" else SHORT_MAKERS


@lru_cache(maxsize=1)
def _short() -> tuple[Task, ...]:
    drawn = _drawn(SHORT, Random("webshop/short"), SHORT_MAKERS)
    return tuple(dataclasses.replace(task, split=split_of(content_hash(task.payload))) for task in drawn)


@lru_cache(maxsize=1)
def _all() -> tuple[Task, ...]:
    ordered_tasks = sorted(_drawn(TRAINED + TESTED, Random("webshop"), MAKERS), key=lambda task: content_hash(task.id))
    test, rest = ordered_tasks[:TESTED], ordered_tasks[TESTED:]
    train = (dataclasses.replace(task, split=validation_of(content_hash(task.payload), VALIDATION)) for task in rest)
    return (*(dataclasses.replace(task, split="test") for task in test), *train)


Made = tuple[str, dict[str, Any], list[Step]]


def _drawn(n: int, rng: Random, makers: Mapping[str, Callable[[Random], Made]]) -> list[Task]:
    """Draw n different tasks. Those of the short tier say so in their ids and tiers."""

    def draw() -> Task:
        kind = rng.choice(list(makers))
        objective, end, plan = makers[kind](rng)
        payload: dict[str, Any] = {
            "objective": objective,
            "end": {"state": Store().state(), **end},
            "plan": [list(step) for step in plan],
        }
        prefix = ""
        if makers is SHORT_MAKERS:
            prefix = "short-"
            payload |= {"short": True, "words": objective.lower().rstrip(".?")}
        return Task("webshop", prefix + content_hash(payload), "train", payload, tier=prefix + kind)

    return distinct_tasks("webshop", n, draw)


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


def _short_product(rng: Random) -> Product:
    return rng.choice(list(short_catalogue().values()))


def _short_to(product: Product) -> Iterator[Step]:
    yield ("click", "link", product.category)
    yield ("click", "link", product.name)


def _short_fact(rng: Random) -> Made:
    product = _short_product(rng)
    fact = rng.choice(["price", "weight"])
    answer = str(product.price if fact == "price" else product.weight)
    return f"{fact.title()} {product.name}?", {"answer": answer}, [*_short_to(product), ("stop", answer)]


def _short_open(rng: Random) -> Made:
    product = _short_product(rng)
    page = f"http://shop/product/{product.id}"
    return f"Open {product.name}.", {"page": page}, [*_short_to(product), ("stop", "")]


def _short_cart(rng: Random) -> Made:
    product, count = _short_product(rng), rng.randint(1, 5)
    store = Store(cart={product.id: count})
    plan: list[Step] = [*_short_to(product), ("type", "textbox", "count", str(count)), ("stop", "")]
    return f"Take {count} {product.name}.", {"state": store.state()}, plan


def _short_order(rng: Random) -> Made:
    product, count, town = _short_product(rng), rng.randint(1, 5), rng.choice(TOWNS)
    store = Store(cart={product.id: count})
    store.order(town.lower())
    plan: list[Step] = [
        *_short_to(product),
        ("type", "textbox", "count", str(count)),
        ("click", "link", "checkout"),
        ("type", "textbox", "town", town.lower()),
        ("stop", ""),
    ]
    return f"Order {count} {product.name} {town}.", {"state": store.state()}, plan


def _short_account(rng: Random) -> Made:
    name, town = rng.choice(SHORT_NAMES), rng.choice(TOWNS)
    store = Store(name=name.lower(), town=town.lower())
    plan: list[Step] = [
        ("click", "link", "account"),
        ("type", "textbox", "name", name.lower()),
        ("type", "textbox", "town", town.lower()),
        ("stop", ""),
    ]
    return f"Account {name} {town}.", {"state": store.state()}, plan


SHORT_MAKERS: dict[str, Callable[[Random], Made]] = {
    "fact": _short_fact,
    "open": _short_open,
    "cart": _short_cart,
    "order": _short_order,
    "account": _short_account,
}
"""Kinds of tasks of the short tier."""
