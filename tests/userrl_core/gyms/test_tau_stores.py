"""The two stores of an episode's records: both answer alike, and SQLite holds every record in tables of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.published import published
from tests.userrl_core.gyms import tau_sample
from userrl_core.gyms import load_published, make, tasks
from userrl_core.gyms.tau.relational import SqliteDatabase, Template
from userrl_core.gyms.tau.stores import open_database
from userrl_core.gyms.tau.tasks import load_domain
from userrl_core.gyms.tau.tools import Domain, ToolError
from userrl_core.gyms.tau.verifier import replay
from userrl_core.gyms.validate import validate_async
from userrl_core.records import Task

OURS = ("outfitter", "bikes")


def answers(domain: Domain, folder: str | None, task: Task, store: Any) -> tuple[list[Any], dict[str, Any], str]:
    """What the gold calls give, the changed records, and the digest."""
    database = open_database(domain, folder, task.payload.get("tables", domain.base), store)
    results = []
    for action in task.payload["actions"]:
        try:
            results.append(domain.call(database, action["name"], action["kwargs"]))
        except ToolError as error:
            results.append(str(error))
    changes, digest = database.changes(), database.digest()
    database.close()
    return results, changes, digest


@pytest.mark.parametrize("name", OURS)
def test_both_stores_answer_every_gold_call_alike_and_end_in_the_same_state(name: str) -> None:
    domain = load_domain(name, None)
    for task in tasks("tau", "test", domain=name)[:40]:
        assert answers(domain, None, task, "sqlite") == answers(domain, None, task, "memory")


@pytest.mark.parametrize("name", OURS)
def test_every_record_of_ours_comes_back_from_its_tables_as_it_was(name: str) -> None:
    domain = load_domain(name, None)
    database = open_database(domain, None, domain.base, "sqlite")
    for table, records in domain.base.items():
        assert json.dumps(dict(database.rows(table))) == json.dumps(records)
        for key in list(records)[::25]:
            assert database.get(table, key) == records[key]
    assert (database.get("bikes" if name == "bikes" else "orders", "none"), database.changes()) == (None, {})


def test_the_tables_are_relational_and_can_be_asked_in_sql() -> None:
    domain = load_domain("outfitter", None)
    database = open_database(domain, None, domain.base, "sqlite")
    assert isinstance(database, SqliteDatabase)
    text = """SELECT count(*), round(sum(i.price), 2) FROM orders o JOIN orders_items i USING (orders_key)
              WHERE o.status = 'pending'"""
    items = [
        item for order in domain.base["orders"].values() if order["status"] == "pending" for item in order["items"]
    ]
    assert database.connection.execute(text).fetchone() == (len(items), round(sum(item["price"] for item in items), 2))


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(["user_id", "status", "items", "address", "payment_history", "note"]), VALUES)
def test_whatever_a_tool_writes_into_a_record_is_read_again(name: str, value: Any) -> None:
    database = SqliteDatabase(Template(tau_sample.RETAIL))
    database.edit("orders", "#P")[name] = value
    database.commit()
    assert database.get("orders", "#P") == {**tau_sample.RETAIL["orders"]["#P"], name: value}
    database.edit("orders", "#P").pop(name)
    database.commit()
    assert database.get("orders", "#P") == {k: v for k, v in tau_sample.RETAIL["orders"]["#P"].items() if k != name}


def test_fields_with_clashing_or_strange_names_come_back_as_they_were() -> None:
    record = {
        "other": 1, "orders_key": "k", "Name": "a", "name": "b", "address": {"city": "x"}, "address_city": "y",
        'a"quote': 2, "nothing": {}, "nul\x00": 3, "items": [{"id": 1}],
    }  # fmt: skip
    tables = {"orders": {"1": record, "2": {"nothing": {}}}, "orders_items": {"1": {"a": 1}}, "Orders": {"1": {"b": 2}}}
    database = SqliteDatabase(Template(tables))
    assert {table: dict(database.rows(table)) for table in tables} == tables
    database.edit("orders", "1")["nothing"] = {"now": 1}
    assert database.changes() == {"orders/1": {**record, "nothing": {"now": 1}}}
    database.close()


def test_records_keep_their_places_and_new_ones_come_last() -> None:
    database = SqliteDatabase(Template(tau_sample.AIRLINE))
    database.edit("flights", "F1")["origin"] = "BOS"
    database.add("flights", "F9", {"flight_number": "F9", "origin": "LAX"})
    assert [key for key, _ in database.rows("flights")] == ["F1", "F2", "F3", "F4", "F9"]
    assert set(database.changes()) == {"flights/F1", "flights/F9"}
    assert database.get("flights", "F9") == {"flight_number": "F9", "origin": "LAX"}


async def test_a_gym_on_sqlite_reaches_full_score_with_the_gold_solution() -> None:
    for options in ({"domain": "outfitter"}, {"domain": "outfitter", "tier": "tiny"}, {"domain": "bikes"}):
        for task in tasks("tau", "test", **options)[:5]:
            assert (await validate_async(task, {"store": "sqlite"})).ok


def test_two_episodes_on_sqlite_do_not_see_each_others_writes() -> None:
    task = tasks("tau", "test", domain="outfitter", tier="tiny")[0]
    one, two = (make("tau", task, store="sqlite") for _ in range(2))
    one.domain.call(one.database, "cancel", {"item": task.payload["wanted"][0]})
    assert (len(one.database.changes()), two.database.changes()) == (1, {})


@pytest.mark.slow
def test_both_stores_answer_alike_on_every_published_task() -> None:
    for task in load_published("tau", published("tau-bench")):
        folder = task.payload["database"]
        domain = load_domain(task.tier, folder)
        (ours, changes, digest), (theirs, other, known) = (
            answers(domain, folder, task, store) for store in ("sqlite", "memory")
        )
        assert [read(text) for text in ours] == [read(text) for text in theirs], task.id
        assert (changes, digest) == (other, known)
        assert replay(domain, task.payload["actions"]).database.digest() == digest


def read(text: str) -> Any:
    """JSON where it is, so that the order of a record's fields does not matter."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
