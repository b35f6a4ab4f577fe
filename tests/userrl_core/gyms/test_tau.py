"""TauGym in our own domain: rewards, endings, tool calls, and its users."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.makers import raises
from tests.mock_server import Answer, MockServer, prompt_text
from userrl_core.gyms import make, tasks
from userrl_core.gyms.tau.database import Database
from userrl_core.gyms.tau.gym import TauConfig, TauGym, conversation
from userrl_core.gyms.tau.rule_user import first_person
from userrl_core.gyms.tau.tasks import load_domain
from userrl_core.gyms.tau.tools import TRANSFER, ToolError, calculate, read_call
from userrl_core.gyms.tau.verifier import replay
from userrl_core.gyms.validate import validate
from userrl_core.interact import InteractCall
from userrl_core.records import Task
from userrl_core.served.client import close_clients


class ScriptedUser:
    """A customer with given replies."""

    def __init__(self, *replies: str) -> None:
        self._replies = list(replies)

    async def reply(self, message: str) -> str:
        return self._replies.pop(0)


def every_task() -> list[Task]:
    return [task for split in ("train", "validation", "test") for task in tasks("tau", split)]


def ending_with(tool: str) -> Task:
    return next(t for t in every_task() if t.payload["actions"][-1]["name"] == tool and t.payload["outputs"])


def started(task: Task | None = None, user: object = "rule", **config: object) -> TauGym:
    gym = make("tau", task or every_task()[0], user, **config)
    gym.reset(seed=0)
    return gym


def tool_call(name: str, **arguments: object) -> InteractCall:
    return InteractCall("answer", json.dumps({"name": name, "arguments": arguments}))


async def execute_gold(gym: TauGym, task: Task) -> None:
    """The gold actions, without a message."""
    for action in task.payload["actions"]:
        await gym.step(tool_call(action["name"], **action["kwargs"]))


def test_no_task_of_ours_is_solved_by_doing_nothing():
    for task in every_task():
        changed = replay(load_domain("bikes", None), task.payload["actions"])[0].changes()
        assert changed or task.payload["outputs"], task.payload["instruction"]


async def test_the_policy_is_in_the_opening_and_in_the_help():
    gym = make("tau", every_task()[0])
    rule = "can be moved to another day, but not cancelled"
    assert rule in gym.reset(seed=0)
    assert rule in (await gym.step(InteractCall("search", " HELP "))).observation
    short = make("tau", every_task()[0], policy_in_opening=False)
    assert short.reset(seed=0) == "Hello, I need some help with my bike rental."


async def test_the_tools_are_listed_with_their_arguments():
    listed = (await started().step(InteractCall("search", "tools"))).observation
    names = {json.loads(line)["name"] for line in listed.splitlines()}
    assert {"get_booking", "book_bike", TRANSFER} <= names
    assert names == set(load_domain("bikes", None).tools)


async def test_the_tools_are_listed_once():
    gym = started()
    shown = [(await gym.step(InteractCall("search", "tools"))).observation for _ in range(2)]
    assert shown[0].startswith("{")
    assert shown[1] == "The tools were shown before. Read them there."


async def test_the_only_reward_is_one_at_the_end():
    task = ending_with("set_days")
    gym = started(task, ScriptedUser("Great. ##STOP##"))
    await execute_gold(gym, task)
    assert set(gym.rewards) == {0.0}
    result = await gym.step(InteractCall("action", f"It is {task.payload['outputs'][0]} coins."))
    assert (result.reward, result.terminated, gym.succeeded, result.observation) == (1.0, True, True, "Great.")


@pytest.mark.parametrize("reply", ["###STOP###", "##STOP##", "Bye ###STOP### now"])
async def test_both_stop_tokens_end_the_episode_and_are_not_shown(reply):
    result = await started(user=ScriptedUser(reply)).step(InteractCall("action", "Hello."))
    assert result.terminated
    assert "STOP" not in result.observation


async def test_the_reasoning_of_a_served_customer_is_neither_shown_nor_searched_for_a_stop_token():
    replies = [
        "<think>My secret is B100. I must not say ###STOP### yet.</think> Hi",
        "The template opened this thought: ##STOP##? No.\n</think>\n\nGo on.",
        "<think>Now.</think>\n\n###STOP###",
    ]
    with MockServer(lambda body: Answer(replies[len(body["messages"]) // 2 - 2])) as server:
        gym = started(user=("openai", {"base_url": server.base_url, "retries": 0}))
        results = [await gym.step(InteractCall("action", text)) for text in ("Hello.", "And?", "Fine.")]
        last_prompt = server.texts()[-1]
        await close_clients()
    assert [(r.observation, r.terminated) for r in results[:2]] == [("Hi", False), ("Go on.", False)]
    assert results[2].terminated
    assert "secret" not in last_prompt, "the conversation of the customer holds no reasoning either"


async def test_a_missing_output_costs_the_reward_unless_outputs_are_not_checked():
    task = ending_with("set_days")
    for config, expected in (({}, 0.0), ({"check_outputs": False}, 1.0)):
        gym = started(task, ScriptedUser("###STOP###"), **config)
        await execute_gold(gym, task)
        result = await gym.step(InteractCall("action", "Done."))
        assert (result.reward, result.info["outputs_missing"], result.info["database_right"]) == (expected, 1, True)


async def test_outputs_match_up_to_commas_and_case_and_only_in_messages_to_the_user():
    task = every_task()[0]
    payload = {**task.payload, "actions": [], "outputs": ["1,250 Coins"]}
    output_task = Task("tau", "x", "test", payload)
    in_message = started(output_task, ScriptedUser("###STOP###"))
    assert (await in_message.step(InteractCall("action", "That makes 1250 coins."))).reward == 1.0
    elsewhere = started(output_task, ScriptedUser("###STOP###"))
    await elsewhere.step(tool_call("think", thought="1250 coins"))
    await elsewhere.step(InteractCall("search", "1250 coins"))
    assert (await elsewhere.step(InteractCall("action", "Bye."))).reward == 0.0


async def test_a_wrong_extra_write_costs_the_reward():
    task = ending_with("set_days")
    gym = started(task, ScriptedUser("###STOP###"))
    await execute_gold(gym, task)
    other = next(key for key, b in gym.database.rows("bookings") if b["status"] == "booked" and b["insurance"] == "no")
    await gym.step(tool_call("move_booking", booking_id=other, date="2027-01-01"))
    result = await gym.step(InteractCall("action", task.payload["outputs"][0]))
    assert (result.reward, result.info["database_right"]) == (0.0, False)


async def test_a_transfer_ends_the_episode_and_is_scored_like_a_stop():
    gym = started()
    result = await gym.step(tool_call(TRANSFER, summary="too hard"))
    assert (result.terminated, result.reward, gym.succeeded) == (True, 0.0, False)


@pytest.mark.parametrize(
    "content",
    [
        "", "null", "[]", "{", '"get_booking"', '{"name": 3}', '{"name": "get_booking"}', "{" * 5000,
        '{"name": "get_booking", "arguments": []}',
        '{"name": "get_booking", "arguments": {"booking_id": 7}}',
        '{"name": "get_booking", "arguments": {"booking_id": "B100", "db": "x"}}',
        '{"name": "get_booking", "arguments": {"booking_id": "nowhere"}}',
        '{"name": "__class__", "arguments": {}}',
        '{"name": "set_days", "arguments": {"booking_id": "B100", "days": -1}}',
        '{"name": "calculate", "arguments": {"expression": "__import__(\'os\').getcwd()"}}',
    ],
)  # fmt: skip
async def test_an_invalid_tool_call_is_an_error_message_and_changes_nothing(content):
    gym = started()
    result = await gym.step(InteractCall("answer", content))
    assert result.observation.startswith("Error: ")
    assert (result.reward, result.terminated, gym.database.changes()) == (0.0, False, {})


def test_calculate_evaluates_arithmetic_only():
    db = Database({})
    assert calculate(db, "3 * (14 + 4) - 1 / 4") == "53.75"
    assert calculate(db, "2 ** 3 + 7 // 2") == "11.0"
    for expression in ("9**9**9", "1/0", "abs(1)", "(" * 150, "1" * 300, "True", "'a'*9", "1e3", "1(2)", "(-8) ** .5"):
        with pytest.raises(ToolError):
            calculate(db, expression)


def test_kwargs_is_accepted_in_place_of_arguments():
    assert read_call('{"name": "x", "kwargs": {"a": 1}}') == ("x", {"a": 1})


def test_a_call_may_be_a_name_and_its_arguments_as_in_userrl():
    assert read_call(' get_booking : {"booking_id": "B1:2"} ') == ("get_booking", {"booking_id": "B1:2"})
    for content in ("get_booking: B100", "get_booking: [1]", "get_booking:", "get_booking"):
        with pytest.raises(ToolError):
            read_call(content)


@pytest.mark.parametrize(
    "value", ["1" * 30, "1" * 5_000, "1e999", "NaN", '"\\ud800"', "[" * 300 + "]" * 300, "[" * 2_000, '"\x00"']
)
async def test_no_value_that_a_record_could_not_hold_reaches_a_tool(value: str):
    gym = started()
    for name, argument in (("think", "thought"), ("set_days", "days")):
        result = await gym.step(InteractCall("answer", f'{{"name": "{name}", "arguments": {{"{argument}": {value}}}}}'))
        assert (result.reward, result.info.get("tool_error")) == (0.0, True)


async def test_episodes_share_the_base_and_do_not_see_each_others_writes():
    task = ending_with("cancel_booking")
    before = json.dumps(load_domain("bikes", None).base)
    changed, other = started(task), started(task)
    await execute_gold(changed, task)
    assert changed.database.changes()
    assert other.database.changes() == {}
    assert json.dumps(load_domain("bikes", None).base) == before


async def test_playing_the_gold_actions_does_not_change_the_task():
    task = ending_with("book_bike")
    before = json.dumps(task.payload)
    gym = started(task, ScriptedUser("###STOP###"))
    await execute_gold(gym, task)
    await gym.step(InteractCall("action", task.payload["outputs"][0]))
    assert json.dumps(task.payload) == before
    assert gym.succeeded


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=12))
def test_the_digest_is_that_of_the_whole_state(writes):
    base = {"t": {key: {"n": 0} for key in "abc"}}
    db, state = Database(base), dict.fromkeys("abc", 0)
    for key, n in writes:
        db.edit("t", key)["n"] = n
        state[key] = n
    other = Database(base)
    for key, n in state.items():
        other.edit("t", key)["n"] = float(n)
    assert db.digest() == other.digest()
    assert (db.digest() == Database(base).digest()) == (set(state.values()) == {0})
    assert base == {"t": {key: {"n": 0} for key in "abc"}}


def test_new_records_are_listed_and_counted_in_the_digest():
    db = Database({"t": {"a": {"n": 1}}})
    db.add("t", "b", {"n": 2})
    assert dict(db.rows("t")) == {"a": {"n": 1}, "b": {"n": 2}}
    assert db.changes() == {"t/b": {"n": 2}}
    assert db.get("t", "c") is None


async def test_the_rule_user_states_everything_confirms_and_then_stops():
    task = ending_with("change_bike")
    gym = started(task)
    replies = [(await gym.step(InteractCall("action", text))).observation for text in ("Hello, who are you?", "Go on.")]
    booking_ids = [word.strip(".") for word in task.payload["instruction"].split() if word.startswith("B1")]
    assert booking_ids
    assert all(booking_id in " ".join(replies) for booking_id in booking_ids)
    assert (await gym.step(InteractCall("action", "Shall I go ahead?"))).observation == "Yes, please go ahead."
    assert (await gym.step(InteractCall("action", "It is done. Anything else?"))).terminated


def test_instructions_are_stated_in_the_first_person():
    assert first_person("You are Ann and you want your bike.") == "I am Ann and I want my bike."
    assert first_person("They owe it to you.") == "They owe it to me."


async def test_the_served_user_sees_the_agents_text_quoted_and_never_the_gold_actions():
    task = ending_with("set_days")
    with MockServer(lambda body: Answer("I am Ann. ##STOP##")) as server:
        gym = started(task, ("openai", {"base_url": server.base_url, "model": "m"}))
        result = await gym.step(InteractCall("action", "Welcome."))
        (prompt,) = server.texts()
    assert (result.observation, result.terminated) == ("I am Ann.", True)
    assert task.payload["instruction"] in prompt
    assert "set_days" not in prompt
    assert [call.role for call in gym.ledger] == ["user"]


async def test_the_served_users_prompt_holds_the_conversation():
    with MockServer(lambda body: Answer(f"line {len(body['messages'])}")) as server:
        gym = started(user=("openai", {"base_url": server.base_url, "model": "m"}))
        first = await gym.step(InteractCall("action", "One?"))
        second = await gym.step(InteractCall("action", "Two?"))
        last = prompt_text(server.requests[-1])
    assert (first.observation, second.observation) == ("line 4", "line 6")
    assert last.index("One?") < last.index("line 4") < last.index("Two?")


def test_a_task_without_its_database_is_not_playable():
    payload = {**every_task()[0].payload, "domain": "retail", "database": "/nowhere"}
    result = validate(Task("tau", "x", "test", payload))
    assert (result.ok, result.playable) == (False, False)
    assert "Import the tasks again" in result.reason


def test_a_task_whose_gold_actions_fail_is_not_provable_and_says_why():
    task = every_task()[0]
    broken = Task("tau", "x", "test", {**task.payload, "unprovable": "gold action set_days fails on replay: no"})
    result = validate(broken)
    assert (result.ok, result.playable) == (False, True)
    assert "gold action set_days fails on replay" in result.reason
    with raises("task.not_playable"):
        TauGym.gold(broken, TauConfig())
    assert conversation(broken)


def test_other_domains_have_no_tasks_of_their_own():
    with raises("task.bad_option", "'retail'"):
        tasks("tau", "test", domain="retail")
