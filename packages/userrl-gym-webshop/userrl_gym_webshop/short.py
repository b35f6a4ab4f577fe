"""The short tier: a shop of 16 products whose pages are one line of numbered elements, for models of laptop size.

The rules are the shop's: the same actions, the same store, the same end states. The line stands for the accessibility tree and
is drawn here, so that a turn costs a few tokens and no browser's time. Text that `type` does not enter is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from random import Random

from userrl_gym_webshop.store import SEED, Product, Store

KINDS = {
    "lamps": ("torch", "candle", "lantern", "beacon"),
    "mugs": ("cup", "stein", "goblet", "beaker"),
    "bags": ("sack", "satchel", "tote", "pouch"),
    "clocks": ("timer", "sundial", "watch", "chime"),
}
"""Categories and their products."""


@lru_cache(maxsize=1)
def short_catalogue() -> dict[int, Product]:
    """Return the products by number, always the same. Prices and weights have one digit."""
    rng = Random(SEED)
    names = [(category, name) for category, products in KINDS.items() for name in products]
    return {
        number: Product(number, name, category, price=rng.randint(1, 9), rating=3, weight=rng.randint(1, 9))
        for number, (category, name) in enumerate(names, 1)
    }


@dataclass(frozen=True, slots=True)
class PageElement:
    """One element. target: the path that a click leads to. field: the name of a textbox."""

    name: str
    target: str = ""
    field: str = ""


class ShortShop:
    """A visitor's way through the pages."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._history, self._at = ["/"], 0

    @property
    def path(self) -> str:
        """Path of the current page, as in the large shop."""
        return self._history[self._at]

    def shown(self) -> str:
        """Return the page's elements with their numbers."""
        return " ".join(f"{number} {element.name}" for number, element in enumerate(self._elements(self.path), 1))

    def number(self, name: str) -> str:
        """Return the number of the page's element of this name."""
        return next(str(number) for number, element in enumerate(self._elements(self.path), 1) if element.name == name)

    def act(self, name: str, parts: list[str]) -> bool:
        """Carry out one action other than stop. Returns whether it was possible."""
        if name in ("click", "hover", "type"):
            return self._act_on_element(name, parts)
        if name in ("go_back", "go_forward"):
            at = self._at + (1 if name == "go_forward" else -1)
            possible = 0 <= at < len(self._history)
            self._at = at if possible else self._at
            return possible
        if name == "goto" and parts:
            path = "/" + parts[0].strip("/")
            return bool(self._elements(path)) and self._go(path)
        return name in ("scroll", "press")

    def _act_on_element(self, name: str, parts: list[str]) -> bool:
        numbered = {str(number): element for number, element in enumerate(self._elements(self.path), 1)}
        element = numbered.get(parts[0]) if parts else None
        if element is None or (name == "type" and (len(parts) < 2 or not element.field)):
            return False
        if name == "click" and element.target:
            return self._go(element.target)
        if name == "type" and parts[2:] != ["0"]:
            self._enter(element.field, parts[1].strip()[:60])
        return True

    def _enter(self, field: str, text: str) -> None:
        if field == "count":
            if text.isascii() and text.isdigit() and 0 < int(text) <= 99:
                product = int(self.path.rpartition("/")[2])
                self._store.cart[product] = min(self._store.cart.get(product, 0) + int(text), 99)
            self._go("/cart")
        elif self.path == "/checkout":
            self._store.order(text)
            self._go("/orders")
        elif field == "town":
            self._store.town = text
        else:
            self._store.name = text

    def _go(self, path: str) -> bool:
        self._history = [*self._history[: self._at + 1], path]
        self._at += 1
        return True

    def _elements(self, path: str) -> list[PageElement]:
        """Return the elements of a page; none if it does not exist."""
        products = short_catalogue()
        match path[1:].split("/"):
            case [""]:
                return [PageElement(kind, f"/category/{kind}") for kind in KINDS] + [
                    PageElement(name, f"/{name}") for name in ("cart", "account")
                ]
            case ["category", kind]:
                return [PageElement(p.name, f"/product/{n}") for n, p in products.items() if p.category == kind]
            case ["product", number] if number in map(str, products):
                product = products[int(number)]
                facts = (f"price {product.price}", f"weight {product.weight}")
                return [*map(PageElement, facts), PageElement("count", field="count")]
            case ["cart"]:
                rows = [PageElement(f"{count} {products[n].name}") for n, count in self._store.cart.items()]
                return [*rows, PageElement("checkout", "/checkout")] if rows else [PageElement("empty")]
            case ["checkout"]:
                return [PageElement("town", field="town")]
            case ["orders"]:
                return [PageElement(f"{len(self._store.orders)} orders")]
            case ["account"]:
                return [PageElement(field, field=field) for field in ("name", "town")]
        return []
