"""The shop's catalogue, and a visitor's cart, orders and account. Plain data; the pages are in `site`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import lru_cache
from random import Random
from typing import Any

SEED = 1995
"""Seed of the catalogue. Another seed gives other prices and other tasks."""

KINDS = {
    "lamps": ("Desk Lamp", "Floor Lamp", "Reading Lamp", "Lantern"),
    "mugs": ("Coffee Mug", "Tea Cup", "Travel Mug", "Beer Stein"),
    "bags": ("Backpack", "Tote Bag", "Satchel", "Sports Bag"),
    "chairs": ("Armchair", "Folding Chair", "Bar Stool", "Rocking Chair"),
    "clocks": ("Wall Clock", "Alarm Clock", "Kitchen Timer", "Cuckoo Clock"),
    "scarves": ("Wool Scarf", "Silk Scarf", "Shawl", "Snood"),
}
"""Categories and their things."""

MAKERS = ("Alder", "Birch", "Cedar", "Maple")


@dataclass(frozen=True, slots=True)
class Product:
    """One product. price: in cents. rating: stars, 1 to 5."""

    id: int
    name: str
    category: str
    price: int
    rating: int
    weight: int


@dataclass(slots=True)
class Store:
    """A visitor's side of the shop. cart: numbers by product. orders: items and destinations."""

    name: str = "Kim Novak"
    town: str = "Lisbon"
    cart: dict[int, int] = field(default_factory=dict)
    orders: list[dict[str, Any]] = field(default_factory=list)

    def state(self) -> dict[str, Any]:
        """Return everything as JSON, for comparison with a task's end state."""
        values = asdict(self)
        values["cart"] = {str(number): count for number, count in sorted(self.cart.items())}
        return values

    def order(self, town: str) -> None:
        """Order the contents of the cart."""
        if self.cart:
            items = {str(number): count for number, count in sorted(self.cart.items())}
            self.orders.append({"items": items, "town": town})
            self.cart = {}


@lru_cache(maxsize=1)
def catalogue() -> dict[int, Product]:
    """Return all products by number, always the same. No two of a category have the same price or weight."""
    rng = Random(SEED)
    products: dict[int, Product] = {}
    for category, nouns in KINDS.items():
        names = [f"{maker} {noun}" for noun in nouns for maker in MAKERS]
        prices, weights = (rng.sample(range(low, high), len(names)) for low, high in ((500, 9999), (100, 4000)))
        for name, price, weight in zip(names, prices, weights, strict=True):
            number = 100 + len(products)
            products[number] = Product(number, name, category, price, rng.randint(1, 5), weight)
    return products


def money(cents: int) -> str:
    """Format a price."""
    return f"${cents / 100:.2f}"


def find(query: str) -> list[Product]:
    """Return the products whose name has every word of a query."""
    query_words = query.lower().split()
    return [p for p in catalogue().values() if query_words and all(token in p.name.lower() for token in query_words)]


def in_order(products: list[Product], sort: str) -> list[Product]:
    """Sort by price, or by rating (best first), or not at all."""
    if sort == "price":
        return sorted(products, key=lambda p: p.price)
    return sorted(products, key=lambda p: -p.rating) if sort == "rating" else products
