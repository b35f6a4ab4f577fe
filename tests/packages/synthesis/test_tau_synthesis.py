"""New instructions for tasks with gold calls: templates, a served model's, and those of recorded conversations."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from tests.makers import raises
from tests.mock_server import Answer, Body, MockServer, prompt_text
from tests.published import published
from userrl_core.gyms import tasks
from userrl_core.gyms.taskfile import read_tasks, write_tasks
from userrl_core.gyms.tau.rule_user import FORGOTTEN, RuleTauUser
from userrl_core.gyms.tau.variants import VARIANTS, of, varied
from userrl_core.gyms.validate import validate
from userrl_core.records import Task
from userrl_synthesis.apigen import recorded
from userrl_synthesis.solvable import why_not


def some(domain: str = "outfitter", n: int = 12) -> list[Task]:
    return list(tasks("tau", "train", domain=domain))[:n]


@pytest.mark.parametrize("domain", ["outfitter", "bikes"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_gold_calls_solve_every_variant_of_our_tasks(domain: str, variant: str) -> None:
    for task in varied(some(domain), variant):
        assert why_not(task) == ""
        assert validate(task).ok
    changed = [task for task in varied(some(domain), variant) if task.payload["instruction"] not in known(domain)]
    assert changed
    assert {task.split for task in changed} == {"train"}, "a variant stays in its task's split"


def known(domain: str) -> set[str]:
    return {task.payload["instruction"] for task in some(domain)}


def test_a_simplified_instruction_tells_every_argument_and_an_inferred_one_nothing_else() -> None:
    task = some()[1]
    simple, bare = of(task, "simplified").payload["instruction"], of(task, "inferred").payload["instruction"]
    for value in next(a["kwargs"] for a in task.payload["actions"] if a["name"].startswith("modify")).values():
        assert value in simple
        assert value in bare
    assert simple.startswith(task.payload["instruction"])
    assert bare.startswith("You are Milena Tamm, and your zip code is 66737. You want to modify pending order payment")


async def test_the_rule_user_gives_a_withheld_number_only_once_the_agent_has_named_it() -> None:
    task = of(some()[1], "withheld")
    assert task.payload["withheld"] == ["#W7232"]
    assert task.payload["instruction"].endswith(FORGOTTEN)
    user = RuleTauUser(task, Random(0))
    said = await user.reply("Which order is it?")
    assert "#W7232" not in said
    assert "whose number I do not remember" in said
    assert "It is #W7232." in await user.reply("Is it order #W7000 or order #W7232?")


def test_half_of_the_mix_is_rewritten_and_always_the_same_half() -> None:
    mix = tasks("tau", "train", domain="outfitter", variant="mix")
    withheld = sum("withheld" in task.payload for task in mix)
    assert len(mix) == len(tasks("tau", "train", domain="outfitter"))
    assert abs(withheld / len(mix) - 0.5) < 0.06
    assert [task.id for task in mix] == [t.id for t in tasks("tau", "train", domain="outfitter", variant="mix")]
    with raises("task.bad_option", "'hard'"):
        tasks("tau", "train", domain="outfitter", variant="hard")


def test_an_instruction_that_leaves_out_what_nobody_can_look_up_is_found_out() -> None:
    moved = next(t for t in some("bikes", 20) if any(a["name"] == "change_address" for a in t.payload["actions"]))
    vague = replace(moved, payload={**moved.payload, "instruction": "You are Gwen. You have moved."})
    assert re.fullmatch(r"nothing tells '.+', which change_address needs", why_not(vague))


def test_published_tasks_are_solvable_but_for_those_whose_gold_fails_or_changes_nothing() -> None:
    from userrl_core.gyms import load_published

    found = [t for t in load_published("tau", published("tau-bench")) if t.tier == "retail"]
    test = Counter(why_not(task).split(" ")[0] for task in found if task.split == "test")
    train = Counter(why_not(task).split(" ")[0] for task in found if task.split == "train")
    assert (test, train) == ({"": 102, "no": 9, "gold": 4}, {"": 481, "gold": 19})


# -- a served model -------------------------------------------------------------------------------------------------


def at(server: MockServer, out: Path) -> list[str]:
    """What a command is told of a model and of its file."""
    return ["--model", "gpt-4.1", "--base-url", server.base_url, "--out", str(out)]


def writer(body: Body) -> Answer:
    """Withholds nothing that cannot be looked up at the second attempt; forgets who the customer is at the first."""
    text = prompt_text(body)
    old = re.findall(r"# The instruction\s+<data id=\"\w+\">\n(.*?)\n</data", text, re.DOTALL)
    if "cannot be used" in text:
        new = f"{old[0] if old else ''} You do not remember which payment method it was."
    else:
        new = "You want something done about an order, and you do not say who you are."
    return Answer(json.dumps({"thought": "", "instruction": new}))


def test_what_a_model_writes_is_kept_only_where_the_gold_calls_still_solve_it(tmp_path: Path) -> None:
    write_tasks(tmp_path / "tasks.jsonl", some(n=6))
    out = tmp_path / "new.jsonl"
    with MockServer(writer) as server:
        done = CliRunner().invoke(
            app,
            ["tasks", "synthesise", "--from", str(tmp_path / "tasks.jsonl"), "--variant", "withheld", *at(server, out)],
        )
        asked = len(server.requests)
        prompts = server.texts()
    assert done.exit_code == 0, done.output
    new = read_tasks(out)
    assert (len(new), asked) == (6, 12), "each is asked for twice: the first instruction leaves the agent in the dark"
    for task, old in zip(new, some(n=6), strict=True):
        assert task.payload["instruction"].startswith(old.payload["instruction"])
        assert task.payload["actions"] == list(old.payload["actions"])
    assert "nothing tells '" in prompts[-1]


# -- APIGen-MT ------------------------------------------------------------------------------------------------------


def trajectory(order: str, item: str, user: str) -> dict[str, object]:
    """A conversation in APIGen-MT's form."""
    call = {"name": "cancel_pending_order", "arguments": {"order_id": order, "reason": "no longer needed"}}
    look = {"name": "get_user_details", "arguments": {"user_id": user}}
    return {
        "system": "You are a retail agent.",
        "tools": "[]",
        "conversations": [
            {"from": "human", "value": f"Hello, I am {user} and want to cancel {item}."},
            {"from": "function_call", "value": json.dumps(look)},
            {"from": "observation", "value": "{...}"},
            {"from": "gpt", "value": f"Shall I cancel order {order}?"},
            {"from": "human", "value": "Yes."},
            {"from": "function_call", "value": json.dumps(call)},
            {"from": "observation", "value": '{"status": "cancelled"}'},
            {"from": "gpt", "value": "It is cancelled."},
        ],
    }


def pending(data: Path) -> tuple[str, str]:
    """A retail order that can be cancelled, and whose it is."""
    orders = json.loads((data / "retail" / "orders.json").read_text())
    return next((key, order["user_id"]) for key, order in orders.items() if order["status"] == "pending")


def test_trajectories_of_apigen_become_tasks_whose_gold_calls_solve_them(tmp_path: Path) -> None:
    data = published("tau-bench")
    order, user = pending(data)
    talk = {"conversations": [{"from": "human", "value": "Hello"}, {"from": "gpt", "value": "Hello"}]}
    path = tmp_path / "apigen-mt_5k.json"
    path.write_text(json.dumps([trajectory(order, "my lamp", user), talk, trajectory(order, "my lamp", user)]))
    (found,) = recorded(path, data)
    assert (found.task.tier, found.task.source, why_not(found.task)) == ("retail", "synthesised:apigen-mt", "")
    assert found.task.payload["instruction"] == (
        f"Your user id is {user}. You want to cancel pending order (order id {order}, reason no longer needed)."
    )
    assert validate(found.task).ok
    assert found.conversation.splitlines()[3] == f"Agent: Shall I cancel order {order}?"


def test_a_trajectory_whose_gold_fails_here_is_left_out_and_said(tmp_path: Path) -> None:
    data = published("tau-bench")
    order, user = pending(data)
    path, out = tmp_path / "rows.json", tmp_path / "tasks.jsonl"
    path.write_text(json.dumps([trajectory(order, "it", user), trajectory("#W0", "it", user)]))
    arguments = ["tasks", "synthesise", "--from", str(path), "--variant", "inferred", "--data", str(data)]
    with MockServer(
        lambda body: Answer(json.dumps({"instruction": f"You are {user}. You want order {order} gone."}))
    ) as server:
        done = CliRunner().invoke(app, [*arguments, *at(server, out)])
    assert "1 of 2 tasks" in done.output
    assert "fails on replay" in done.output
    assert read_tasks(out)[0].payload["instruction"] == f"You are {user}. You want order {order} gone."


# -- difficulty -----------------------------------------------------------------------------------------------------


def test_tasks_that_a_model_passes_always_or_never_are_filtered_out(tmp_path: Path) -> None:
    easy, never, sometimes = list(tasks("math", "train"))[:3]
    write_tasks(tmp_path / "math.jsonl", [easy, never, sometimes])
    asked: Counter[str] = Counter()

    def solver(body: Body) -> Answer:
        question = next(t for t in (easy, never, sometimes) if t.payload["question"] in prompt_text(body))
        asked[question.id] += 1
        right = question is easy or (question is sometimes and asked[question.id] % 2 == 0)
        arguments = {"choice": "answer", "content": str(question.payload["answer"] if right else "nothing")}
        call = {"function": {"name": "interact_with_env", "arguments": json.dumps(arguments)}}
        return Answer(tool_calls=[{"id": "c", "type": "function", **call}])

    with MockServer(solver) as server:
        done = CliRunner().invoke(
            app,
            [
                "tasks",
                "filter",
                str(tmp_path / "math.jsonl"),
                "--attempts",
                "4",
                *at(server, tmp_path / "medium.jsonl"),
            ],
        )
    assert done.exit_code == 0, done.output
    assert [task.id for task in read_tasks(tmp_path / "medium.jsonl")] == [sometimes.id]


def test_an_empty_file_of_tasks_is_refused_before_a_model_is_asked(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    words = ["--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--out", str(tmp_path / "medium.jsonl")]
    done = CliRunner().invoke(app, ["tasks", "filter", str(tmp_path / "empty.jsonl"), *words])
    assert done.output == "error: The file of tasks is empty. Give one with at least one task. [task.none_left]\n"
    assert not (tmp_path / "medium.jsonl").exists()
