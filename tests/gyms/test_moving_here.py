"""Moving here from the released code: their SFT data, their observation, their environment interface, the paper's prompt."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from userrl_core.errors import GymError, TaskError
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


def test_chats_of_messages_stay_as_they_are(tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": CALL}], "tools": []}
    (tmp_path / "sft.jsonl").write_text(json.dumps(chat) + "\n")
    assert read_conversations(tmp_path / "sft.jsonl") == [chat]


def test_a_conversation_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(json.dumps([ROW, {"conversations": [{"from": "wizard", "value": "x"}]}]))
    with pytest.raises(TaskError, match="entry 2: a turn needs value and from"):
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
    with pytest.raises(GymError, match="call reset"):
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
