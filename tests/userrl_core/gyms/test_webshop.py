"""WebShop: its tasks, its pages without a browser, and the browser with the paper's actions."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import httpx
import psutil
import pytest

from tests.makers import raises
from tests.waits import runs, wait_for
from userrl_core.gyms import make, min_turns, tasks
from userrl_core.gyms.registry import unavailable
from userrl_core.gyms.validate import validate
from userrl_core.interact import InteractCall
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.processes import is_alive
from userrl_core.records import Task
from userrl_core.rollout import run_episodes
from userrl_gym_webshop.site import site
from userrl_gym_webshop.store import catalogue, find
from userrl_gym_webshop.tasks import generate
from userrl_gym_webshop.tree import read, shown


@pytest.fixture
def chromium() -> None:
    if reason := unavailable("webshop"):
        if os.environ.get("USERRL_REQUIRE_BROWSER"):
            pytest.fail(reason)
        pytest.skip(reason)


def task(kind: str) -> Task:
    return next(iter(tasks("webshop", "train", kinds=[kind])))


def test_372_tasks_train_and_50_test_none_of_which_is_another() -> None:
    by_split = {split: tasks("webshop", split) for split in ("train", "validation", "test")}
    assert {split: len(some) for split, some in by_split.items()} == {"train": 351, "validation": 21, "test": 50}
    every = [one for some in by_split.values() for one in some]
    assert len({one.id for one in every}) == 422
    assert set(Counter(one.tier for one in by_split["test"])) == {
        "fact",
        "cheapest",
        "open",
        "cart",
        "order",
        "account",
    }
    assert [one.id for one in generate(5, 1)] == [one.id for one in generate(5, 1)]
    with raises("task.bad_option", "'theft'"):
        tasks("webshop", "train", kinds=["theft"])


def test_what_is_done_in_the_shop_changes_this_visitor_s_side_alone() -> None:
    address, store = site().enter()
    other_address, other = site().enter()
    before = other.state()
    product = catalogue()[100]
    with httpx.Client(follow_redirects=True, trust_env=False) as visitor:
        assert product.name in visitor.get(f"{address}/search", params={"q": product.name}).text
        for quantity in ("2", "1"):
            visitor.post(f"{address}/cart", data={"product": "100", "quantity": quantity})
        for nonsense in ("-1", "two", "9" * 30, ""):
            visitor.post(f"{address}/cart", data={"product": nonsense, "quantity": nonsense})
        assert store.state()["cart"] == {"100": 3}
        assert f"3 {product.name} to Cork" in visitor.post(f"{address}/orders", data={"town": "Cork"}).text
        visitor.post(f"{address}/account", data={"name": "<b>Eve</b>", "town": 'a"b'})
        assert "<b>Eve</b>" not in visitor.get(f"{address}/account").text
        assert visitor.get(f"{address}/product/7").status_code == 404
        site().leave(address)
        assert visitor.get(f"{address}/").status_code == 404
    assert (store.orders, store.cart, store.name) == ([{"items": {"100": 3}, "town": "Cork"}], {}, "<b>Eve</b>")
    assert other.state() == before
    site().leave(other_address)


def test_every_product_is_found_by_its_name_and_by_it_alone() -> None:
    assert all([p.id for p in find(product.name)] == [product.id] for product in catalogue().values())
    assert find("") == []


def test_the_tree_shows_what_says_something_numbered_from_the_top() -> None:
    nodes: list[dict[str, Any]] = [
        {"nodeId": "1", "role": {"value": "RootWebArea"}, "name": {"value": "Shop"}, "childIds": ["2", "3"]},
        {"nodeId": "2", "role": {"value": "generic"}, "ignored": True, "childIds": ["4"]},
        {"nodeId": "3", "role": {"value": "textbox"}, "name": {"value": "Search"}, "value": {"value": "mug"}},
        {"nodeId": "4", "role": {"value": "link"}, "name": {"value": "Cart"}, "childIds": ["5"]},
        {"nodeId": "5", "role": {"value": "StaticText"}, "name": {"value": "Cart"}},
    ]
    elements = read([node | {"backendDOMNodeId": 10 + index} for index, node in enumerate(nodes)])
    assert shown(elements) == "[1] RootWebArea 'Shop'\n  [2] link 'Cart'\n  [3] textbox 'Search' value 'mug'"
    assert [element.node for element in elements] == [10, 13, 12]


def test_without_chromium_it_is_refused_in_one_sentence(tmp_path: Path) -> None:
    code = "from userrl_core.gyms.registry import unavailable; print(unavailable('webshop'))"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "WebShop is driven through Chromium, and there is none here; install chromium.\n"


SHORT_KINDS = ("fact", "open", "cart", "order", "account")


def test_every_task_of_the_short_tier_is_solved_by_its_gold_solution() -> None:
    every = [one for split in ("train", "validation", "test") for one in tasks("webshop", split, tier="short")]
    assert Counter(one.tier for one in every) == {
        "short-fact": 32,
        "short-open": 16,
        "short-cart": 79,
        "short-account": 63,
        "short-order": 210,
    }
    assert all(one.id.startswith("short-") for one in every)
    assert all(validate(one).ok for one in every)
    with raises("task.bad_option", "'cheapest' in its short tier"):
        tasks("webshop", "train", tier="short", kinds=["cheapest"])
    with raises("task.bad_option", "'tiny'"):
        generate(1, 0, tier="tiny")
    with raises("task.too_few", "900"):  # there are 832
        generate(900, 0, tier="short")


@pytest.mark.parametrize(
    ("actions", "last"),
    [
        (("goto [http://shop/product/3/]", "type [3] [2]"), "1 2 lantern 2 checkout"),
        (
            ("goto [http://shop/product/3]", "type [3] [2]", "goto [http://shop/checkout//]", "type [1] [oslo]"),
            "1 1 orders",
        ),
        (("goto [http://shop/]",), "1 lamps 2 mugs 3 bags 4 clocks 5 cart 6 account"),
        (("goto [http://shop]",), "1 lamps 2 mugs 3 bags 4 clocks 5 cart 6 account"),
        (("goto [http://shopproduct/3]",), "no"),
        (("goto [elsewhere] [http://shop/cart]",), "no"),
    ],
)
async def test_an_address_of_the_short_tier_may_end_in_slashes_and_lies_in_the_shop(
    actions: tuple[str, ...], last: str
) -> None:
    gym = make("webshop", tasks("webshop", "train", tier="short")[0])
    gym.reset(seed=0)
    replies = [(await gym.step(InteractCall("action", action))).observation for action in actions]
    assert replies[-1] == last


async def test_a_page_of_the_short_tier_counts_as_open_whether_or_not_its_address_ended_in_a_slash() -> None:
    one = tasks("webshop", "train", tier="short", kinds=["open"])[0]
    for ending in ("", "/"):
        gym = make("webshop", one)
        gym.reset(seed=0)
        await gym.step(InteractCall("action", f"goto [{one.payload['end']['page']}{ending}]"))
        assert (await gym.step(InteractCall("action", "stop []"))).reward == 1.0


async def test_no_action_of_the_short_tier_raises() -> None:
    rng = Random(0)
    homes = ("http://shop", "http://shop/", "http://shop//", "HTTP://shop/", "http://shopper/", "/", "")
    rooms = ("", "category", "product", "cart", "checkout", "orders", "account", "nowhere")
    ends = ("", "/", "//", "/lamps", "/3", "/3/", "/03", "/-1", "/³", "/99", "/3/4", "?a=1", "#x")
    numbers = ("1", "2", "3", "4", "9", "0", "-1", "01", "²", "", " 1", "lamps")
    texts = ("2", "99", "100", "0", "-1", "²", "", " 3 ", "oslo", "9" * 80)
    one = tasks("webshop", "train", tier="short")[0]

    def action() -> str:
        address = rng.choice(homes) + rng.choice(rooms) + rng.choice(ends)
        return rng.choice(
            [
                f"goto [{address}]",
                f"type [{rng.choice(numbers)}] [{rng.choice(texts)}]",
                f"type [3] [{rng.choice(texts)}] [{rng.choice(numbers)}]",
                f"{rng.choice(['click', 'hover', 'type'])} [{rng.choice(numbers)}]",
                rng.choice(
                    ["go_back", "go_forward", "goto", "goto []", "click", "type", "new_tab", "scroll", "press", ""]
                ),
            ]
        )

    for _ in range(200):
        gym = make("webshop", one)
        gym.reset(seed=0)
        for _ in range(20):
            assert (await gym.step(InteractCall("action", action()))).observation


async def test_a_page_of_the_short_tier_is_one_line_and_the_shop_s_rules_hold_there() -> None:
    one = next(one for one in tasks("webshop", "train", tier="short", kinds=["order"]))
    gym = make("webshop", one)
    gym.reset(seed=0)
    assert gym.brief() == f"{one.payload['words']}\n1 lamps 2 mugs 3 bags 4 clocks 5 cart 6 account"

    async def act(action: str) -> str:
        return (await gym.step(InteractCall("action", action))).observation

    assert await act("click [3]") == "1 sack 2 satchel 3 tote 4 pouch"
    assert (await act("click [2]")).endswith(" 3 count")
    assert (await act("type [3] [2] [0]")).endswith(" 3 count")
    for impossible in (
        "type [1] [2]",
        "click [9]",
        "type [3]",
        "goto [http://shop/product/99]",
        "goto [file:///]",
        "new_tab",
    ):
        assert await act(impossible) == "no"
    assert await act("type [3] [2]") == "1 2 satchel 2 checkout"
    assert (await act("go_back")).endswith(" 3 count")
    assert await act("goto [http://shop/cart]") == "1 2 satchel 2 checkout"
    assert await act("click [2]") == "1 town"
    assert await act("type [1] [cork]") == "1 1 orders"
    ended = await gym.step(InteractCall("action", "stop []"))
    reached = one.payload["words"] == "order 2 satchel cork"
    assert (ended.reward, ended.terminated) == (float(reached), True)


@pytest.mark.parametrize("skill", [1.0, 0.7])
async def test_the_demonstrator_solves_the_short_tier_and_begins_anew_after_a_random_turn(skill: float) -> None:
    some = [one for kind in SHORT_KINDS for one in tasks("webshop", "train", tier="short", kinds=[kind])[:8]]
    played = await run_episodes(some, ScriptedPolicy(skill), horizon=15, concurrency=4)
    if skill == 1.0:
        assert {one.score for one in played} == {1.0}
        assert [len(one.turns) for one in played] == [min_turns(one.task) for one in played]
    else:
        assert sum(one.score or 0.0 for one in played) > len(played) / 2


@pytest.mark.slow
async def test_the_demonstrator_reaches_the_end_state_of_every_kind_in_the_fewest_turns(chromium: None) -> None:
    some = [
        one
        for kind in ("fact", "cheapest", "open", "cart", "order", "account")
        for one in tasks("webshop", "train", kinds=[kind])[:2]
    ]
    played = await run_episodes(some, ScriptedPolicy(1.0), horizon=15, concurrency=4)
    assert {(one.score, one.reject_reason) for one in played} == {(1.0, None)}
    assert [len(one.turns) for one in played] == [min_turns(one.task) for one in played]
    again = await run_episodes(some, ScriptedPolicy(1.0), horizon=15, concurrency=4)
    assert [[t.observation for t in one.turns] for one in played] == [
        [t.observation for t in one.turns] for one in again
    ]
    lost = await run_episodes(some, ScriptedPolicy(0.0), horizon=5, concurrency=4)
    assert {(one.score, one.admitted) for one in lost} == {(0.0, True)}


@pytest.mark.slow
async def test_every_action_of_the_paper_does_what_it_says_and_no_other_site_is_reached(chromium: None) -> None:
    gym = make("webshop", task("cart"))
    opening = await asyncio.to_thread(gym.reset, 0)

    async def act(action: str) -> str:
        return (await gym.step(InteractCall("action", action))).observation

    def number(of: str, page: str) -> str:
        return next(line.split("[")[1].split("]")[0] for line in page.splitlines() if of in line)

    try:
        category = number("link 'Lamps'", opening)
        lamps = await act(f"```click [{category}]```")
        assert lamps.startswith("http://shop/category/lamps\n")
        assert (await act("go_back")).startswith("http://shop/\n")
        assert (await act("go_forward")).startswith("http://shop/category/lamps\n")
        box = number("textbox 'Search'", lamps)
        typed = await act(f"type [{box}] [silk scarf] [0]")
        assert "textbox 'Search' value 'silk scarf'" in typed
        assert typed.startswith("http://shop/category/lamps\n")
        assert (await act("press [Enter]")).startswith("http://shop/search?q=silk+scarf\n")
        assert (await act("new_tab")).startswith("Tab 1 of 2, http://shop/\n")
        assert (await act("goto [http://shop/cart]")).startswith("Tab 1 of 2, http://shop/cart\n")
        assert (await act("tab_focus [0]")).startswith("Tab 0 of 2, http://shop/search?q=silk+scarf\n")
        assert (await act("close_tab")).startswith("http://shop/cart\n")
        for action in ("scroll [down]", f"hover [{number('link', await act('scroll [up]'))}]"):
            assert (await act(action)).startswith("http://shop/cart\n")
        assert (await act("goto [http://127.0.0.1:80/]")).startswith("Only the shop can be reached")
        assert (await act("goto [file:///etc/passwd]")).startswith("Only the shop can be reached")
        assert (await act("click [9999]")).startswith("There is no element [9999] on this page.")
        assert (await act("close_tab")).startswith("That is not possible")
        ended = await gym.step(InteractCall("action", "stop [done]"))
        assert (ended.reward, ended.terminated, ended.info["success"]) == (0.0, True, False)
    finally:
        await gym.aclose()


@pytest.mark.slow
def test_chromium_ends_with_the_process_that_started_it_even_when_that_is_killed(chromium: None) -> None:
    code = (
        "import os, signal; from userrl_core.gyms import make; from userrl_gym_webshop.browser import browser\n"
        "make('webshop').reset(seed=0); print(browser().pid, browser().profile, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    pid, profile = done.stdout.split()
    wait_for(lambda: not is_alive(int(pid)))
    wait_for(lambda: not any(runs(process, profile) for process in psutil.process_iter()))  # its helpers end after it
    shutil.rmtree(profile, ignore_errors=True)
