"""SearchGym's tasks: two-hop questions over the local corpus, and the released Bamboogle questions for web search."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from userrl_core.errors import TaskError
from userrl_core.gyms.pool import draw_tasks
from userrl_core.gyms.released import check_same, read_json, released_splits, text_field
from userrl_core.gyms.search.corpus import ArticleQuestion, corpus
from userrl_core.records import Task
from userrl_core.seeding import content_hash, split_of

RELEASED_QUESTIONS = Path("gyms/SearchGym/searchgym/data/questions.json")


def tasks(split: str) -> Sequence[Task]:
    """Return our questions of a split."""
    return [task for task in _all() if task.split == split]


def generate(n: int, seed: int) -> list[Task]:
    """Return n of our questions, drawn with the seed. Raises ConfigError if there are fewer than n."""
    return draw_tasks(_all(), n, seed, "SearchGym's own corpus")


def load_published(root: Path) -> list[Task]:
    """Return the 125 released questions. All are test tasks and need the web backend (payload: source).

    Raises TaskError.
    """
    path = root / RELEASED_QUESTIONS
    splits = released_splits(root, "bamboogle_multiturn", "id")
    rows = [
        [text_field(row, field, path, index) for field in ("id", "question", "answer")]
        for index, row in enumerate(read_json(path, list))
    ]
    check_same(splits, [name for name, _, _ in rows], path)
    published = []
    for index, (name, question, answer) in enumerate(rows):
        if splits[name] != "test":
            raise TaskError(
                "task.invalid_field",
                f"{path}, entry {index}: field 'id' ({name}) names a training row, and this set is for tests only.",
            )
        payload = {"question": question, "answer": answer, "aliases": [], "source": "web", "hops": [question]}
        published.append(Task("search", name, "test", payload, "published:userrl"))
    return published


@lru_cache(maxsize=1)
def _all() -> list[Task]:
    return [_task(question) for question in corpus().questions]


def _task(question: ArticleQuestion) -> Task:
    payload = {
        "question": question.text,
        "answer": question.answer,
        "aliases": [],
        "source": "local",
        "hops": list(question.hops),
    }
    name = content_hash(["search", question.text, question.answer])
    return Task("search", name, split_of(name), payload)
