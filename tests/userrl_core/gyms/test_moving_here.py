"""Moving here from the released code: their SFT data, their observation, their environment interface, the paper's prompt."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import curricula
from curricula.host import Host
from tests.makers import raises
from userrl.run.readiness import verdict
from userrl_core.gyms import make, names, tasks
from userrl_core.gyms.prompt import opening_messages
from userrl_core.gyms.released_env import ReleasedEnv
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.rollout import run_episodes
from userrl_core.sharegpt import read_conversations

CALL = '<tool_call>\n{"name": "interact_with_env", "arguments": {"choice": "answer", "content": "22"}}\n</tool_call>'
ROW: dict[str, Any] = {
    "system": "You help a user.",
    "tools": json.dumps([{"type": "function", "function": {"name": "interact_with_env"}}]),
    "conversations": [
        {"from": "human", "value": "Find the rule."},
        {"from": "gpt", "value": CALL},
        {"from": "observation", "value": "Right."},
        {"from": "gpt", "value": "Done."},
    ],
}


@pytest.mark.parametrize("lines", [False, True])
def test_released_sharegpt_data_becomes_chats(tmp_path: Path, lines: bool) -> None:
    path = tmp_path / "sft.json"
    path.write_text("\n".join([json.dumps(ROW)] * 2) if lines else json.dumps([ROW, ROW]))
    chats = read_conversations(path)
    assert [message["role"] for message in chats[1]["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert chats[0]["messages"][2]["content"] == CALL
    assert chats[0]["tools"] == json.loads(ROW["tools"])


def sharegpt(path: Path, *turns: tuple[str, str]) -> Path:
    row = {"conversations": [{"from": speaker, "value": value} for speaker, value in turns]}
    path.write_text(json.dumps([row]))
    return path


FUNCTION_CALL = '{"name": "interact_with_env", "arguments": {"choice": "answer", "content": "22"}}'


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (FUNCTION_CALL, CALL),
        (
            FUNCTION_CALL.replace(
                '{"choice": "answer", "content": "22"}', json.dumps('{"choice":"answer","content":"22"}')
            ),
            CALL,
        ),
        (f"<think>Easy.</think>{FUNCTION_CALL}", f"<think>Easy.</think>\n{CALL}"),
        (f"[{FUNCTION_CALL}, {FUNCTION_CALL}]", f"{CALL}\n{CALL}"),
        (CALL, CALL),
        (
            '{"name": "get_user", "arguments": {"id": 7}}',
            '<tool_call>\n{"name": "get_user", "arguments": {"id": 7}}\n</tool_call>',
        ),
    ],
)
def test_a_function_call_becomes_the_text_that_the_agent_is_to_write(tmp_path: Path, value: str, expected: str) -> None:
    (chat,) = read_conversations(sharegpt(tmp_path / "sft.json", ("human", "Find it."), ("function_call", value)))
    assert chat["messages"][1] == {"role": "assistant", "content": expected}


def test_what_is_said_before_a_function_call_is_one_message_with_it(tmp_path: Path) -> None:
    path = sharegpt(tmp_path / "sft.json", ("human", "Find it."), ("gpt", "I know."), ("function_call", FUNCTION_CALL))
    assert read_conversations(path)[0]["messages"][1:] == [{"role": "assistant", "content": f"I know.\n{CALL}"}]


def test_a_function_call_that_is_no_call_is_named(tmp_path: Path) -> None:
    path = sharegpt(tmp_path / "sft.json", ("human", "Find it."), ("function_call", "answer 22"))
    with raises("chats.invalid", "entry 1"):
        read_conversations(path)


def test_a_file_that_teaches_no_call_of_the_recipes_gyms_is_refused(tmp_path: Path) -> None:
    path = sharegpt(tmp_path / "sft.json", ("human", "Find it."), ("gpt", "22"), ("human", "No."), ("gpt", "23"))
    with raises("chats.invalid"):
        read_conversations(path, ["function"])
    searching = sharegpt(
        tmp_path / "search.json", ("human", "x"), ("function_call", FUNCTION_CALL.replace("answer", "search"))
    )
    assert read_conversations(searching, ["travel", "function"])
    with raises("chats.invalid"):
        read_conversations(searching, ["turtle"])


def test_the_file_is_refused_before_anything_of_the_run_begins(tmp_path: Path) -> None:
    path = sharegpt(tmp_path / "sft.json", ("human", "Find it."), ("gpt", "22"))
    recipe = curricula.load("equalized-r2g", "laptop", {"cold_start.data": str(path)})
    answer = verdict(recipe, Host(), backend="local")
    assert (answer.kind, answer.reason) == ("refused", "data")
    assert answer.sentence.startswith(f"{path} contains no call of errand, wish:")


def test_chats_of_messages_stay_as_they_are(tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": CALL}], "tools": []}
    (tmp_path / "sft.jsonl").write_text(json.dumps(chat) + "\n")
    assert read_conversations(tmp_path / "sft.jsonl") == [chat]


def test_a_conversation_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(json.dumps([ROW, {"conversations": [{"from": "wizard", "value": "x"}]}]))
    with raises("chats.invalid", "entry 2"):
        read_conversations(tmp_path / "bad.json")


@pytest.mark.parametrize(("style", "ending"), [("released", "\nReward: 0.0"), ("full", "")])
def test_the_released_observation_ends_with_the_reward(style: Any, ending: str) -> None:
    seen: list[str] = []

    class Listening(ScriptedPolicy):
        def session(self, gym: Any, seed: int) -> Any:
            inner = super().session(gym, seed)

            class Session:
                async def act(self, new: Any) -> Any:
                    seen.extend(message["content"] for message in new if message["role"] == "tool")
                    return await inner.act(new)

            return Session()

    asyncio.run(run_episodes([tasks("function", "train")[0]], Listening(), horizon=4, prompt_style=style))
    assert seen
    assert all(("Reward:" in text) == bool(ending) and text.endswith(ending) for text in seen)


def test_the_papers_prompt_asks_for_thought_in_tags_and_holds_the_gyms_hint() -> None:
    for name in ("travel", "turtle", "function", "tau", "persuade", "intention", "telepathy", "search"):
        gym = make(name)
        system = opening_messages(gym, "Hello.", 16, "paper")[0]["content"]
        assert "Think first, between <think> and </think>" in system
        assert system.endswith(f"# Hint\n{gym.hint}")
        assert gym.hint
        assert "<think>" not in opening_messages(gym, "Hello.", 16, "full")[0]["content"]


def test_their_trainer_steps_our_gyms() -> None:
    task = next(task for task in tasks("function", "train") if float(task.payload["expected"]).is_integer())
    env = ReleasedEnv("function", task, max_steps=3)
    observation, info = env.reset(seed=1)
    assert (observation["step"], info["task_id"]) == (0, task.id)

    async def play() -> list[tuple[Any, ...]]:
        return [await env.step_async(text) for text in ("[search] test", f"[answer] {task.payload['expected']}")]

    first, last = asyncio.run(play())
    assert (first[1:4], last[1:4]) == ((0.0, False, False), (1.0, True, False))
    assert set(last[0]) == {"feedback", "step"}
    with raises("gym.misused"):
        env.step("[action] 1 2 3 4")


def test_an_episode_of_theirs_ends_by_finish_or_by_its_steps() -> None:
    env = ReleasedEnv("function", max_steps=2)
    env.reset()
    assert env.step("nonsense")[1:4] == (0.0, False, False)
    assert env.step("[action] 1 2 3 4")[1:4] == (0.0, False, True)
    env.reset()
    assert env.step("[finish]")[2] is True
    env.close()
    assert "function" in names()
