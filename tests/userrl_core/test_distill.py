"""Selection of demonstrations, the reasons for dropping them, and the chats made of them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.makers import raises
from userrl_core.distill import read_chats, select_top_k, to_chat, write_chats
from userrl_core.interact import InteractCall, parse_text, render_call
from userrl_core.records import Flag, Task, Trajectory, Turn


def make_turn(number: int, message: str | None = None, choice: str | None = "action", flags: int = 0) -> Turn:
    text = render_call(InteractCall("action", f"question {number}")) if message is None else message
    return Turn(number, choice, f"question {number}" if choice else None, "", text, f"reply {number}", 0.1, flags)


def make_trajectory(
    score: float | None, gym: str = "travel", task: str = "a", turns: int = 2, attempt: int = 0, tier: str = ""
) -> Trajectory:
    return Trajectory(
        task=Task(gym, task, "train", {}, tier=tier),
        attempt=attempt,
        horizon=6,
        seed=attempt,
        messages=[{"role": "user", "content": "hello"}],
        turns=[make_turn(n) for n in range(1, turns + 1)],
        score=score,
        admitted=score is not None,
    )


def test_the_best_of_every_gym_are_kept_and_the_total_is_shared_evenly() -> None:
    played = [make_trajectory(i / 10, "travel", f"t{i}") for i in range(10)]
    played += [make_trajectory(i / 10, "function", f"f{i}") for i in range(10)]
    selection = select_top_k(played, 6)
    assert [(t.task.gym, t.score) for t in selection.kept] == [
        ("travel", 0.9), ("travel", 0.8), ("travel", 0.7), ("function", 0.9), ("function", 0.8), ("function", 0.7),
    ]  # fmt: skip
    assert selection.dropped == {"below_cut": 14}
    assert selection.by_gym["travel"].cut == 0.7
    assert selection.by_gym["travel"].mean_seen == pytest.approx(0.45)


def test_of_equal_scores_shorter_conversations_are_kept_and_the_tiers_are_counted() -> None:
    played = [make_trajectory(1.0, "errand", f"deep{i}", turns=6, tier="depth-2") for i in range(4)]
    played += [make_trajectory(1.0, "errand", f"flat{i}", turns=4, tier="depth-1") for i in range(3)]
    assert select_top_k(played, 5).by_gym["errand"].tiers == {"depth-1": (3, 3), "depth-2": (2, 4)}


def test_what_one_gym_cannot_fill_goes_to_the_others() -> None:
    played = [make_trajectory(1.0, "travel", f"t{i}") for i in range(2)]
    played += [make_trajectory(0.5, "function", f"f{i}") for i in range(9)]
    selection = select_top_k(played, 8)
    assert {gym: count.kept for gym, count in selection.by_gym.items()} == {"travel": 2, "function": 6}


def test_every_dropped_demonstration_has_a_reason() -> None:
    no_turns = make_trajectory(0.0, task="empty", turns=0)
    bad_format = make_trajectory(0.9, task="bad")
    bad_format.turns[1] = make_turn(2, "no call here", choice=None, flags=int(Flag.FORMAT_ERROR))
    played = [make_trajectory(None, task="null"), no_turns, bad_format]
    played += [make_trajectory(0.8, task=f"t{i}") for i in range(3)]
    selection = select_top_k(played, 2)
    assert selection.dropped == {"not_admitted": 1, "no_turns": 1, "format_error": 1, "below_cut": 1}
    assert selection.task_keys == {"travel/t0", "travel/t1"}


def test_of_what_was_sampled_only_successes_are_kept_where_that_is_asked_for() -> None:
    played = [make_trajectory(0.9, task=f"t{i}") for i in range(3)]
    played[1].stop_reason = "success"
    selection = select_top_k(played, 3, successes=True)
    assert [t.task.id for t in selection.kept] == ["t1"]
    assert selection.dropped == {"failed": 2}


@pytest.mark.parametrize("top_k", [0, -3])
def test_a_top_k_below_one_is_refused(top_k: int) -> None:
    with raises("argument.out_of_range"):
        select_top_k([], top_k)


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.integers(1, 3)), min_size=1, max_size=20), st.randoms())
def test_ties_are_broken_independently_of_the_order_of_arrival(
    spec: list[tuple[float, int]], rng: random.Random
) -> None:
    played = [make_trajectory(score, task=f"t{i}", turns=turns) for i, (score, turns) in enumerate(spec)]
    shuffled = list(played)
    rng.shuffle(shuffled)
    keys = [t.task.key for t in select_top_k(played, 5).kept]
    assert [t.task.key for t in select_top_k(shuffled, 5).kept] == keys


def test_a_chat_ends_with_the_agents_message_and_has_no_tools_for_a_brief_prompt() -> None:
    chat = to_chat(make_trajectory(0.5))
    assert [message["role"] for message in chat["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert chat["tools"] == []
    assert chat["task"] == "travel/a"


def test_a_chat_with_a_full_prompt_has_the_tool_with_the_gyms_choices() -> None:
    trajectory = make_trajectory(0.5, gym="travel")
    trajectory.messages.insert(0, {"role": "system", "content": "help"})
    (tool,) = to_chat(trajectory)["tools"]
    assert tool["function"]["parameters"]["properties"]["choice"]["enum"] == ["action", "search", "answer"]


def test_an_api_tool_call_becomes_hermes_text() -> None:
    trajectory = make_trajectory(0.5, turns=1)
    trajectory.turns[0].message = "some reasoning"
    trajectory.turns[0].thought = "some reasoning"
    text = to_chat(trajectory)["messages"][-1]["content"]
    assert text.startswith("some reasoning\n<tool_call>")
    assert parse_text(text).call == InteractCall("action", "question 1")


def test_a_chat_holds_only_the_executed_call() -> None:
    trajectory = make_trajectory(0.5, turns=1)
    executed = render_call(InteractCall("action", "question 1"))
    trajectory.turns[0].message = executed + render_call(InteractCall("answer", "A1"))
    trajectory.turns[0].flags = int(Flag.EXTRA_CALLS)
    assert to_chat(trajectory)["messages"][-1]["content"] == executed


def test_written_chats_are_read_back(tmp_path: Path) -> None:
    played = [make_trajectory(0.5, task="ä"), make_trajectory(0.7, task="b")]
    path = tmp_path / "deep" / "chats.jsonl"
    assert write_chats(path, played) == 2
    assert read_chats(path) == [to_chat(trajectory) for trajectory in played]
    assert [p.name for p in path.parent.iterdir()] == ["chats.jsonl"]


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r", "\r\n"])
def test_other_line_separators_in_a_conversation_are_kept(tmp_path: Path, end: str) -> None:
    trajectory = make_trajectory(0.5)
    trajectory.turns[0].message = f"one{end}two"
    trajectory.turns[0].observation = f"three{end}four"
    write_chats(tmp_path / "chats.jsonl", [trajectory, make_trajectory(0.7)])
    assert read_chats(tmp_path / "chats.jsonl") == [to_chat(trajectory), to_chat(make_trajectory(0.7))]


def test_a_file_without_chats_is_read_as_an_empty_list(tmp_path: Path) -> None:
    assert (write_chats(tmp_path / "chats.jsonl", []), read_chats(tmp_path / "chats.jsonl")) == (0, [])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: it is not JSON"),
        ("[]", "the line is not a JSON object"),
        (json.dumps({"messages": []}), "at least one message"),
        (json.dumps({"messages": [{"role": "user", "content": 3}]}), "messages[0]: it needs a text"),
        (json.dumps({"messages": [{"role": "oracle", "content": ""}]}), "role 'oracle'"),
        (json.dumps({"messages": [{"role": "user", "content": ""}], "tools": "x"}), "field 'tools'"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_an_invalid_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps(to_chat(make_trajectory(0.5))) + "\n" + line + "\n")
    with raises("chats.invalid", message):
        read_chats(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with raises("chats.invalid", "nowhere.jsonl"):
        read_chats(tmp_path / "nowhere.jsonl")
