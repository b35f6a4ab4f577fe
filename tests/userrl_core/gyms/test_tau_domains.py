"""The rules of the retail and airline tools, on a small database (tau_sample)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.makers import raises
from tests.published import published
from tests.userrl_core.gyms import tau_sample
from userrl_core.gyms import load_published, make
from userrl_core.gyms.tau import airline as air
from userrl_core.gyms.tau import retail as shop
from userrl_core.gyms.tau.database import Database
from userrl_core.gyms.tau.tools import ToolError
from userrl_core.gyms.validate import validate
from userrl_core.interact import InteractCall


@pytest.fixture
def retail() -> Database:
    return Database(tau_sample.RETAIL)


@pytest.fixture
def airline() -> Database:
    return Database(tau_sample.AIRLINE)


def balance(db: Database) -> Any:
    user = db.get("users", "ann")
    assert user is not None
    return user["payment_methods"]["gift_card_1"]["balance"]


def gift_card_amount(db: Database) -> Any:
    user = db.get("users", "bo")
    assert user is not None
    return user["payment_methods"]["gift_card_2"]["amount"]


def refused(db: Database, tool: Any, match: str, **arguments: Any) -> None:
    with pytest.raises(ToolError, match=match):
        tool(db, **arguments)
    assert db.changes() == {}


def test_users_are_found_in_any_case(retail):
    assert shop.find_user_id_by_email(retail, "ANN@example.org") == "ann"
    assert shop.find_user_id_by_name_zip(retail, "ann", "LEE", "10000") == "ann"
    refused(retail, shop.find_user_id_by_name_zip, "not found", first_name="Ann", last_name="Lee", zip="1")
    refused(retail, shop.find_user_id_by_email, "not found", email="x")
    assert shop.list_all_product_types(retail) == {"Cup": "p"}


def test_a_cancelled_order_refunds_gift_cards_at_once(retail):
    order = shop.cancel_pending_order(retail, "#G", "ordered by mistake")
    assert (order["status"], order["cancel_reason"], balance(retail)) == ("cancelled", "ordered by mistake", 25.0)
    assert order["payment_history"][1] == {
        "transaction_type": "refund",
        "amount": 10.0,
        "payment_method_id": "gift_card_1",
    }
    with pytest.raises(ToolError, match="non-pending"):
        shop.cancel_pending_order(retail, "#G", "ordered by mistake")


def test_cancelling_needs_a_pending_order_and_a_known_reason(retail):
    refused(retail, shop.cancel_pending_order, "non-pending", order_id="#D", reason="no longer needed")
    refused(retail, shop.cancel_pending_order, "invalid reason", order_id="#P", reason="bored")
    refused(retail, shop.cancel_pending_order, "order not found", order_id="#X", reason="no longer needed")


def test_a_return_goes_to_the_first_payment_or_a_gift_card(retail):
    refused(
        retail,
        shop.return_delivered_order_items,
        "original",
        order_id="#D",
        item_ids=["a"],
        payment_method_id="paypal_1",
    )
    refused(
        retail,
        shop.return_delivered_order_items,
        "item b",
        order_id="#D",
        item_ids=["b", "b"],
        payment_method_id="gift_card_1",
    )
    order = shop.return_delivered_order_items(retail, "#D", ["b", "a"], "gift_card_1")
    assert (order["status"], order["return_items"]) == ("return requested", ["a", "b"])


def test_an_exchange_needs_available_items_of_the_product_and_a_covered_difference(retail):
    def exchange(**kwargs: Any) -> Any:
        return shop.exchange_delivered_order_items(retail, order_id="#D", **kwargs)

    for match, old, new, method in (
        ("should match", ["a"], ["b", "b"], "credit_card_1"),
        ("not found or available", ["a"], ["d"], "credit_card_1"),
        ("not found or available", ["a"], ["z"], "credit_card_1"),
        ("insufficient", ["a"], ["c"], "gift_card_1"),
        ("payment method not found", ["a"], ["b"], "gift_card_9"),
    ):
        with pytest.raises(ToolError, match=match):
            exchange(item_ids=old, new_item_ids=new, payment_method_id=method)
    assert retail.changes() == {}
    order = exchange(item_ids=["a", "a"], new_item_ids=["b", "b"], payment_method_id="gift_card_1")
    assert (order["status"], order["exchange_price_difference"], balance(retail)) == ("exchange requested", 5.0, 15)


def test_items_of_a_pending_order_are_changed_once_and_paid(retail):
    order = shop.modify_pending_order_items(retail, "#P", ["a"], ["b"], "gift_card_1")
    assert [item["item_id"] for item in order["items"]] == ["b", "b"]
    assert (order["payment_history"][1]["transaction_type"], order["payment_history"][1]["amount"]) == ("payment", 2.5)
    assert (balance(retail), order["status"]) == (12.5, "pending (item modified)")
    with pytest.raises(ToolError, match="non-pending"):
        shop.modify_pending_order_items(retail, "#P", ["b"], ["a"], "gift_card_1")


def test_a_payment_is_charged_to_another_method_that_covers_it(retail):
    refused(retail, shop.modify_pending_order_payment, "insufficient", order_id="#P", payment_method_id="gift_card_1")
    refused(retail, shop.modify_pending_order_payment, "different", order_id="#P", payment_method_id="credit_card_1")
    order = shop.modify_pending_order_payment(retail, "#G", "paypal_1")
    assert [row["transaction_type"] for row in order["payment_history"]] == ["payment", "payment", "refund"]
    assert balance(retail) == 25.0
    with pytest.raises(ToolError, match="exactly one payment"):
        shop.modify_pending_order_payment(retail, "#G", "credit_card_1")


def test_addresses_of_orders_and_users_are_replaced_whole(retail):
    new = {**tau_sample.ADDRESS, "city": "Y"}
    assert shop.modify_pending_order_address(retail, "#P", **new)["address"] == new
    assert shop.modify_user_address(retail, "ann", **new)["address"] == new
    with pytest.raises(ToolError):
        shop.modify_pending_order_address(retail, "#D", **new)


def test_flights_are_found_direct_and_with_one_change(airline):
    direct = air.search_direct_flight(airline, "SFO", "JFK", "2024-05-20")
    assert [(f["flight_number"], f["prices"]["economy"]) for f in direct] == [("F4", 100)]
    assert air.search_direct_flight(airline, "SFO", "JFK", "2024-05-22") == []
    pairs = air.search_onestop_flight(airline, "SFO", "JFK", "2024-05-20")
    assert [[f["flight_number"] for f in pair] for pair in pairs] == [["F1", "F2"], ["F3", "F2"]]


def test_after_a_night_flight_the_connection_shows_the_next_days_prices(airline):
    # The released search shows those of the day before; recorded conversations differ from ours in this point alone.
    overnight = air.search_onestop_flight(airline, "SFO", "JFK", "2024-05-20")[1]
    assert (overnight[1]["date"], overnight[1]["prices"]["economy"]) == ("2024-05-21", 2)


def booking(**changes: Any) -> dict[str, Any]:
    arguments = {
        "user_id": "bo", "origin": "SFO", "destination": "DEN", "flight_type": "one_way", "cabin": "economy",
        "flights": [{"flight_number": "F1", "date": "2024-05-20"}],
        "passengers": [{"first_name": "Bo", "last_name": "Ray", "dob": "1990-01-01"}],
        "payment_methods": [{"payment_id": "certificate_2", "amount": 80}, {"payment_id": "gift_card_2", "amount": 100}],
        "total_baggages": 1, "nonfree_baggages": 1, "insurance": "yes",
    }  # fmt: skip
    return {**arguments, **changes}


def test_a_booking_costs_fares_bags_and_insurance_and_uses_up_certificates(airline):
    reservation = air.book_reservation(airline, **booking())
    assert (reservation["reservation_id"], reservation["flights"][0]["price"], reservation["created_at"]) == (
        "HATHAT",
        100,
        air.NOW,
    )
    user = airline.get("users", "bo")
    assert user is not None
    assert (sorted(user["payment_methods"]), gift_card_amount(airline)) == (["credit_card_2", "gift_card_2"], 20)
    assert user["reservations"] == ["R1", "HATHAT"]
    paid = [{"payment_id": "credit_card_2", "amount": 180}]
    assert air.book_reservation(airline, **booking(payment_methods=paid))["reservation_id"] == "HATHAU"


def test_a_certificate_that_is_named_twice_is_used_up_without_a_booking(airline):
    twice = [{"payment_id": "certificate_2", "amount": 50}] * 2
    with pytest.raises(ToolError, match="certificate_2 not found"):
        air.book_reservation(airline, **booking(payment_methods=twice, nonfree_baggages=0, insurance="no"))
    user = airline.changes()["users/bo"]
    assert (sorted(user["payment_methods"]), user["reservations"]) == (["credit_card_2", "gift_card_2"], ["R1"])


def test_a_booking_that_does_not_add_up_changes_nothing(airline):
    card = [{"payment_id": "credit_card_2", "amount": 1}]
    refused(
        airline,
        air.book_reservation,
        "does not add up, total price is 180, but paid 1",
        **booking(payment_methods=card),
    )
    much = [{"payment_id": "gift_card_2", "amount": 180}]
    refused(airline, air.book_reservation, "not enough balance", **booking(payment_methods=much))
    refused(airline, air.book_reservation, "not enough seats", **booking(cabin="basic_economy"))
    away = [{"flight_number": "F1", "date": "2024-05-22"}]
    refused(airline, air.book_reservation, "not available", **booking(flights=away))
    refused(
        airline, air.book_reservation, "flight F9 not found", **booking(flights=[{"flight_number": "F9", "date": "x"}])
    )


def test_a_cancellation_refunds_every_payment(airline):
    cancelled = air.cancel_reservation(airline, "R1")
    assert (cancelled["status"], [p["amount"] for p in cancelled["payment_history"]]) == ("cancelled", [70, -70])


def test_changed_flights_keep_the_price_of_segments_in_the_same_cabin(airline):
    same = air.update_reservation_flights(
        airline, "R1", "economy", [{"flight_number": "F1", "date": "2024-05-20"}], "gift_card_2"
    )
    assert (same["flights"][0]["price"], len(same["payment_history"]), gift_card_amount(airline)) == (70, 1, 120)
    up = air.update_reservation_flights(
        airline, "R1", "business", [{"flight_number": "F1", "date": "2024-05-20"}], "credit_card_2"
    )
    assert (up["flights"][0]["price"], up["payment_history"][-1]["amount"], up["cabin"]) == (300, 230, "economy")


def test_changes_are_not_charged_to_certificates_nor_beyond_a_gift_cards_balance(airline):
    flights = [{"flight_number": "F1", "date": "2024-05-20"}]
    for match, method in (("certificate", "certificate_2"), ("not enough", "gift_card_2"), ("not found", "nothing")):
        change = {"reservation_id": "R1", "cabin": "business", "flights": flights, "payment_id": method}
        refused(airline, air.update_reservation_flights, match, **change)
    more = air.update_reservation_baggages(airline, "R1", 3, 2, "gift_card_2")
    assert (more["nonfree_baggages"], gift_card_amount(airline), more["payment_history"][-1]["amount"]) == (2, 20, 100)


def test_passengers_are_replaced_by_as_many(airline):
    refused(airline, air.update_reservation_passengers, "number of passengers", reservation_id="R1", passengers=[])
    new = [{"first_name": "Cy", "last_name": "Ray", "dob": "1991-01-01"}]
    assert air.update_reservation_passengers(airline, "R1", new)["passengers"] == new


def test_at_most_three_certificates_can_be_sent(airline):
    results = [air.send_certificate(airline, "bo", 50) for _ in range(3)]
    assert results[2] == "Certificate certificate_3221324 added to user bo with amount 50."
    with pytest.raises(ToolError, match="too many"):
        air.send_certificate(airline, "bo", 50)


def test_a_copy_of_the_published_layout_loads_with_its_splits_and_is_validated(tmp_path):
    loaded = load_published("tau", tau_sample.write(tmp_path))
    assert [(task.id, task.split) for task in loaded] == [
        ("retail-train-000", "train"),
        ("retail-dev-000", "validation"),
        ("retail-000", "test"),
        ("retail-001", "test"),
        ("airline-000", "test"),
    ]
    results = [validate(task) for task in loaded]
    assert [result.ok for result in results] == [True, True, True, False, True]
    assert "non-pending order cannot be cancelled" in results[3].reason


async def called(gym: Any, name: str, **arguments: Any) -> str:
    content = json.dumps({"name": name, "arguments": arguments})
    return str((await gym.step(InteractCall("answer", content))).observation)


async def test_published_domains_execute_calls_outside_the_schema_and_a_tools_exception_is_an_error(tmp_path):
    task = load_published("tau", tau_sample.write(tmp_path))[-1]
    for store in ("memory", "sqlite"):
        gym = make("tau", task, store=store)
        gym.reset(seed=0)
        odd = booking(total_baggages="1", insurance="maybe", flight_type=3, payment_methods=[])
        assert (await called(gym, "book_reservation", **odd)).startswith(
            "Error: payment amount does not add up, total price is 150"
        )
        odd["payment_methods"] = [{"payment_id": "credit_card_2", "amount": 150}]
        booked = json.loads(await called(gym, "book_reservation", **odd))
        assert (booked["total_baggages"], booked["insurance"], booked["flight_type"]) == ("1", "maybe", 3)
        assert await called(gym, "book_reservation", **{**odd, "nonfree_baggages": "1"}) == (
            "Error: unsupported operand type(s) for +: 'int' and 'str'"
        )
        assert (
            await called(gym, "book_reservation", **{**odd, "cabin": "First"}) == "Error: not enough seats on flight F1"
        )
        assert await called(gym, "get_user_details", user_id=None) == "Error: user not found"
        assert "unexpected keyword argument 'db2'" in await called(gym, "get_user_details", user_id="bo", db2=1)
        assert "missing 1 required" in await called(gym, "get_user_details")
        assert "invalid literal" in await called(
            gym, "search_onestop_flight", origin="SFO", destination="JFK", date="today"
        )
        assert list(gym.database.changes()) == ["reservations/HATHAT", "users/bo"]


async def test_a_transfer_ends_a_published_task_whatever_its_arguments(tmp_path):
    gym = make("tau", load_published("tau", tau_sample.write(tmp_path))[1], check_outputs=False)
    gym.reset(seed=0)
    result = await gym.step(InteractCall("answer", 'transfer_to_human_agents: {"reason": "x"}'))
    assert (result.terminated, result.reward) == (True, 1.0)
    assert result.observation.startswith("Error: ")


async def test_the_config_can_name_another_folder_of_the_database(tmp_path):
    tasks = load_published("tau", tau_sample.write(tmp_path / "here"))
    other = tau_sample.write(tmp_path / "there") / "retail"
    gym = make("tau", tasks[0], database=str(other))
    gym.reset(seed=0)
    assert gym.domain.base is not make("tau", tasks[0]).domain.base
    call = json.dumps({"name": "get_order_details", "arguments": {"order_id": "#P"}})
    assert json.loads((await gym.step(InteractCall("answer", call))).observation)["status"] == "pending"


def test_userrl_rows_have_their_own_openings_and_use_the_database_next_to_them(tmp_path):
    tau_sample.write(tmp_path / "tau-bench")
    folder = tmp_path / "userrl/gyms/TauGym/taugym/data"
    folder.mkdir(parents=True)
    task = json.loads((tmp_path / "tau-bench/retail/tasks_train.json").read_text())[0]
    row = {"id": "retail-train-000", "obs": "Hello there!", "info": {"task": task}}
    (folder / "tau_train.json").write_text(json.dumps([row]))
    (folder / "tau_test.json").write_text(json.dumps([{**row, "id": "retail-000"}]))
    loaded = load_published("tau", tmp_path / "userrl")
    assert [(t.id, t.payload["opening"]) for t in loaded] == [
        ("retail-train-000", "Hello there!"),
        ("retail-000", "Hello there!"),
    ]
    assert all(validate(t).ok for t in loaded)
    (folder / "tau_test.json").write_text(json.dumps([{**row, "info": None}]))
    with raises("task.invalid_field", "tau_test.json, entry 0", "'instruction'"):
        load_published("tau", tmp_path / "userrl")


def test_the_released_userrl_rows_are_the_tau_bench_tasks_with_openings():
    ours = {task.id: task.payload for task in load_published("tau", published("tau-bench"))}
    theirs = load_published("tau", published("userrl"))
    assert len(theirs) == 665
    for task in theirs:
        for field in ("instruction", "actions", "outputs", "unprovable"):
            assert task.payload[field] == ours[task.id][field], (task.id, field)
