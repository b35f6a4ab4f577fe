"""The gym of verifiers' environments: its side of the process with every answer that one may send, and real environments.

The fast tests put a program that sends prepared answers in the place of the environment's Python. The slow ones need verifiers,
which does not fit beside our packages: $USERRL_VERIFIERS_PYTHON, or `.venv-verifiers` of `lab.checks.verifiers_check`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from lab.checks import verifiers_check
from tests.makers import raises
from tests.mock_server import Answer, MockServer
from tests.places import ROOT
from tests.userrl_core.gyms.prepared_program import Answers, Says, prepared_program
from userrl_core.gyms import generate, make, other_python, tasks
from userrl_core.gyms.registry import unavailable
from userrl_core.interact import InteractCall
from userrl_core.policies.native import NativePolicy
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import Task
from userrl_core.rollout import run_episodes
from userrl_core.served.client import ChatServer, close_clients
from userrl_gym_verifiers import process

MESSAGES = [{"role": "system", "content": "Sum up."}, {"role": "user", "content": "1 + 1?"}]
OPENED: dict[str, Any] = {"messages": MESSAGES, "tools": [], "rewards": []}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
GOING_ON: dict[str, Any] = {"messages": [{"role": "user", "content": "go on"}], "tools": [], "rewards": [None]}
ENDED: dict[str, Any] = {
    "messages": [], "rewards": [0.25, None], "score": 1.0, "failure": "", "stop": "done", "metrics": {"n": 2.0}
}  # fmt: skip
SAY = InteractCall("action", "2")


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    yield from prepared_program(process.PYTHON, tmp_path, monkeypatch)


def row(number: int = 0) -> Task:
    return Task("verifiers", f"t{number}", "train", {"env": "sums", "args": {}, "row": {"question": f"{number}"}})


async def test_rewards_of_turns_add_up_to_the_rubric_s_reward(answers: Answers) -> None:
    answers(OPENED, {**GOING_ON, "rewards": [0.25]}, {**GOING_ON, "rewards": [0.25, None]}, ENDED)
    gym = make("verifiers", row())
    assert await asyncio.to_thread(gym.reset, 1) == "1 + 1?"
    assert gym.goal == "Sum up."
    results = [await gym.step(SAY) for _ in range(3)]
    assert [(result.reward, result.terminated) for result in results] == [(0.25, False), (0.0, False), (0.75, True)]
    assert results[-1].info == {"stop": "done", "metrics": {"n": 2.0}, "success": True}
    assert (gym.score(), sum(gym.rewards)) == (1.0, 1.0)
    await gym.aclose()


async def test_a_call_of_a_tool_goes_out_as_one_and_anything_else_is_not_sent(answers: Answers) -> None:
    log = answers({**OPENED, "tools": TOOLS}, GOING_ON)
    gym = make("verifiers", row())
    await asyncio.to_thread(gym.reset, 1)
    assert gym.native_tools() == TOOLS
    assert '"name": "add"' in gym.help_for("answer")
    assert (await gym.step(InteractCall("action", ""))).observation == "Error: an empty message is not sent."
    for wrong in ("2", "[]", "{}", '{"name": "sub"}', '{"name": "add", "arguments": "1"}', "[" * 100_000, "\ud800"):
        result = await gym.step(InteractCall("answer", wrong))
        assert result.observation.startswith("Error: ")
        assert (result.reward, result.info) == (0.0, {"tool_error": True})
    call = gym.native_call("add", {"a": 1})
    assert call is not None
    assert (await gym.step(call)).observation == "go on"
    await gym.aclose()
    assert [json.loads(line) for line in log.read_text().splitlines()][1:] == [
        {"session": 1, "message": {"role": "assistant", "content": None, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}]}}
    ]  # fmt: skip


HOSTILE: dict[str, tuple[Any, str]] = {
    "no answer": (None, "did not answer within 0.5 seconds"),
    "an error": ({"error": "RuntimeError: the judge is down"}, "failed: RuntimeError: the judge is down"),
    "a long error": ({"error": "x" * 9999}, "failed: xxx"),
    "an exit": ("exit", "ended with status 9 (Killed: out of memory)"),
    "no JSON": ("'hello'", "sent what is not an answer"),
    "a list": ("'[1]'", "sent what is not an answer"),
    "no session": ("'{}'", "sent what is not an answer"),
    "bytes": ("chr(65533) * 9", "sent what is not an answer"),
    "a huge line": ("'x' * (33 << 20)", "sent an answer of more than 32 MB"),
    "a failed rollout": ({**ENDED, "failure": "SandboxError: gone"}, "did not score the conversation: SandboxError: gone"),
    "half an answer": ("'{\"session\": 1, \"mess'", "sent what is not an answer"),
    "a page": ("'<!DOCTYPE html><title>502 Bad Gateway</title>'", "sent what is not an answer"),
    "no messages": ({"rewards": [], "tools": []}, "sent an answer that cannot be read (KeyError: 'messages')"),
    "messages are a text": ({**GOING_ON, "messages": "hello"}, "sent an answer that cannot be read (TypeError: string"),
    "a message of nobody": ({**GOING_ON, "messages": [{"content": "x"}]}, "cannot be read (KeyError: 'role')"),
    "no rewards": ({"messages": [], "tools": []}, "cannot be read (KeyError: 'rewards')"),
    "rewards are a number": ({**GOING_ON, "rewards": 1.0}, "cannot be read (TypeError: 'float' object is not iterable)"),
    "an end without a verdict": ({"messages": [], "rewards": [], "score": 1.0}, "cannot be read (KeyError: 'failure')"),
    "metrics are a list": ({**ENDED, "metrics": [1]}, "cannot be read (AttributeError: 'list' object"),
    "score too large": ({**ENDED, "score": 10**400}, "gave the reward '1000000"),
    "score NaN": ({**ENDED, "score": float("nan")}, "gave the reward 'nan', which is not a finite number"),
    "score infinite": ({**ENDED, "score": 1e999}, "gave the reward 'inf'"),
    "score None": ({**ENDED, "score": None}, "gave the reward 'None'"),
    "score text": ({**ENDED, "score": "1.0"}, "gave the reward '1.0'"),
    "score true": ({**ENDED, "score": True}, "gave the reward 'True'"),
    "score list": ({**ENDED, "score": [1.0] * 99}, "gave the reward '[1.0, 1.0"),
    "reward NaN": ({**GOING_ON, "rewards": [float("nan")]}, "gave the reward 'nan'"),
    "reward text": ({**GOING_ON, "rewards": ["good"]}, "gave the reward 'good'"),
    "a picture": ({**GOING_ON, "messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "not text"),
    "content of a number": ({**GOING_ON, "messages": [{"role": "user", "content": 7}]}, "not text"),
}  # fmt: skip


@pytest.mark.parametrize("way", HOSTILE)
async def test_a_hostile_answer_is_one_sentence_and_a_null_reward(answers: Answers, way: str) -> None:
    sent, sentence = HOSTILE[way]
    answers(OPENED, sent)
    (trajectory,) = await run_episodes([row()], Says("2", timeout=0.5 if sent is None else None), horizon=3)
    assert (trajectory.score, trajectory.admitted, [turn.reward for turn in trajectory.turns]) == (None, False, [None])
    reason = trajectory.reject_reason or ""
    assert sentence in reason
    assert "\n" not in reason
    assert len(reason) < 500


UNUSUAL: dict[str, tuple[Any, list[float], float]] = {
    "a negative score": ({**ENDED, "rewards": [0.25], "score": -0.5}, [-0.5], -0.5),
    "a score above 1": ({**ENDED, "rewards": [], "score": 7.0}, [7.0], 7.0),
    "a text of 8 MB": ({**GOING_ON, "messages": [{"role": "user", "content": "x" * (8 << 20)}]}, [0.0, 1.0], 1.0),
    "half a character": ({**GOING_ON, "messages": [{"role": "user", "content": "\x00\ud800"}]}, [0.0, 1.0], 1.0),
}


@pytest.mark.parametrize("way", UNUSUAL)
async def test_an_unusual_answer_is_played_as_it_is(answers: Answers, way: str) -> None:
    sent, rewards, score = UNUSUAL[way]
    answers(OPENED, sent, ENDED)
    (trajectory,) = await run_episodes([row()], Says("2"), horizon=3)
    assert ([turn.reward for turn in trajectory.turns], trajectory.score, trajectory.admitted) == (rewards, score, True)


@pytest.mark.parametrize("way", ["no answer", "an exit"])
async def test_after_a_hang_or_an_exit_the_next_episode_has_a_process_of_its_own(answers: Answers, way: str) -> None:
    answers(OPENED, HOSTILE[way][0])
    await run_episodes([row()], Says("2", timeout=0.5 if way == "no answer" else None), horizon=1)
    (first,) = other_python._RUNNING.values()
    answers(OPENED, ENDED)
    (trajectory,) = await run_episodes([row()], Says("2"), horizon=1)
    assert trajectory.score == 1.0
    assert first._process.wait(300) in (9, -9)


async def test_many_conversations_share_one_process_and_do_not_touch_one_another(answers: Answers) -> None:
    answers(OPENED, {**GOING_ON, "rewards": [0.5]}, ENDED)
    trajectories = await run_episodes([row(number) for number in range(40)], Says("2"), horizon=4, concurrency=40)
    assert {tuple(turn.reward for turn in trajectory.turns) for trajectory in trajectories} == {(0.5, 0.5)}
    assert len(other_python._RUNNING) == 1


async def test_an_environment_that_ends_at_once_or_does_not_load_is_said(answers: Answers) -> None:
    answers(ENDED)
    gym = make("verifiers", row())
    with raises("gym.program_failed", "ended before the agent's first reply"):
        await asyncio.to_thread(gym.reset, 1)
    await gym.aclose()
    other_python._RUNNING.clear()
    answers(ready={"error": "ValueError: no key"})
    with raises("task.bad_option", "Environment 'sums' failed: ValueError: no key"):
        tasks("verifiers", "train", env="sums", args={"n": 1})


def test_the_evaluation_set_is_the_test_split_and_long_sets_come_in_parts(answers: Answers) -> None:
    train = [{"question": f"{n}"} for n in range(1200)]
    answers(train=[*train, train[0]], eval=[{"question": "last", "info": {"é": [1, None]}}])
    split = {name: tasks("verifiers", name, env="sums", args={"n": 2}) for name in ("train", "validation", "test")}
    assert [task.payload["row"] for task in split["test"]] == [{"question": "last", "info": {"é": [1, None]}}]
    assert len(split["train"]) + len(split["validation"]) == 1200
    assert 30 < len(split["validation"]) < 90
    assert len(tasks("verifiers", "train", env="sums", args={"n": 2}, count=3)) <= 3
    assert tasks("verifiers", "train") == []
    assert len(generate("verifiers", 1201, 0, env="sums", args={"n": 2})) == 1201
    with raises("task.too_few", "Environment 'sums' has 1201 tasks. Ask for at most that many, not 1202."):
        generate("verifiers", 1202, 0, env="sums", args={"n": 2})
    with raises("task.bad_option", "Set gyms.verifiers.tasks.env"):
        generate("verifiers", 3, 0)


def test_one_data_set_alone_is_split_by_its_rows(answers: Answers) -> None:
    answers(train=[], eval=[{"question": f"{n}"} for n in range(200)])
    counts = [len(tasks("verifiers", name, env="sums", args={"n": 3})) for name in ("train", "validation", "test")]
    assert sum(counts) == 200
    assert min(counts) > 3


def test_without_the_python_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(process.PYTHON, raising=False)
    assert unavailable("verifiers") == (
        "Gym 'verifiers' runs in a Python of its own: install 'verifiers<0.4' in a venv and set "
        "$USERRL_VERIFIERS_PYTHON (it is not set)."
    )
    monkeypatch.setenv(process.PYTHON, "/nowhere/python")
    assert unavailable("verifiers").endswith("(/nowhere/python is not a program).")


def test_a_process_ends_with_the_one_that_started_it(answers: Answers, tmp_path: Path) -> None:
    answers(OPENED)
    started = process.running("sums", {"n": 4})
    assert psutil.Process(started._process.pid).is_running()
    assert started._process.stdin is not None
    started._process.stdin.close()
    assert started._process.wait(300) == 0


def test_a_program_without_an_answer_in_time_ends_at_once_or_with_its_last_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_python, "_RUNNING", running := {})
    silent, ready = tmp_path / "silent.py", tmp_path / "ready.py"
    silent.write_text("import time; time.sleep(600)")
    ready.write_text("import time; print('{\"session\": 0}', flush=True); time.sleep(600)")
    with monkeypatch.context() as short:
        short.setattr(other_python, "LOAD", 0.5)
        with raises("gym.program_failed", "did not answer within 0.5 seconds"):
            other_python.running("it", sys.executable, silent)
    (never_ready,) = running.values()
    without = other_python.running("it", sys.executable, ready)
    other = other_python.running("it", sys.executable, ready, "another")
    number, _ = other.open()
    for program in (without, other):
        with raises("gym.program_failed", "did not answer within 0.5 seconds"):
            other_python.result(program, program.ask(0, rows=["train", 0, 1]), 0.5)
    assert [program._process.wait(300) for program in (never_ready, without)] == [-9, -9]
    assert other._process.poll() is None
    other.close(number)
    assert other._process.wait(300) == -9


async def test_a_demonstration_is_refused_with_what_to_use_instead(answers: Answers) -> None:
    answers(OPENED)
    (trajectory,) = await run_episodes([row()], ScriptedPolicy(1.0), horizon=2)
    assert trajectory.score is None
    assert "Environment sums has no scripted demonstrator. Name a model in demonstrations.policy" in (
        trajectory.reject_reason or ""
    )


REAL = os.environ.get(process.PYTHON) or str(ROOT / ".venv-verifiers" / "bin" / "python")
HOW = "verifiers is not installed: python -m lab.checks.verifiers_check makes .venv-verifiers"


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environments of the tests, run by verifiers itself."""
    if not Path(REAL).exists():
        pytest.skip(HOW)
    monkeypatch.setenv(process.PYTHON, REAL)
    monkeypatch.setenv(process.FOLDER, str(verifiers_check.ENVIRONMENTS))
    monkeypatch.setattr(other_python, "_RUNNING", running := {})
    yield
    for started in running.values():
        started._process.kill()


@pytest.mark.slow
@pytest.mark.usefixtures("real")
async def test_a_served_model_gets_the_environment_s_own_tools_and_its_calls_arrive() -> None:
    task = tasks("verifiers", "train", env="price_desk")[0]
    items = iter(task.payload["row"]["info"]["items"])

    def brain(body: dict[str, Any]) -> Answer:
        item = next(items, None)
        if item is None:
            return Answer(str(sum(int(m["content"]) for m in body["messages"] if m["role"] == "tool")))
        function = {"name": "price", "arguments": json.dumps({"item": item})}
        return Answer(tool_calls=[{"id": "c", "type": "function", "function": function}])

    with MockServer(brain) as server:
        policy = NativePolicy(ChatServer(model="m", base_url=server.base_url))
        (trajectory,) = await run_episodes([task], policy, horizon=5, prompt_style="native")
        await close_clients()
    assert [turn.reward for turn in trajectory.turns] == [0.0, 0.0, 1.0]
    assert (trajectory.score, trajectory.stop_reason) == (1.0, "success")
    assert [tool["function"]["name"] for tool in server.requests[0]["tools"]] == ["price", "add"]


@pytest.mark.slow
@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("name", verifiers_check.CALLS)
def test_scores_are_those_of_verifiers_own_evaluation_of_the_same_replies(name: str) -> None:
    got, expected = verifiers_check.ends(name, 6)
    assert got == expected
    assert len(got) == 6


@pytest.mark.slow
@pytest.mark.usefixtures("real")
def test_scores_of_a_served_model_are_those_of_verifiers_own_evaluation_of_its_replies() -> None:
    replies = itertools.cycle(("3", "5", "I say 1", "6", "0"))
    with MockServer(lambda _: Answer(next(replies))) as server:
        model = ChatServer(model="m", base_url=server.base_url)
        got, expected = verifiers_check.ends("guess_number", 6, model)
    assert got == expected
    assert len({reward for reward, _, _ in got}) > 1


FAILING = {
    "setup": ("RuntimeError: no sandbox left", 0),
    "raises": ("RuntimeError: the database is gone", 1),
    "vf error": ("InfraError: the sandbox died", 1),
    "hangs": ("did not answer within 3 seconds", 1),
    "blocks": ("did not answer within 3 seconds", 1),
    "exits": ("ended with status 3", 1),
    "huge": ("sent an answer of more than 32 MB", 1),
    "picture": ("sent a message that is not text", 1),
    "wrong type": ("TypeError: 'int' object is not iterable", 1),
    "two at once": ("The environment asked for two replies at once", 2),
    "reward raises": ("Error calling reward function reward: the judge is down", 2),
    "reward nan": ("gave the reward 'nan', which is not a finite number", 2),
    "reward text": ("could not convert string to float: 'good'", 2),
    "unscored": ("the environment does not score its rollouts", 2),
    "step text": ("gave the reward 'good', which is not a finite number", 1),
}
"""The failing environments, with the reason and the number of turns until it is seen."""


@pytest.mark.slow
@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("way", FAILING)
async def test_a_real_environment_that_fails_gives_a_null_reward_and_one_sentence(way: str) -> None:
    task = tasks("verifiers", "train", env="hostile", args={"way": way})[0]
    (trajectory,) = await run_episodes(
        [task], Says("2", timeout=3.0 if way in ("hangs", "blocks") else None), horizon=5
    )
    sentence, turns = FAILING[way]
    assert (trajectory.score, trajectory.admitted, len(trajectory.turns)) == (None, False, turns)
    assert sentence in (trajectory.reject_reason or "")
    assert "\n" not in (trajectory.reject_reason or "")


@pytest.mark.slow
@pytest.mark.usefixtures("real")
async def test_what_an_environment_prints_is_no_answer_and_conversations_run_side_by_side() -> None:
    chosen = tasks("verifiers", "train", env="hostile", args={"way": "prints"})[:20]
    trajectories = await run_episodes(chosen, Says("2"), horizon=5, concurrency=20)
    assert {(trajectory.score, len(trajectory.turns)) for trajectory in trajectories} == {(1.0, 2)}


@pytest.mark.slow
@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    ("env", "args", "sentence"),
    [
        ("hostile", {"way": "load"}, "no key"),
        ("hostile", {"way": "group"}, "its rubric scores rollouts in groups, and a gym plays one at a time"),
        ("nowhere", {}, "Ensure the package for the 'nowhere' environment is installed"),
    ],
)
def test_an_environment_that_cannot_be_played_is_refused_when_its_tasks_are_read(
    env: str, args: dict[str, Any], sentence: str
) -> None:
    with raises("task.bad_option", sentence):
        tasks("verifiers", "train", env=env, args=args)
