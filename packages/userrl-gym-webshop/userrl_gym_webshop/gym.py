"""WebShop: reach an objective in a web shop, one browser action a turn (AgentGym-RL B.1).

The agent reads the accessibility tree of the page, with elements numbered from the top. It uses the paper's actions: click,
type, hover, press, scroll, new_tab, tab_focus, close_tab, goto, go_back, go_forward, stop. `stop` ends the episode. It pays 1
if the answer is right, or if the shop is exactly in the required state.

Departures from WebArena: the shop is our own small one, and every episode has a separate copy, so that tasks may
change it (the paper leaves those tasks out). The observation is the whole page, regardless of scrolling. `type`
replaces a field's content. The browser reaches only the shop. A failing browser gives a null reward.

In the short tier, for models of laptop size, the shop has 16 products and a page is one line (`short.py`).

Needs Chromium.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, ClassVar

from userrl_core.errors import UserError
from userrl_core.gyms.base import Gym, GymConfig, Reply, RewardBounds
from userrl_core.interact import InteractCall
from userrl_core.records import Task
from userrl_gym_webshop.browser import Tab, browser, path
from userrl_gym_webshop.short import ShortShop
from userrl_gym_webshop.site import site
from userrl_gym_webshop.store import Store
from userrl_gym_webshop.tree import Element, read, shown

NO = "no"
"""The short tier's observation for an impossible action."""
HOME = "http://shop"
"""The shop's address as shown to the agent. The real one differs from run to run."""

CLICK = "function(){this.focus&&this.focus();this.click()}"
HOVER = "function(){for(const e of ['mouseover','mousemove'])this.dispatchEvent(new MouseEvent(e,{bubbles:true}))}"
TYPE = (
    "function(text,enter){this.focus();this.value=text;"
    "for(const e of ['input','change'])this.dispatchEvent(new Event(e,{bubbles:true}));"
    "if(enter&&this.form)this.form.requestSubmit()}"
)
ENTER = "document.activeElement&&document.activeElement.form&&document.activeElement.form.requestSubmit()"

_ACTION = re.compile(r"`*\s*([a-z_]+)\b\s*(.*?)\s*`*", re.DOTALL)
_PARTS = re.compile(r"\[([^\[\]]*)\]")


class WebShopGym(Gym[GymConfig]):
    """One objective in the web shop."""

    name = "webshop"
    metric = "Success"
    blocking = True
    slow = True
    goal = (
        "You are given a page of a web shop as an accessibility tree and an objective to reach. Act on elements by their numbers, "
        "one action a turn, and stop once the objective is reached, with the answer where it asks for one."
    )
    hint = "Read the page before you act; an element's number counts for the page on which it was shown."
    choice_help: ClassVar = {
        "action": "one action: click [12]; type [12] [text] [1] (1 presses Enter, 0 does not); hover [12]; press [Enter]; "
        "scroll [down]; new_tab; tab_focus [0]; close_tab; goto [http://shop/cart]; go_back; go_forward; stop [answer]"
    }

    def __init__(self, task: Task, user: Any = None, config: GymConfig | None = None) -> None:
        super().__init__(task, user, config)
        self._short: ShortShop | None = None
        self._tabs: list[Tab] = []
        self._at = 0
        self._context = self._home = ""

    @classmethod
    def unavailable(cls) -> str:
        """Return a sentence about a missing Chromium; "" if it is installed."""
        return "" if path() else "WebShop is driven through Chromium, and there is none here; install chromium."

    @staticmethod
    def min_turns(task: Task, config: GymConfig) -> int:
        """Return the number of turns of the demonstrator."""
        return len(task.payload["plan"])

    @classmethod
    def reward_bounds(cls, config: GymConfig) -> RewardBounds:
        """Return the bounds: reached or not."""
        return RewardBounds(0.0, 1.0)

    @classmethod
    def gold(cls, task: Task, config: GymConfig) -> list[InteractCall]:
        """Follow the plan in the short tier. Elsewhere only the browser knows an element's number."""
        if not task.payload.get("short"):
            return []
        shop, calls = ShortShop(Store()), []
        for name, *parts in task.payload["plan"]:
            arguments = parts if name == "stop" else [shop.number(parts[1]), *parts[2:]]
            shop.act(name, arguments)
            calls.append(InteractCall("action", " ".join([name, *(f"[{argument}]" for argument in arguments)])))
        return calls

    def opening(self) -> str:
        """Return the home page and the objective. Raises UserError if the browser fails."""
        if self.task.payload.get("short"):
            self._store = Store()
            self._short = ShortShop(self._store)
            return f"{self._short.shown()}\nOBJECTIVE: {self.task.payload['objective']}"
        self._home, self._store = site().enter()
        self._context = browser().context()
        self._tabs = [browser().tab(self._context, f"{self._home}/")]
        return f"{self._seen()}\nOBJECTIVE: {self.task.payload['objective']}"

    def brief(self) -> str:
        """Return the objective only; in the short tier in a few words, with the home page."""
        if self._short is not None:
            return f"{self.task.payload['words']}\n{self._short.shown()}"
        return str(self.task.payload["objective"])

    async def action(self, content: str) -> Reply:
        """Carry out one action. An impossible action changes nothing."""
        match = _ACTION.fullmatch(content.strip()[:2000])
        name, parts = (match[1], _PARTS.findall(match[2])) if match else ("", [])
        if name == "stop":
            return self._stop(parts[0] if parts else "")
        if self._short is not None:
            if name == "goto":
                parts = [part.removeprefix(HOME) for part in parts[:1] if in_shop(part)]
            return Reply(self._short.shown() if self._short.act(name, parts) else NO)
        return await asyncio.to_thread(self._act, name, parts)

    def _stop(self, answer: str) -> Reply:
        end = self.task.payload["end"]
        is_reached = self._store.state() == end["state"]
        if "answer" in end:
            is_reached = is_reached and plain(answer) == plain(end["answer"])
        if "page" in end:
            is_reached = is_reached and self._page() == end["page"]
        return Reply("You have stopped.", float(is_reached), True, success=is_reached)

    def _act(self, name: str, parts: list[str]) -> Reply:
        refusal = self._tried(name, parts)
        return Reply(f"{refusal}\n{self._seen()}" if refusal else self._seen())

    def _tried(self, name: str, parts: list[str]) -> str:
        """Try an action; return the reason for its failure as a sentence, or "" on success."""
        tab = self._tabs[self._at]
        if name in ("click", "type", "hover"):
            element = self._elements.get(parts[0]) if parts else None
            if element is None:
                return f"There is no element [{parts[0] if parts else ''}] on this page."
            if name == "type" and (len(parts) < 2 or not element.writable):
                return f"Nothing can be typed into [{parts[0]}]; type [number] [text] [1] into a textbox."
            text_arguments = (parts[1], parts[2:] != ["0"]) if name == "type" else ()
            tab.act(element.node, {"click": CLICK, "type": TYPE, "hover": HOVER}[name], *text_arguments)
            return ""
        if name == "press":
            if parts[:1] == ["Enter"]:
                tab.run(ENTER)
            return ""
        if name == "scroll" and parts[:1] in (["up"], ["down"]):
            tab.run(f"window.scrollBy(0, {'-' * (parts[0] == 'up')}innerHeight)")
            return ""
        if name in ("go_back", "go_forward"):
            return "" if tab.history(-1 if name == "go_back" else 1) else "There is no such page."
        if name == "goto" and parts:
            if not in_shop(parts[0]):
                return f"Only the shop can be reached, at {HOME}."
            tab.go(self._home + (parts[0].removeprefix(HOME) or "/"))
            return ""
        return self._tab_action(name, parts)

    def _tab_action(self, name: str, parts: list[str]) -> str:
        if name == "new_tab" and len(self._tabs) < 4:
            self._tabs.append(browser().tab(self._context, f"{self._home}/"))
            self._at = len(self._tabs) - 1
            return ""
        if name == "tab_focus" and parts and parts[0] in map(str, range(len(self._tabs))):
            self._at = int(parts[0])
            return ""
        if name == "close_tab" and len(self._tabs) > 1:
            browser().forget(self._tabs.pop(self._at))
            self._at = len(self._tabs) - 1
            return ""
        return "That is not possible; take one of the actions, such as click [1] or stop [answer]."

    def _page(self) -> str:
        if self._short is not None:
            return HOME + self._short.path
        address = self._tabs[self._at].address
        return HOME + address.removeprefix(self._home) if address.startswith(self._home) else "about:blank"

    def _seen(self) -> str:
        elements = read(self._tabs[self._at].tree())
        self._elements: dict[str, Element] = {str(element.number): element for element in elements}
        tabs = f"Tab {self._at} of {len(self._tabs)}, " if len(self._tabs) > 1 else ""
        return f"{tabs}{self._page()}\n{shown(elements)}"

    async def aclose(self) -> None:
        """Close the browser's context and forget the visitor."""
        await super().aclose()
        context, self._context = self._context, ""
        if self._home:
            site().leave(self._home)
        if context:
            try:
                await asyncio.to_thread(browser().end, context)
            except UserError:
                return  # a browser that is gone has nothing left to close


def in_shop(address: str) -> bool:
    """Return whether an address is in the shop."""
    return address == HOME or address.startswith(f"{HOME}/")


def plain(answer: str) -> str:
    """Normalise an answer for comparison: lower case, without extra spaces and a full stop."""
    return " ".join(answer.lower().split()).rstrip(".")
