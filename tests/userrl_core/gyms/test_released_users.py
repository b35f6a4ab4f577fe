"""Users and judges with released prompts: texts read from a copy by `ast`, their order, and the mapping of their replies.

The copy of these tests has the released layout and texts of our own. Real checkouts were compared too (data/released-prompts).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.makers import raises
from tests.mock_server import Answer, Body, MockServer
from tests.userrl_core.gyms.released_copy import FILES, write_copy
from userrl_core.gyms import make, tasks
from userrl_core.gyms.published import released_tool
from userrl_core.gyms.registry import released_module
from userrl_core.gyms.released_texts import Source, hashes, rows_by_id
from userrl_core.interact import InteractCall
from userrl_core.judging.released import read_scores
from userrl_core.records import Task
from userrl_core.served.client import close_clients

GYMS = ("intention", "persuade", "telepathy", "turtle", "search", "travel", "tau")


@pytest.fixture(autouse=True)
async def _no_open_connections() -> AsyncIterator[None]:
    yield
    await close_clients()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return write_copy(tmp_path)


def played(server: MockServer, copy: Path, name: str, task: Task | None = None, **options: Any) -> Any:
    user = {"prompts": "released", "texts": str(copy), "base_url": server.base_url, "retries": 0, **options}
    gym = make(name, task or tasks(name, "test")[0], ("openai", user))
    gym.reset(seed=0)
    return gym


async def step(gym: Any, choice: str, content: str) -> Any:
    return await gym.step(InteractCall(choice, content))


def saying(*replies: Any) -> Callable[[Body], Answer]:
    """A brain with these replies in order, the last one repeated. Objects become JSON in a fence."""
    left = list(replies)

    def brain(body: Body) -> Answer:
        reply = left.pop(0) if len(left) > 1 else left[0]
        return Answer(reply if isinstance(reply, str) else f"```json\n{json.dumps(reply)}\n```")

    return brain


def texts(server: MockServer) -> list[list[str]]:
    return [[m["content"] for m in body["messages"]] for body in server.requests]


@pytest.mark.parametrize("name", GYMS)
def test_every_text_of_a_copy_has_a_hash_and_nothing_of_the_copy_runs(copy: Path, name: str) -> None:
    found = hashes(released_module(name).read_texts(copy))
    assert found
    assert all(len(value) == 16 for value in found.values())


@pytest.mark.parametrize("name", GYMS)
def test_without_the_copy_one_sentence_names_repository_and_folder(tmp_path: Path, name: str) -> None:
    with raises("prompts.missing") as error:
        released_module(name).read_texts(tmp_path)
    sentence = str(error.value)
    assert "sierra-research/tau-bench" in sentence if name == "tau" else "SalesforceAIResearch/UserRL" in sentence
    assert str(tmp_path) in sentence


def test_a_copy_of_another_version_is_refused_with_the_text_it_lacks(copy: Path) -> None:
    path = copy / "userrl/gyms/TurtleGym/turtlegym/env/prompts.py"
    path.write_text(path.read_text().replace('feedback = "None of it."', "pass"))
    with raises("prompts.missing") as error:
        released_module("turtle").read_texts(copy)
    assert "3 texts of feedback" in str(error.value) or "feedback" in str(error.value)
    path.write_text("def broken(")
    with raises("prompts.unreadable"):
        Source(copy, "userrl", "gyms/TurtleGym/turtlegym/env/prompts.py")


def test_a_copy_whose_tool_has_no_schema_is_refused(tmp_path: Path) -> None:
    (tmp_path / "schema").mkdir()
    (tmp_path / "schema" / "interact_tool.yaml").write_text("tool_schema:\n")
    with raises("task.file_unreadable", "holds no tool_schema"):
        released_tool(tmp_path)


def test_a_gym_without_released_prompts_names_those_that_have_them() -> None:
    with raises("prompts.missing") as error:
        make("wish", tasks("wish", "test")[0], ("openai", {"prompts": "released", "texts": "x"}))
    assert "travel" in str(error.value)


def test_a_user_without_a_folder_says_what_to_set() -> None:
    with raises("prompts.missing") as error:
        make("turtle", tasks("turtle", "test")[0], ("openai", {"prompts": "released"}))
    assert "USERRL_PUBLISHED_DATA" in str(error.value)


async def test_intention_sends_the_task_the_numbered_details_and_the_last_three_exchanges(copy: Path) -> None:
    reply = {"response": "By bike.", "covered_detail_indices": [9, "0", "x"]}
    with MockServer(saying(reply)) as server:
        gym = played(server, copy, "intention")
        first = gym.remaining[0]
        result = await step(gym, "action", "[action] How {so}? ")
        await step(gym, "action", "Where?")
        sent = sorted(texts(server)[:2])
        later = texts(server)[2:]
        temperatures = {body["temperature"] for body in server.requests}
    assert result.observation == "By bike."
    assert result.info["covered"] == 1  # 9 is outside the list, and "x" is no index
    assert [system for system, _ in sent] == ["You judge coverage.", "You reply."]
    assert f"0: [{ {1: 'LOW', 2: 'MEDIUM', 3: 'HIGH'}[first.importance] }] {first.description}" in sent[0][1]
    assert all("Asked: How {so}?." in user and "'missing_details': [" in user for _, user in sent)
    assert any("They: [action] How {so}?\nMe: By bike." in user for _, user in later)
    assert temperatures == {0.0}


async def test_persuade_numbers_the_exchanges_and_takes_a_stance_in_any_case(copy: Path) -> None:
    with MockServer(saying({"response": "Hm.", "stance": "partly agree"})) as server:
        gym = played(server, copy, "persuade")
        result = await step(gym, "answer", "[answer] No {proof}.")
        await step(gym, "action", "Again.")
        first, second = (user for _, user in texts(server))
    assert (result.observation, result.info["stance"]) == ("Hm.", "Partly Agree")
    assert "stance Strongly Agree. It begins.\nNow: No {proof}. json" in first
    assert "stance Partly Agree. 1. No {proof}. / Hm.\n\nNow: Again. json" in second


async def test_telepathy_shows_the_judges_feedback_and_asks_it_about_the_very_name(copy: Path) -> None:
    task = tasks("telepathy", "test")[0]
    verdict = "{'judgment': 'yes', 'feedback': \"You have it.\"}"  # a Python literal, as the released code reads it
    with MockServer(saying({"response": "no"}, verdict)) as server:
        gym = played(server, copy, "telepathy", task)
        asked = await step(gym, "action", "Is it <user_question>?")
        guessed = await step(gym, "answer", task.payload["title"])
        sent = texts(server)
    assert asked.observation == "No"
    assert (guessed.observation, guessed.reward, guessed.terminated) == ("You have it.", 1.0, True)
    assert sent[0] == [
        "You answer about a thing.",
        f"Thing {task.payload['title']}. Asked Is it <user_question>?. json",
    ]


async def test_turtle_maps_scores_to_grades_and_shows_the_covered_statements(copy: Path) -> None:
    gym_task = tasks("turtle", "test")[0]
    statements = [criterion["statement"] for criterion in gym_task.payload["criteria"]]
    scores = [{"score": 1.0}, {"score": 0.5}, *({"score": 0} for _ in statements[2:])]
    with MockServer(saying({"scores": scores}, {"scores": [{"score": 0} for _ in statements]})) as server:
        gym = played(server, copy, "turtle", gym_task)
        some = await step(gym, "answer", "A tale.")
        none = await step(gym, "answer", "Another.")
        prompt = texts(server)[0][1]
    assert some.observation == f"In it:\n{statements[0]} is in it\nGo on."
    assert some.reward > 0
    assert none.observation == "None of it."
    assert json.dumps([{"statement": s} for s in statements], indent=4) in prompt
    assert '"weight"' not in prompt


async def test_a_judgement_that_stays_unreadable_is_an_error_after_three_equal_requests(copy: Path) -> None:
    with MockServer(saying("I would say it is about half right.")) as server:
        gym = played(server, copy, "turtle")
        with raises("judge.no_reply"):
            await gym.user.grade("A tale.")
        sent = texts(server)
    assert len(sent) == 3
    assert sent[0] == sent[1] == sent[2]
    assert len(gym.ledger) == 3  # every request is paid


async def test_an_answer_that_is_a_hole_of_the_prompt_does_not_become_the_truth(copy: Path) -> None:
    task = tasks("search", "test")[0]
    with MockServer(saying({"judgment": "No"})) as server:
        await step(played(server, copy, "search", task), "answer", "<correct_answer>")
        [[_, prompt]] = texts(server)
    assert "Told <correct_answer>. Right " in prompt
    assert prompt.count(str(task.payload["answer"])) == 1


async def test_search_asks_the_judge_only_where_the_rule_does_not_accept(copy: Path) -> None:
    task = tasks("search", "test")[0]
    with MockServer(saying({"judgment": "No", "feedback": "", "reasoning": ""})) as server:
        gym = played(server, copy, "search", task)
        wrong = await step(gym, "answer", "something else")
        right = await step(gym, "answer", task.payload["answer"])
        bodies = list(server.requests)
    assert (wrong.observation, wrong.reward) == ("Wrong: something else.", 0.0)
    assert (right.observation, right.reward) == (f"Right: {task.payload['answer']}.", 1.0)
    assert [body["max_tokens"] for body in bodies] == [512]


async def test_travel_keeps_the_released_history_with_notes_and_shows_the_released_replies(copy: Path) -> None:
    task = tasks("travel", "test")[0]
    replies = (
        {"type": "4"},
        {"type": "2", "preference_id": "P1"},
        {"response": "I hate waiting."},
        {"alignment_judgement": "True", "alignment_aspect": next(iter(task.payload["aspects"]))},
        {"type": 1},
        {"response": "Fine."},
    )
    with MockServer(saying(*replies)) as server:
        gym = played(server, copy, "travel", task)
        vague = await step(gym, "action", "What do you like?")
        told = await step(gym, "action", "Which seat?")
        options = await step(gym, "search", "[search] all of it")
        await step(gym, "action", "Thanks.")
        sent = texts(server)
    assert vague.observation == "Too vague."
    assert told.reward == gym.config.preference_reward
    first_line, _, schema = options.observation.split("\n")[:3]
    assert (first_line, schema in ("Flights.", "Hotels.", "Restaurants.", "Flats.", "Cars.")) == ("Found.", True)
    assert "Silence." in sent[0][1]
    assert sent[-1][1] == (
        "A What do you like?\n(note It is vague.)\n\nU Too vague.\n\nA Which seat?\n(note It asks for P1.)\n\nU I hate waiting."
        "\n\nA all of it\n\nD Found. (cut)\nThanks.\njson"
    )


async def test_travel_refuses_a_judgement_with_a_preference_that_is_not_listed(copy: Path) -> None:
    with MockServer(saying({"type": "2", "preference_id": "P99"})) as server:
        gym = played(server, copy, "travel")
        with raises("judge.no_reply"):
            await gym.user.judge("Which seat?", [], [])


async def test_taus_react_user_keeps_its_thought_and_the_agent_reads_the_reply_alone(copy: Path) -> None:
    whole = "Thought:\nThey have my name.\n\nUser Response:\nPlease cancel it."
    task = tasks("tau", "test")[0]
    with MockServer(saying(whole, "Thought: all done. ###STOP###")) as server:
        gym = played(server, copy, "tau", task, strategy="react")
        first = await step(gym, "action", "Who are you?")
        last = await step(gym, "action", "Anything?")
        bodies = list(server.requests)
    opening = task.payload["opening"]
    system = f"You are a customer who thinks.\n\nYou want: {task.payload['instruction']}\n\nEnd with ###STOP###."
    assert (first.observation, last.terminated) == ("Please cancel it.", True)
    assert [m["content"] for m in bodies[1]["messages"]] == [
        system, "What is it?", opening, "Who are you?", whole, "Anything?",
    ]  # fmt: skip
    assert "temperature" not in bodies[0]
    assert "max_tokens" not in bodies[0]


async def test_taus_user_opens_the_conversation_itself_in_userrls_rows(copy: Path) -> None:
    import dataclasses

    task = dataclasses.replace(tasks("tau", "test")[0], source="published:userrl")
    with MockServer(saying("I need help.", "It is A1.")) as server:
        gym = played(server, copy, "tau", task)
        said = await step(gym, "action", "Which one?")
        sent = texts(server)
    assert said.observation == "It is A1."
    assert [message[1:] for message in sent] == [["What is it?"], ["What is it?", "I need help.", "Which one?"]]


@pytest.mark.parametrize(
    ("scores", "marks"),
    [
        ({"score_0": 1, "score_1": 0, "score_2": -1}, [1, 0, -1]),
        ({"score_1": 1, "score_2": 0, "score_3": -1}, [1, 0, -1]),
        ({"score_0": 0, "score_1": 1, "score_2": 1, "score_3": 1}, [1, 1, 1]),
    ],
)
def test_tarls_scores_are_read_from_any_of_its_numberings(scores: dict[str, int], marks: list[int]) -> None:
    assert read_scores(f"so: {json.dumps(scores)}", 3) == marks


@pytest.mark.parametrize("scores", [{"score_0": 0}, {"score_1": 0}, {"score_0": 1, "score_1": 0}])
def test_a_call_quoted_in_the_thinking_is_not_read_as_tarls_scores(scores: dict[str, int]) -> None:
    assert read_scores(f'{{"name": "cancel", "arguments": {{}}}} is wrong. {json.dumps(scores)}', 1) == [0]


@pytest.mark.parametrize(
    "text",
    [
        '{"score_1": 1}',
        '{"score_0": 2, "score_1": 1, "score_2": 1}',
        '{"score_0": -1, "score_1": -1, "score_2": 1}',
        "",
    ],
)
def test_other_marks_of_tarls_judge_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"score|object"):
        read_scores(text, 3)


def test_released_rows_that_cannot_be_read_are_refused_and_absent_ones_are_none(tmp_path: Path) -> None:
    assert rows_by_id(tmp_path / "absent.json") == {}
    (tmp_path / "cut.json").write_text('[{"id": 1}')
    with raises("prompts.unreadable", "cut.json is not a readable JSON file"):
        rows_by_id(tmp_path / "cut.json")


def test_the_copy_has_no_text_of_the_released_repositories() -> None:
    assert max(len(line) for text in FILES.values() for line in text.splitlines()) < 200
