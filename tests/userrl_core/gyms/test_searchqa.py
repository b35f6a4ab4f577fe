"""SearchQA: its corpus, what counts as an answer, the question sets, and any search service over HTTP."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from curricula.data import missing_search_key
from tests.makers import raises
from userrl_core.gyms import load_published, make, tasks
from userrl_core.gyms.clones import import_clone
from userrl_core.gyms.search.backend import LocalBackend
from userrl_core.gyms.search.corpus import corpus as held_out_corpus
from userrl_core.gyms.searchqa.corpus import corpus
from userrl_core.gyms.searchqa.gym import plain
from userrl_core.gyms.searchqa.tasks import SETS, generate
from userrl_core.gyms.validate import validate
from userrl_core.interact import InteractCall
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import Task
from userrl_core.rollout import run_episodes

WEB = Task(
    "searchqa", "w", "test", {"question": "Who?", "answers": ["Ada", "A. L."], "source": "web", "hops": ["Who?"]}
)


@contextmanager
def search_service(answer: Any, status: int = 200) -> Iterator[tuple[str, list[tuple[str, dict[str, Any], str]]]]:
    """A search service on loopback; what it was asked: method, fields, key."""
    asked: list[tuple[str, dict[str, Any], str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply({name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()})

        def do_POST(self) -> None:
            self.reply(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def reply(self, fields: dict[str, Any]) -> None:
            asked.append((self.command, fields, self.headers.get("x-token", "")))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/find", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


RETRIEVER = {
    "query": "queries",
    "batched": True,
    "count": "topk",
    "fields": {"return_scores": True},
    "results": "result.0",
    "title": "document.title",
    "text": ["document.contents"],
    "key_env": None,
}
"""Search-R1's retrieval server."""
SEARXNG = {"method": "GET", "fields": {"format": "json"}, "results": "results", "text": ["content"], "key_env": None}


async def search(endpoint: dict[str, Any]) -> str:
    gym = make("searchqa", WEB, endpoint=endpoint, web_retries=0)
    gym.reset(seed=0)
    try:
        return (await gym.step(InteractCall("search", "first programmer"))).observation
    finally:
        await gym.aclose()


async def test_a_retrieval_server_of_search_r1_and_a_searxng_are_asked_in_their_own_words():
    passages = {"result": [[{"document": {"contents": f"T{n}\ntext {n}"}, "score": 1.0} for n in range(5)]]}
    with search_service(passages) as (url, asked):
        assert await search({"url": url, **RETRIEVER}) == "1. T0: text 0\n2. T1: text 1\n3. T2: text 2"
    assert asked == [("POST", {"queries": ["first programmer"], "topk": 3, "return_scores": True}, "")]
    with search_service({"results": [{"title": "Ada", "content": "wrote it"}, {"title": "no text"}]}) as (url, asked):
        assert await search({"url": url, **SEARXNG}) == "1. Ada: wrote it"
    assert asked == [("GET", {"q": "first programmer", "num": "3", "format": "json"}, "")]


async def test_the_key_comes_from_the_environment_goes_into_its_header_and_into_no_error(monkeypatch):
    monkeypatch.setenv("MY_SEARCH_KEY", "secret-key")
    endpoint = {**SEARXNG, "key_env": "MY_SEARCH_KEY", "key_header": "X-Token"}
    with search_service({"results": []}) as (url, asked):
        assert await search({"url": url, **endpoint}) == "Nothing was found."
    assert [key for _, _, key in asked] == ["secret-key"]
    with search_service({"message": "secret-key"}, 403) as (url, _), raises("gym.server_failed") as caught:
        await search({"url": url, **endpoint})
    assert "secret" not in str(caught.value)
    with search_service({"found": []}) as (url, _), raises("gym.server_failed"):
        await search({"url": url, **endpoint})  # an answer of another form is no empty result


def test_a_web_question_needs_the_key_that_its_service_names_and_no_other(monkeypatch):
    monkeypatch.delenv("SERPER_API_KEY", raising=False)
    with raises("gym.no_key", "SERPER_API_KEY", "google.serper.dev"):
        make("searchqa", WEB)
    assert (validate(WEB).ok, validate(WEB).playable) == (False, False)
    assert "SERPER_API_KEY is not set" in missing_search_key("searchqa", {}, set())
    assert missing_search_key("searchqa", {"endpoint": {"key_env": None}}, set()) == ""
    assert missing_search_key("searchqa", {"backend": "local"}, set()) == ""


async def test_a_search_for_each_hop_finds_the_next_article_and_the_answer():
    engine = LocalBackend(corpus())
    for question in corpus().questions:
        for hop, onward in zip(question.hops, (*question.hops[1:], question.answer), strict=True):
            subject = onward.split(" town ")[0].removesuffix(" born")
            assert any(subject in hit.snippet for hit in await engine.search(hop, 3)), (question, hop)


def test_nothing_of_the_held_out_search_gym_is_in_its_corpus():
    assert Counter(len(question.hops) for question in corpus().questions) == {1: 144, 2: 192, 3: 84}
    assert not {d.title for d in corpus().documents} & {d.title for d in held_out_corpus().documents}
    assert not {q.text for q in corpus().questions} & {q.text for q in held_out_corpus().questions}


async def test_the_tiny_tier_says_one_article_and_nothing_else():
    task = generate(1, 0, hops=2)[0]
    gym = make("searchqa", task)
    gym.reset(seed=0)
    thing, *asked = gym.brief().split()
    for relation in asked:
        said = (await gym.step(InteractCall("search", thing))).observation.split()
        thing = dict(zip(said[::2], said[1::2], strict=True))[relation]
    assert (await gym.step(InteractCall("search", "unicorn"))).observation == "no"
    ended = await gym.step(InteractCall("answer", f"The {thing}."))
    assert (ended.observation, ended.reward, ended.terminated) == ("done", 1.0, True)


async def test_an_article_of_the_sentence_tier_has_one_statement_and_its_tasks_say_so():
    by_split = {split: tasks("searchqa", split, tier="sentence") for split in ("train", "validation", "test")}
    every = [task for some in by_split.values() for task in some]
    assert Counter(task.tier for task in every) == {f"sentence-{hops}": 552 for hops in (1, 2, 3)}
    assert all(task.id.startswith("sentence-") for task in every)
    assert all(len(article.split()) == 2 for task in every for article in task.payload["articles"].values())
    assert not {task.id for task in every} & {task.id for task in tasks("searchqa", "train", tier="tiny")}
    assert all(validate(task).ok for task in every[::50])
    with raises("task.bad_option", "full, tiny or sentence"):
        tasks("searchqa", "train", tier="short")
    with raises("task.bad_option", "tiny or sentence"):
        generate(1, 0, tier="full")
    with raises("task.too_few", "2500"):  # there are 2208 of one hop
        generate(2500, 0, hops=1, tier="sentence")


async def test_the_demonstrator_follows_so_many_hops_and_then_acts_at_random():
    some = [generate(1, seed, hops=3, tier="sentence")[0] for seed in range(20)]
    limited = {"searchqa": {"demonstrator_hops": 2}}
    played = await run_episodes(some, ScriptedPolicy(1.0), horizon=4, gym_config=limited)
    assert all([turn.content for turn in one.turns][:2] == one.task.payload["hops"][:2] for one in played)
    assert {one.score for one in played} == {0.0}
    assert {one.score for one in await run_episodes(some, ScriptedPolicy(1.0), horizon=4)} == {1.0}


async def test_a_wrong_answer_ends_the_episode():
    gym = make("searchqa")
    gym.reset(seed=0)
    ended = await gym.step(InteractCall("answer", "no idea"))
    assert (ended.reward, ended.terminated, ended.info["success"]) == (0.0, True, False)


@pytest.mark.parametrize(("said", "reward"), [("A", 1.0), (" ", 0.0), (".", 0.0)])
async def test_an_answer_without_a_letter_or_digit_is_wrong_even_where_an_article_is_right(said, reward):
    task = tasks("searchqa", "train")[0]
    gym = make("searchqa", replace(task, payload={**task.payload, "answers": ["A"]}))
    gym.reset(seed=0)
    assert (await gym.step(InteractCall("answer", said))).reward == reward


@pytest.mark.parametrize(
    ("said", "compared"), [("The  U.S.A.", "usa"), ("a theory of an answer", "theory of answer"), ("1,889", "1889")]
)
def test_answers_are_compared_as_search_r1_compares_them(said, compared):
    assert plain(said) == compared


def question_sets(folder: Path, rows: int = 450) -> Path:
    """The seven sets as FlashRAG publishes them: Bamboogle 125 questions, two sets with a training split, some dev alone."""
    for name in SETS:
        (folder / name).mkdir(parents=True)
        for split in ["train", "dev"] if name == "hotpotqa" else ["train", "test"] if name == "nq" else ["test"]:
            count = 125 if name == "bamboogle" else rows
            lines = [{"id": f"{split}_{n}", "question": f"q {n}", "golden_answers": ["Ada"]} for n in range(count)]
            (folder / name / f"{split}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_of_each_question_set_400_are_tested_on_and_two_are_trained_on(tmp_path):
    source = question_sets(tmp_path / "sets")
    assert import_clone(source, tmp_path / "data") == "agentgym/searchqa"
    loaded = load_published("searchqa", tmp_path / "data" / "agentgym")
    counted = Counter((task.tier, task.split) for task in loaded)
    held_out = {(name, "test"): 125 if name == "bamboogle" else 400 for name in SETS}
    assert counted == {**held_out, ("nq", "train"): 450, ("hotpotqa", "train"): 450}
    assert len({task.id for task in loaded}) == len(loaded)
    assert {task.id for task in load_published("searchqa", source)} == {task.id for task in loaded}
    assert loaded[0].payload["question"].endswith("?")


@pytest.mark.parametrize(
    ("row", "code", "where"),
    [
        ('{"id": "x", "question": "q", "golden_answers": []}', "task.invalid_field", "nq/test.jsonl, line 3"),
        ('{"id": "x"}', "task.invalid_field", "nq/test.jsonl, entry 3"),
        ("{", "task.file_unreadable", "nq/test.jsonl, line 3"),
        (
            '{"id": "x", "question": "q", "golden_answers": ["a"], "golden_answers": ["b"]}',
            "task.file_unreadable",
            "nq/test.jsonl, line 3: an object has the key 'golden_answers' twice",
        ),
    ],
)
def test_a_bad_row_names_file_and_line(tmp_path, row, code, where):
    source = question_sets(tmp_path, rows=2)
    path = source / "nq" / "test.jsonl"
    path.write_text(f"{path.read_text()}{row}\n")
    with raises(code, where):
        load_published("searchqa", tmp_path)


def test_hops_tiers_and_sets_that_are_not_there_are_refused_in_a_sentence(tmp_path):
    with raises("task.bad_option"):
        tasks("searchqa", "train", hops=[1, 7])
    with raises("task.bad_option"):
        tasks("searchqa", "train", tier="huge")
    with raises("task.bad_option"):
        generate(1, 0, hops=9)
    with raises("task.file_missing", "nq/test.jsonl"):
        load_published("searchqa", tmp_path)
