"""The shop's pages: search, categories, products, cart, checkout, orders, account. Served on loopback, one visitor
per episode.

Every page is under the visitor's own token, so that episodes share nothing. Forms are read with the standard library.
"""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Iterable
from functools import lru_cache
from html import escape
from urllib.parse import parse_qs

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from userrl_gym_webshop.store import KINDS, Product, Store, catalogue, find, in_order, money

MOST = 99
"""Largest number of one product in a cart."""


class Site:
    """The server of this process: one thread, on a loopback port chosen by the system."""

    def __init__(self) -> None:
        self.visitors: dict[str, Store] = {}
        listening = socket.create_server(("127.0.0.1", 0))
        self.base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(pages(self.visitors), log_level="critical", lifespan="off"))
        threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True, name="webshop").start()

    def enter(self) -> tuple[str, Store]:
        """Add a visitor. Return the address of its home page and its store."""
        token, store = secrets.token_urlsafe(12), Store()
        self.visitors[token] = store
        return f"{self.base}/{token}", store

    def leave(self, address: str) -> None:
        """Forget a visitor."""
        self.visitors.pop(address.rpartition("/")[2], None)


@lru_cache(maxsize=1)
def site() -> Site:
    """Return the site of this process, started at the first call."""
    return Site()


def pages(visitors: dict[str, Store]) -> FastAPI:
    """Make the application over these visitors."""
    app = FastAPI(openapi_url=None)

    def of(token: str) -> Store:
        if token not in visitors:
            raise HTTPException(404)
        return visitors[token]

    def page(token: str, title: str, body: str) -> HTMLResponse:
        root = f"/{escape(token)}"
        links = " ".join(f'<a href="{root}/category/{kind}">{kind.title()}</a>' for kind in KINDS)
        menu = " ".join(f'<a href="{root}/{name}">{name.title()}</a>' for name in ("cart", "orders", "account"))
        search = f'<form action="{root}/search"><input name="q" aria-label="Search"><button>Search</button></form>'
        return HTMLResponse(
            f"<!doctype html><html lang=en><title>{escape(title)}</title><nav><a href='{root}/'>Home</a> {menu}</nav>"
            f"{search}<nav>{links}</nav><main><h1>{escape(title)}</h1>{body}</main></html>"
        )

    def listed(token: str, products: Iterable[Product]) -> str:
        rows = "".join(
            f'<li><a href="/{escape(token)}/product/{p.id}">{escape(p.name)}</a> {money(p.price)}, {p.rating} stars</li>'
            for p in products
        )
        return f"<ul>{rows}</ul>" if rows else "<p>Nothing was found.</p>"

    def sorting(token: str, path: str) -> str:
        orders = (("price", "Sort by price"), ("rating", "Sort by rating"))
        return " ".join(f'<a href="/{escape(token)}/{path}sort={key}">{label}</a>' for key, label in orders)

    @app.get("/{token}/")
    def home(token: str) -> HTMLResponse:
        of(token)
        return page(token, "The Corner Shop", "<p>Welcome. Search, or choose a category.</p>")

    @app.get("/{token}/search")
    def search(token: str, q: str = "", sort: str = "") -> HTMLResponse:
        of(token)
        body = sorting(token, f"search?q={escape(q)}&") + listed(token, in_order(find(q[:100]), sort))
        return page(token, f"Results for {q[:100]}", body)

    @app.get("/{token}/category/{kind}")
    def category(token: str, kind: str, sort: str = "") -> HTMLResponse:
        of(token)
        if kind not in KINDS:
            raise HTTPException(404)
        products = in_order([p for p in catalogue().values() if p.category == kind], sort)
        return page(token, kind.title(), sorting(token, f"category/{kind}?") + listed(token, products))

    @app.get("/{token}/product/{number}")
    def product(token: str, number: int) -> HTMLResponse:
        of(token)
        if (item := catalogue().get(number)) is None:
            raise HTTPException(404)
        form = (
            f'<form method=post action="/{escape(token)}/cart"><input type=hidden name=product value={number}>'
            f'<input name=quantity aria-label="Quantity" value=1><button>Add to cart</button></form>'
        )
        facts = f"<p>Price: {money(item.price)}</p><p>{item.rating} stars</p><p>Weight: {item.weight} g</p>"
        return page(token, item.name, facts + form)

    @app.get("/{token}/cart")
    def cart(token: str) -> HTMLResponse:
        rows = "".join(
            f'<li>{escape(catalogue()[n].name)}: {count} <form method=post action="/{escape(token)}/remove">'
            f"<input type=hidden name=product value={n}><button>Remove {escape(catalogue()[n].name)}</button></form></li>"
            for n, count in of(token).cart.items()
        )
        total = money(sum(catalogue()[n].price * count for n, count in of(token).cart.items()))
        checkout = f'<ul>{rows}</ul><p>Total: {total}</p><a href="/{escape(token)}/checkout">Check out</a>'
        return page(token, "Cart", checkout if rows else "<p>The cart is empty.</p>")

    @app.post("/{token}/cart")
    async def add(token: str, request: Request) -> RedirectResponse:
        form, mine = await fields(request), of(token)
        number, count = whole(form.get("product", "")), whole(form.get("quantity", ""))
        if number in catalogue() and count > 0:
            mine.cart[number] = min(mine.cart.get(number, 0) + count, MOST)
        return RedirectResponse(f"/{token}/cart", 303)

    @app.post("/{token}/remove")
    async def remove(token: str, request: Request) -> RedirectResponse:
        of(token).cart.pop(whole((await fields(request)).get("product", "")), None)
        return RedirectResponse(f"/{token}/cart", 303)

    @app.get("/{token}/checkout")
    def checkout(token: str) -> HTMLResponse:
        town = escape(of(token).town, quote=True)
        form = (
            f'<form method=post action="/{escape(token)}/orders"><input name=town aria-label="Send to" value="{town}">'
            "<button>Place order</button></form>"
        )
        return page(token, "Checkout", form)

    @app.get("/{token}/orders")
    def orders(token: str) -> HTMLResponse:
        rows = "".join(
            "<li>"
            + ", ".join(f"{count} {escape(catalogue()[int(n)].name)}" for n, count in order["items"].items())
            + f" to {escape(order['town'])}</li>"
            for order in of(token).orders
        )
        return page(token, "Orders", f"<ul>{rows}</ul>" if rows else "<p>Nothing was ordered.</p>")

    @app.post("/{token}/orders")
    async def order(token: str, request: Request) -> RedirectResponse:
        of(token).order((await fields(request)).get("town", "").strip()[:60])
        return RedirectResponse(f"/{token}/orders", 303)

    @app.get("/{token}/account")
    def account(token: str) -> HTMLResponse:
        mine = of(token)
        form = (
            f'<form method=post action="/{escape(token)}/account">'
            f'<input name=name aria-label="Name" value="{escape(mine.name, quote=True)}">'
            f'<input name=town aria-label="Town" value="{escape(mine.town, quote=True)}"><button>Save</button></form>'
        )
        return page(token, "Account", form)

    @app.post("/{token}/account")
    async def save(token: str, request: Request) -> RedirectResponse:
        form, mine = await fields(request), of(token)
        mine.name, mine.town = (form.get(name, "").strip()[:60] for name in ("name", "town"))
        return RedirectResponse(f"/{token}/account", 303)

    return app


async def fields(request: Request) -> dict[str, str]:
    """Return the fields of a form. The last value of each name counts."""
    form = parse_qs((await request.body())[:10_000].decode("utf-8", "replace"), keep_blank_values=True)
    return {name: values[-1] for name, values in form.items()}


def whole(text: str) -> int:
    """Return a whole number of at most six digits; -1 for anything else."""
    return int(text) if text.strip().isascii() and text.strip().isdigit() and len(text.strip()) <= 6 else -1
