"""Elements shared by all pages: navigation, colours, tables, foreign text shown as text, and refusals as sentences."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlencode

from nicegui import run, ui
from nicegui.events import ValueChangeEventArguments

from userrl.machine.foreign_text import plain
from userrl_core.errors import UserRLError
from userrl_core.number_format import number as number

T = TypeVar("T")

RESPONSE_SECONDS = 60.0
"""Seconds that a page's queries may take before the browser shows a failure."""

PAGES = {
    "Runs": "/",
    "Trajectories": "/trajectories",
    "SQL": "/ask",
    "Published": "/published",
    "People": "/people",
}

CUT = 4_000
"""Characters of a long text that are shown at first."""

LONGEST_WORD = 14
"""Characters that fit in a column of a narrow screen: the length of a trajectory id."""

STYLE = """
:root { --line: #d9dee5; --quiet: #5d6673; --panel: #ffffff; --ground: #f5f7f9; --agent: #eaf1f8; --mark: #b4540a;
  --ring: #2f6ca8; }
.body--dark { --line: #3a414b; --quiet: #a3acb8; --panel: #1f242b; --ground: #15191e; --agent: #24303d; --mark: #f0a35e;
  --ring: #8cbcec; }
body { background: var(--ground); } .body--dark { color-scheme: dark; }
.nicegui-content { padding: 0; }
.bar { background: var(--panel); border-bottom: 1px solid var(--line); }
.bar a.nicegui-link { color: inherit; text-decoration: none; padding: .35rem .6rem; border-radius: .4rem; }
.bar a.here { background: var(--agent); font-weight: 600; }
.panel { background: var(--panel); border: 1px solid var(--line); border-radius: .6rem; padding: 1rem; width: 100%; }
.quiet { color: var(--quiet); } .quiet a { text-decoration: underline; }
.chip { border: 1px solid var(--line); border-radius: .4rem; padding: .1rem .45rem; font-size: .875rem; background: var(--panel); }
.chip.good { border-color: #2e8b6a; } .chip.bad { border-color: #c2483f; } .chip.odd { border-color: var(--mark); }
.chip.bad { color: #b3372f; font-weight: 600; } .body--dark .chip.bad { color: #ff8f86; border-color: #ff8f86; }
.spark { fill: none; stroke: #2f6ca8; stroke-width: 1.75; } .body--dark .spark { stroke: #9cc8f5; stroke-width: 2; }
.mark { color: var(--mark); font-weight: 600; }
.alarm { color: #b3372f; font-weight: 600; } .body--dark .alarm { color: #ff8f86; }
.said { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: plaintext; max-height: 60vh; overflow-y: auto; }
.agent { background: var(--agent); border-radius: .5rem; padding: .6rem .8rem; }
/* In the first layer, because Quasar's important "no outline" is in the last one, and of important rules an earlier layer wins. */
@layer theme { :is(a, button, summary, [tabindex], [role=button], .cm-content):focus-visible {
  outline: 2px solid var(--ring) !important; outline-offset: 2px; } }
.q-field--focused .q-field__control {
  outline: 2px solid var(--ring); outline-offset: 2px; border-radius: .2rem; }
@media not all and (pointer: coarse) { .turn .acts { opacity: 0; transition: opacity .1s; }
  .turn:hover .acts, .turn:focus .acts, .turn:focus-within .acts, .turn.now .acts { opacity: 1; } }
.turn:focus, .turn.now { outline: 2px solid var(--ring); }
.panel.turn { padding: .5rem .8rem; } .place:empty { display: none; } .agent.brief { padding: .1rem .5rem; }
.track { position: relative; height: .55rem; background: var(--line); border-radius: .2rem; overflow: hidden; flex: 1; }
.track > div { position: absolute; top: 0; bottom: 0; }
.q-table th, .q-table td { padding: .3rem .6rem; }
.q-table td a, .nicegui-link { color: #2f6ca8; } .body--dark .q-table td a, .body--dark .nicegui-link { color: #8cbcec; }
.body--dark :is(.q-btn--flat, .q-btn--outline) { --q-primary: #8cbcec; }
.panel :is(.q-table__card, .q-table__container) { background: transparent; }
.member { min-width: 15rem; flex: 1 0 15rem; }
.same .said { color: var(--quiet); } .same .agent { background: transparent; outline: 1px dashed var(--line); }
.dot { width: .8rem; height: .8rem; border-radius: 50%; display: inline-block; margin-right: .35rem; }
.figure { width: 100%; overflow-x: auto; background: #ffffff; border-radius: .4rem; }
.figure img { min-width: 34rem; max-width: 100%; }
.number { font-variant-numeric: tabular-nums; }
.q-table .chip { white-space: nowrap; display: inline-block; }
@media (max-width: 599px) { .panel { padding: .6rem; } .wide { display: none; }
  .bar { padding-left: .5rem; padding-right: .5rem; } .bar a.nicegui-link { padding: .35rem .25rem; font-size: .875rem; }
  .panel .q-table th, .panel .q-table td { padding: .3rem .2rem; overflow-wrap: anywhere; min-width: 1.6rem; }
  .panel .q-table .whole { overflow-wrap: normal; } .q-table .chip { font-size: .8rem; padding: .1rem .25rem; white-space: normal; }
  .member { min-width: 10.2rem; flex-basis: 10.2rem; } .folded:not(.open) > .later { display: none; }
  .q-table__grid-item-card { border: 1px solid var(--line); } }
@media (min-width: 600px) { .unfolds { display: none; } }
"""


@contextmanager
def frame(title: str, *, current_page: str = "") -> Iterator[None]:
    """Draw the page around the block's content. A refusal inside the block is shown as a sentence."""
    ui.page_title(f"{title} · userrl")
    ui.colors(primary="#2f6ca8", secondary="#5d6673", accent="#b4540a", positive="#2e7d5b", negative="#b3372f")
    ui.add_css(STYLE)
    with (
        ui.element("nav").classes("bar w-full flex flex-wrap items-center gap-1 px-3 py-2").props('aria-label="Pages"')
    ):
        ui.link("userrl", "/").classes("font-bold text-lg")
        for name, target in PAGES.items():
            ui.link(name, target).classes("here" if name == current_page else "")
    # NiceGUI's own layout has the page's one `main`.
    with ui.element("div").classes("w-full max-w-screen-xl mx-auto p-2 sm:p-4 flex flex-col gap-4"):
        try:
            yield
        except UserRLError as error:
            sentence(str(error))


def heading(text: str, *, level: int = 1) -> None:
    """Draw a heading as plain text."""
    size = {1: "text-2xl font-semibold", 2: "text-lg font-semibold"}[level]
    ui.label(plain(text)).classes(size).props(f'role="heading" aria-level="{level}"')


def sentence(text: str) -> None:
    """Draw a sentence that says what failed or is missing."""
    ui.label(plain(text)).classes("panel said").props('role="status"')


def said(text: str | None, *classes: str) -> None:
    """Draw foreign text in a label without markup. A long text is cut until the reader asks for all of it."""
    full_text = plain(text or "")
    label = ui.label(full_text[:CUT]).classes(" ".join(("said", *classes))).props('dir="auto"')
    if len(full_text) > CUT:

        def show_all() -> None:
            label.set_text(full_text)
            button.delete()

        button = ui.button(f"Show all {len(full_text):,} characters", on_click=show_all).props(
            "flat dense no-caps size=sm"
        )


def turn(row: Mapping[str, Any], *, same: bool = False) -> None:
    """Draw a turn in a column. same: drawn faintly, because another trajectory has the same turn."""
    with ui.element("div").classes("flex flex-col gap-1" + (" same" if same else "")):
        reward = number(row["reward"], 2, sign=True)
        ui.label(f"Turn {row['turn']} · {row['choice'] or 'no readable call'} · reward {reward}").classes(
            "quiet text-xs number"
        )
        if agent := row["content"] if row["choice"] else row["message"]:
            said(agent, "agent", "text-sm")
        said(row["observation"] or "", "text-sm")


def place(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return stage, step and phase of a trajectory. An imported one has no stage."""
    if row["stage"] is None:
        return ("imported",)
    return (str(row["stage"]), f"step {row['step']}", str(row["phase"]))


def folded(title: str, draw: Callable[[], Awaitable[None]]) -> None:
    """Draw a closed section. Its content is queried and drawn when a reader first opens it."""
    drawn = False

    async def open_first(event: ValueChangeEventArguments[Any]) -> None:
        nonlocal drawn
        if event.value and not drawn:
            drawn = True
            with section:
                await draw()

    section = ui.expansion(title, on_value_change=open_first).classes("panel")


def later(draw: Callable[[], Awaitable[None]]) -> None:
    """Draw a part of the page after the page has reached its reader. A refusal is shown as a sentence."""
    with ui.element("div").classes("w-full flex flex-col gap-4") as part:
        waiting = ui.label("Loading …").classes("quiet").props('role="status"')

    async def fill() -> None:
        with part:
            try:
                await draw()
            except UserRLError as error:
                sentence(str(error))
            waiting.delete()

    with part:
        ui.timer(0, fill, once=True)


def chip(text: str, *, kind: str = "") -> None:
    """Draw a short fact. kind: good, bad or odd."""
    ui.label(plain(text)).classes(f"chip {kind}")


def address(path: str, **query: Any) -> str:
    """Return a path with a query string. Values that are None or empty are left out."""
    values = {name: value for name, value in query.items() if value is not None and value != ""}
    return f"{path}?{urlencode(values)}" if values else path


LINK = '<q-td :props="props"><a :href="props.row.href_{0}" v-text="props.value"></a></q-td>'
SPARK = (
    '<q-td :props="props"><svg viewBox="0 0 100 24" width="100" height="24" role="img" :aria-label="props.row.spark_label">'
    '<polyline class="spark" :points="props.value"/></svg></q-td>'
)
ALL = '<q-checkbox v-model="props.selected" aria-label="All rows"/>'
"""Template of the checkbox that ticks every row."""
WORD = '<q-td :props="props"><span v-if="props.value" :class="`chip ${props.row.kind}`" v-text="props.value"></span></q-td>'
"""Template for a short fact of a row, coloured by the row's ``kind``."""


def table(
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str],
    *,
    links: Sequence[str] = (),
    wide: Sequence[str] = (),
    selection: bool = False,
    cards: bool = False,
) -> ui.table:
    """Return a table whose cells are plain text. Numbers are right-aligned.

    columns: labels by field. links: fields whose address is in ``href_<field>``. wide: fields hidden on narrow screens.
    cards: on narrow screens each row is a card.
    """
    plain_rows = [
        {name: plain(value) if isinstance(value, str) else value for name, value in row.items()} for row in rows
    ]
    numeric = {c for c in columns if any(isinstance(row.get(c), (int, float)) for row in rows)}
    described = [
        {
            "name": name,
            "label": label,
            "field": name,
            "align": "right" if name in numeric else "left",
            "classes": "number" + (" gt-xs" if name in wide else "") + (" whole" if _short(name, plain_rows) else ""),
            "headerClasses": ("gt-xs" if name in wide else "") + (" whole" if _short(name, plain_rows) else ""),
        }
        for name, label in columns.items()
    ]
    ui_table = ui.table(rows=plain_rows, columns=described, row_key="id", selection="multiple" if selection else None)
    ui_table.classes("w-full").props("flat dense wrap-cells hide-pagination :rows-per-page-options=[0]")
    if selection:
        ui_table.add_slot("header-selection", ALL)
    if cards:
        ui_table.props(':grid="window.innerWidth < 600"')
    for name in links:
        ui_table.add_slot(f"body-cell-{name}", LINK.format(name))
    return ui_table


def _short(name: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether all words of this column fit on a narrow screen without a break."""
    tokens = (token for row in rows for token in re.split(r"[\s-]+", str(row.get(name) or "")))
    return all(len(token) <= LONGEST_WORD for token in tokens)


def many(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


async def go(act: Callable[[], str]) -> None:
    """Open the address that an act returns, or show its refusal."""
    try:
        ui.navigate.to(await asked(act))
    except UserRLError as error:
        ui.notify(str(error), type="negative", multi_line=True)


async def asked(question: Callable[[], T]) -> T:
    """Run a query outside the event loop, so that other readers do not wait.

    Raises CancelledError if the reader left the page or the server shuts down. NiceGUI returns None then.
    """
    answer = await run.io_bound(lambda: (question(),))
    if answer is None:
        raise asyncio.CancelledError
    return answer[0]
