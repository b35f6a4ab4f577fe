"""The outfitter: a shop of our own to train on, its laptop tier, and the two verdicts on a conversation."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from tests.makers import raises
from userrl_core.gyms import make, min_turns, tasks
from userrl_core.gyms.registry import generate
from userrl_core.gyms.tau import retail
from userrl_core.gyms.tau.gym import TauGym, conversation
from userrl_core.gyms.tau.outfitter import tiny
from userrl_core.gyms.tau.tasks import load_domain
from userrl_core.gyms.tau.tools import TRANSFER
from userrl_core.gyms.tau.verifier import replay
from userrl_core.gyms.validate import validate_async
from userrl_core.interact import InteractCall
from userrl_core.records import Task

SPLITS = ("train", "validation", "test")
TINY: dict[str, Any] = {"domain": "outfitter", "tier": "tiny"}


def every_task(**options: Any) -> list[Task]:
    return [task for split in SPLITS for task in tasks("tau", split, **(options or {"domain": "outfitter"}))]


async def played(task: Task, *calls: tuple[str, str], **config: Any) -> tuple[TauGym, list[tuple[str, float | None]]]:
    gym: Any = make("tau", task, **config)
    gym.reset(seed=0)
    results = [await gym.step(InteractCall(*call)) for call in calls]
    return gym, [(result.observation, result.reward) for result in results]


def tool(name: str, **arguments: Any) -> tuple[str, str]:
    return "answer", json.dumps({"name": name, "arguments": arguments})


ORDER = Task(
    "tau",
    "t0",
    "train",
    {
        "domain": tiny.DOMAIN,
        "database": None,
        "tables": {
            "items": {
                "hat": {"status": "open"},
                "coat": {"status": "sent"},
                "belt": {"status": "sent"},
            }
        },
        "opening": "hello",
        "instruction": "You want to give up these items that you ordered: hat, coat.",
        "wanted": ["hat", "coat"],
        "actions": [
            {"name": "look", "kwargs": {"item": "hat"}},
            {"name": "cancel", "kwargs": {"item": "hat"}},
            {"name": "refund", "kwargs": {"item": "coat"}},
        ],
        "outputs": [],
        "unprovable": "",
    },
)


def test_there_are_more_than_five_hundred_training_tasks_and_held_out_ones_of_their_own() -> None:
    by_split = {split: {task.id for task in tasks("tau", split, domain="outfitter")} for split in SPLITS}
    assert {split: len(ids) for split, ids in by_split.items()} == {"train": 911, "validation": 44, "test": 245}
    assert len({task.payload["instruction"] for task in every_task()}) == 1200
    assert generate("tau", 20, 5, domain="outfitter") == generate("tau", 20, 5, domain="outfitter")


async def test_every_task_is_solved_by_its_gold_writes_which_all_succeed_and_by_no_fewer() -> None:
    domain = load_domain("outfitter", None)
    for task in every_task():
        gold = replay(domain, task.payload["actions"])
        assert gold.errors == []
        assert gold.writes
        assert gold.database.changes()
        assert (await validate_async(task)).ok


def test_commands_that_know_tiers_alone_reach_both_tiers() -> None:
    assert generate("tau", 3, 1, tier="outfitter") == generate("tau", 3, 1, domain="outfitter")
    assert {task.payload["domain"] for task in generate("tau", 3, 1, tier="tiny")} == {tiny.DOMAIN}
    assert tasks("tau", "test", tier="bikes") == tasks("tau", "test")


def test_its_tools_are_retails_and_every_one_that_changes_something_is_asked_for() -> None:
    domain = load_domain("outfitter", None)
    assert domain.tools is retail.TOOLS
    assert {schema["function"]["name"] for schema in domain.schemas} == set(domain.tools)
    asked = Counter(action["name"] for task in every_task() for action in task.payload["actions"])
    assert domain.writes <= asked.keys()
    assert min(asked[name] for name in domain.writes) >= 40


async def test_the_same_writes_in_another_order_are_right_and_one_more_is_wrong() -> None:
    task = next(t for t in every_task() if sum(a["name"] in retail.WRITES for a in t.payload["actions"]) == 2)
    writes = [tool(a["name"], **a["kwargs"]) for a in task.payload["actions"] if a["name"] in retail.WRITES]
    over = tool(TRANSFER, summary="done")
    _, results = await played(task, *reversed(writes), over)
    assert results[-1][1] == 1.0
    where = dict.fromkeys(("address1", "address2", "city", "state", "country", "zip"), "x")
    customer = next(iter(load_domain("outfitter", None).base["users"]))
    gym, results = await played(task, *writes, tool("modify_user_address", user_id=customer, **where), over)
    assert (results[-1][1], gym.verdict().writes) == (0.0, False)


async def test_a_write_that_fails_counts_on_neither_side() -> None:
    calls = [("answer", text) for text in ("cancel nothing", "cancel hat", "cancel hat", "refund coat")]
    _, results = await played(ORDER, ("action", "what"), *calls, ("action", "done"))
    assert [text for text, _ in results] == [
        "hat,coat",
        "no",
        "ok",
        "no",
        "ok",
        "The customer has ended the conversation.",
    ]
    assert results[-1][1] == 1.0
    failing = Task(
        "tau", "t1", "train", {**ORDER.payload, "actions": [*ORDER.payload["actions"], ORDER.payload["actions"][1]]}
    )
    gold = replay(load_domain(tiny.DOMAIN, None), failing.payload["actions"], failing.payload["tables"])
    assert (len(gold.writes), len(gold.errors)) == (2, 1)
    assert (await played(failing, *[("action", "what")], *calls, ("action", "done")))[1][-1][1] == 1.0


async def test_both_verdicts_are_recorded_and_the_config_says_which_is_paid() -> None:
    """Changed and changed back: the state is right, the writes are not."""
    base = load_domain("outfitter", None).base
    customer, record = next(iter(base["users"].items()))
    home, away = record["address"], {**record["address"], "address1": "elsewhere"}
    payload = {
        "domain": "outfitter", "database": None, "opening": "Hi", "instruction": "You are somebody.", "unprovable": "",
        "actions": [], "outputs": ["never told"],
    }  # fmt: skip
    task = Task("tau", "t2", "train", payload)
    calls = [tool("modify_user_address", user_id=customer, **where) for where in (away, home)]
    for config, reward in (
        ({}, 0.0), ({"verifier": "database"}, 0.0), ({"verifier": "database", "check_outputs": False}, 1.0)
    ):  # fmt: skip
        gym: Any = make("tau", task, **config)
        gym.reset(seed=0)
        for call in calls:
            await gym.step(InteractCall(*call))
        last = await gym.step(InteractCall(*tool(TRANSFER, summary="s")))
        assert (last.reward, last.info["writes_right"], last.info["database_right"]) == (reward, False, True)
        assert last.info["outputs_missing"] == 1


async def test_on_the_tiny_tier_what_was_sent_must_be_refunded_which_only_a_look_tells() -> None:
    gym, results = await played(
        ORDER,
        ("action", "what"),
        ("answer", "look hat"),
        ("answer", "cancel hat"),
        ("answer", "look coat"),
        ("answer", "refund coat"),
        ("action", "done"),
    )
    assert [text for text, _ in results[:5]] == ["hat,coat", "open", "ok", "sent", "ok"]
    assert gym.succeeded
    gambled, results = await played(
        ORDER, ("action", "what"), ("answer", "cancel hat"), ("answer", "cancel coat"), ("action", "done")
    )
    assert (results[2][0], results[-1][1], gambled.succeeded) == ("ok", 0.0, False)


async def test_a_tiny_customer_says_what_it_wants_before_it_can_be_told_that_all_is_done() -> None:
    _, results = await played(
        ORDER, ("action", "done"), ("action", "and?"), ("search", "tools"), ("answer", "open hat")
    )
    assert [text for text, _ in results] == ["hat,coat", "hat,coat", "look cancel refund", "no"]


def test_tiny_tasks_take_four_or_six_turns_and_are_solved_by_three_tools() -> None:
    pool = every_task(**TINY)
    assert Counter(min_turns(task) for task in pool) == {4: 96, 6: 900}
    assert len(tasks("tau", "train", **TINY)) > 700
    assert {call.content.split()[0] for task in pool for call in conversation(task) if call.choice == "answer"} == {
        "look", "cancel", "refund",
    }  # fmt: skip
    assert len({json.dumps(task.payload["actions"]) for task in pool}) == len(pool)


def test_a_wrong_tier_or_size_is_refused_with_those_there_are() -> None:
    with raises("task.bad_option", "'tiny'"):
        tasks("tau", "train", domain="bikes", tier="tiny")
    with raises("task.bad_option"):
        tasks("tau", "train", **TINY, sizes=[7])
