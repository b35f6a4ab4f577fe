"""SearchGym: its corpus, its limits, what counts as an answer, and the web backend against a server on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.gigabyte import gzipped_gigabyte, little_memory
from tests.makers import raises
from tests.mock_server import Answer, MockServer
from tests.published import published
from userrl_core.gyms import load_published, make, tasks
from userrl_core.gyms.search.backend import LocalBackend
from userrl_core.gyms.search.corpus import corpus
from userrl_core.gyms.search.gym import SearchConfig, SearchGym
from userrl_core.gyms.validate import validate
from userrl_core.interact import InteractCall
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import Task
from userrl_core.rollout import run_episodes
from userrl_core.served.bounded import MAX_BYTES


def every_task() -> list[Task]:
    return [task for split in ("train", "validation", "test") for task in tasks("search", split)]


def started(task: Task | None = None, user: object = "rule", **config: object) -> SearchGym:
    gym = make("search", task or every_task()[0], user, **config)
    gym.reset(seed=0)
    return gym


def web_task() -> Task:
    payload = {"question": "Who?", "answer": "Ada", "aliases": [], "source": "web", "hops": ["Who?"]}
    return Task("search", "w", "test", payload)


@contextmanager
def serper(*replies: tuple[int, object]) -> Iterator[tuple[str, list[tuple[str, dict]]]]:
    """A web search on loopback that gives these replies in turn, the last one repeatedly."""
    requests: list[tuple[str, dict]] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, reply = replies[min(len(requests), len(replies) - 1)]
            requests.append((self.headers["x-api-key"], body))
            payload = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
            self.send_response(status)
            if payload.startswith(b"\x1f\x8b"):
                self.send_header("content-encoding", "gzip")
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            with suppress(ConnectionError):  # whoever asked has read enough
                self.wfile.write(payload)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/search", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def test_two_searches_find_every_answer_and_one_does_not():
    backend = LocalBackend(corpus())
    for question in corpus().questions:
        first, second = [await backend.search(hop, 5) for hop in question.hops]
        subject = question.hops[1].split(" town ")[0].removesuffix(" born")
        assert any(subject in hit.snippet for hit in first), question
        assert any(subject in hit.title and question.answer in hit.snippet for hit in second), question
        assert first[0].title != second[0].title, question


async def test_a_search_shows_the_five_best_articles_and_earns_nothing():
    gym = started()
    result = await gym.step(InteractCall("search", "town river founded"))
    assert (len(result.observation.splitlines()), result.reward, result.info["results"]) == (5, 0.0, 5)
    assert result.observation.startswith("1. ")


async def test_the_sixth_search_is_refused_and_the_answer_still_counts():
    gym = started()
    for _ in range(5):
        assert (await gym.step(InteractCall("search", "town"))).info["results"] == 5
    sixth = await gym.step(InteractCall("search", "town"))
    assert (sixth.reward, sixth.terminated, gym.searches) == (0.0, False, 5)
    assert sixth.observation.startswith("No search is left")
    assert (await gym.step(InteractCall("answer", gym.task.payload["answer"]))).reward == 1.0


async def test_a_blank_search_counts():
    gym = started(max_searches=1)
    assert (await gym.step(InteractCall("search", " "))).observation == "Say what to look up."
    assert (await gym.step(InteractCall("search", "town"))).observation.startswith("No search is left")


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("Titan IIIE", True),
        ("titan iiie.", True),
        ("The Titan-IIIE", True),
        ("TITAN III E", True),
        ("Titan", False),
        ("Titan IIIE or Saturn V", False),
        ("", False),
    ],
)
async def test_the_rule_compares_letters_and_digits(answer, right):
    payload = {"question": "?", "answer": "Titan IIIE", "aliases": [], "source": "local", "hops": ["?"]}
    gym = started(Task("search", "x", "test", payload))
    result = await gym.step(InteractCall("answer", answer))
    assert (result.reward, result.terminated) == ((1.0, True) if right else (0.0, False))


async def test_the_served_judge_is_called_only_when_the_rule_does_not_accept_the_answer():
    with MockServer(lambda body: Answer(json.dumps({"thought": "", "correct": "yes"}))) as server:
        user = ("openai", {"base_url": server.base_url, "model": "m"})
        exact = started(user=user)
        assert (await exact.step(InteractCall("answer", exact.task.payload["answer"]))).reward == 1.0
        assert server.requests == []
        wordy = started(user=user)
        assert (await wordy.step(InteractCall("answer", "I believe it was then."))).reward == 1.0
        assert len(server.requests) == 1
    assert [call.role for call in wordy.ledger] == ["judge"]


async def test_the_web_backend_shows_the_results_of_the_service(monkeypatch):
    monkeypatch.setenv("SERPER_API_KEY", "secret-key")
    rows = [{"title": f"T{i}", "snippet": f"text {i}"} for i in range(8)]
    body = {"organic": [*rows, {"title": "no snippet"}, 7], "answerBox": {"title": "Box", "answer": "Ada"}}
    with serper((200, body)) as (url, requests):
        gym = started(web_task(), web_url=url)
        result = await gym.step(InteractCall("search", "who was it"))
        await gym.aclose()
    assert result.observation == "1. Box: Ada\n2. T0: text 0\n3. T1: text 1\n4. T2: text 2\n5. T3: text 3"
    assert requests == [("secret-key", {"q": "who was it", "num": 5})]


@pytest.mark.parametrize(
    "bad", [(500, {}), (200, b"<html>"), (200, [1]), (200, {"organic": 7}), (403, {"message": "k"})]
)
async def test_a_web_search_that_fails_is_an_error_without_key_or_body_and_not_an_empty_result(monkeypatch, bad):
    monkeypatch.setenv("SERPER_API_KEY", "secret-key")
    with serper(bad) as (url, requests):
        gym = started(web_task(), web_url=url, web_retries=0)
        with raises("gym.server_failed") as caught:
            await gym.step(InteractCall("search", "q"))
        await gym.aclose()
    assert "secret" not in str(caught.value)
    assert (gym.searches, gym.rewards, len(requests)) == (0, [], 1)


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (gzipped_gigabyte(), "sent a compressed reply, though a plain one was asked for."),
        (b" " * (MAX_BYTES + 1), "sent a reply that is longer than 32 MB."),
    ],
)
async def test_a_web_search_that_would_fill_the_memory_is_one_sentence_and_a_null_reward(monkeypatch, reply, says):
    monkeypatch.setenv("SERPER_API_KEY", "secret-key")
    with serper((200, reply)) as (url, requests), little_memory():
        gym_config = {"search": {"web_url": url}}
        (trajectory,) = await run_episodes([web_task()], ScriptedPolicy(1.0), horizon=3, gym_config=gym_config)
    assert (trajectory.score, trajectory.admitted, trajectory.rewards) == (None, False, [None])
    assert trajectory.reject_reason == f"user: Web search at 127.0.0.1 {says}"
    assert len(requests) == 1


async def test_a_failed_web_search_is_retried(monkeypatch):
    monkeypatch.setenv("SERPER_API_KEY", "k")
    with serper((500, {}), (200, {"organic": []})) as (url, requests):
        gym = started(web_task(), web_url=url, web_retries=1)
        assert (await gym.step(InteractCall("search", "q"))).observation == "Nothing was found."
        await gym.aclose()
    assert len(requests) == 2


def test_a_web_task_without_a_key_is_not_playable(monkeypatch):
    monkeypatch.delenv("SERPER_API_KEY", raising=False)
    with raises("gym.no_key", "SERPER_API_KEY"):
        make("search", web_task())
    result = validate(web_task())
    assert (result.ok, result.playable) == (False, False)


def test_the_gold_solution_respects_the_search_limit():
    task = every_task()[0]
    assert [c.choice for c in SearchGym.gold(task, SearchConfig())] == ["search", "search", "answer"]
    assert [c.choice for c in SearchGym.gold(task, SearchConfig(max_searches=0))] == ["answer"]
    assert all(validate(task).ok for task in tasks("search", "test"))


def test_the_released_questions_are_test_tasks_for_the_web_backend(monkeypatch):
    loaded = load_published("search", published("userrl"))
    assert len(loaded) == 125
    assert {(task.split, task.payload["source"]) for task in loaded} == {("test", "web")}
    monkeypatch.delenv("SERPER_API_KEY", raising=False)
    assert {validate(task).playable for task in loaded} == {False}
    monkeypatch.setenv("SERPER_API_KEY", "k")
    assert all(validate(task).ok for task in loaded)


def test_a_bad_released_question_names_file_index_and_field(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "gyms/SearchGym/searchgym/data/questions.json"
    path.parent.mkdir(parents=True)
    folder = tmp_path / "data/bamboogle_multiturn"
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist([{"reward_model": {"id": "B-1"}}]), folder / "test.parquet")
    good = {"id": "B-1", "question": "Who?", "answer": "Ada"}
    path.write_text(json.dumps([good]))
    assert [task.id for task in load_published("search", tmp_path)] == ["B-1"]
    path.write_text(json.dumps([good, {"id": "B-2", "question": "Who?"}]))
    with raises("task.invalid_field", "questions.json, entry 1", "'answer'"):
        load_published("search", tmp_path)
    for text, fact in (
        ("{", "it is not JSON"),
        ('[{"id": "B-1", "id": "B-2"}]', "an object has the key 'id' twice"),
        ('[{"id": "B-1", "level": NaN}]', "a number is not finite, or is beyond 64 bits"),
        ('[{"id": 18446744073709551617}]', "a number is not finite, or is beyond 64 bits"),
    ):
        path.write_text(text)
        with raises("task.file_unreadable", f"{path}: {fact}"):
            load_published("search", tmp_path)
