"""Tasks of SearchQA: our own questions, two tiers for models of laptop size, and the seven published question sets.

Published questions are read from ``searchqa/SET/{train,dev,test}.jsonl``, rows ``{"id", "question",
"golden_answers"}``. This is the format of FlashRAG's sets for Search-R1. At most 400 questions of a set are test
tasks (AgentGym-RL B.2; Bamboogle has 125). The paper's selection is not published; ours has the lowest hashes of the
id. NQ and HotpotQA are the training sets, as released.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

from userrl_core.chats.stream import value_of
from userrl_core.chats.values import BrokenFile
from userrl_core.errors import ConfigError, MissingFileError, TaskError
from userrl_core.gyms.pool import THINGS, check_sizes, distinct_tasks
from userrl_core.gyms.released import check_filled, text_field
from userrl_core.gyms.searchqa.corpus import corpus
from userrl_core.records import Task
from userrl_core.seeding import content_hash, split_of

FOLDER = "searchqa"
SETS = ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle")
TRAINED = ("nq", "hotpotqa")
TESTED = 400
"""Most test questions of a set (AgentGym-RL B.2)."""
HOPS = (1, 2, 3)
PER_HOPS = 552
ASKED = ("owner", "maker", "guard", "heir")
"""The relations of a thing in the tiny and sentence tiers."""
STATEMENTS = {"tiny": 2, "sentence": 1}
"""Number of statements in an article. With two, the question's relation says which one leads on."""
TIERS = ("full", *STATEMENTS)


def tasks(split: str, *, tier: str = "full", hops: Iterable[int] = HOPS) -> Sequence[Task]:
    """Return our questions of a split with the given numbers of hops.

    tier: ``full`` (our corpus), ``tiny`` or ``sentence``. Raises ConfigError for others.
    """
    chosen = check_sizes(hops, HOPS[-1], "SearchQA has numbers of hops")
    if tier not in TIERS:
        raise ConfigError(
            "task.bad_option", f"SearchQA has no tier '{tier}'. Use {', '.join(TIERS[:-1])} or {TIERS[-1]}."
        )
    pool = _corpus() if tier == "full" else tuple(chain.from_iterable(_own_articles(tier, number) for number in chosen))
    return [task for task in pool if task.split == split and len(task.payload["hops"]) in chosen]


def generate(n: int, seed: int, *, hops: int = 2, tier: str = "tiny") -> list[Task]:
    """Return n tasks of the tiny or the sentence tier. Raises ConfigError for unknown ones, and if n is too many."""
    check_sizes([hops], HOPS[-1], "SearchQA has numbers of hops")
    if tier not in STATEMENTS:
        raise ConfigError("task.bad_option", f"SearchQA generates no tier '{tier}'. Use {' or '.join(STATEMENTS)}.")
    return _draw(n, hops, tier, Random(f"searchqa/{hops}/{seed}"))


def load_published(root: Path) -> list[Task]:
    """Return the questions of the available sets, each set a tier, for answers by web search.

    root: the folder ``searchqa`` or its parent. Raises MissingFileError if no set is available, and TaskError with file, line
    and field for a bad row.
    """
    folder = root / FOLDER if (root / FOLDER).is_dir() else root
    published: list[Task] = []
    for name in SETS:
        held_out = next((path for part in ("test", "dev") if (path := folder / name / f"{part}.jsonl").is_file()), None)
        if held_out is not None:
            set_tasks = _rows(held_out, name, "test")
            published += sorted(set_tasks, key=lambda task: content_hash(["searchqa", task.id]))[:TESTED]
        if name in TRAINED and (path := folder / name / "train.jsonl").is_file():
            published += _rows(path, name, "train")
    if not published:
        raise MissingFileError(
            "task.file_missing", f"{folder} contains neither {SETS[0]}/test.jsonl nor another question set."
        )
    return published


def _rows(path: Path, name: str, split: str) -> Iterator[Task]:
    content = path.read_bytes()
    check_filled(content.strip(), path)
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row: Any = value_of(line, f"{path}, line {number}")
        except BrokenFile as error:
            raise TaskError("task.file_unreadable", error.fact) from None
        key, question = (text_field(row, field, path, number) for field in ("id", "question"))
        answers = row.get("golden_answers")
        if not isinstance(answers, list) or not answers or not all(isinstance(a, str) and a for a in answers):
            raise TaskError(
                "task.invalid_field",
                f"{path}, line {number}: field 'golden_answers' must be a list with at least one text.",
            )
        question = question.strip() if question.strip().endswith("?") else f"{question.strip()}?"
        payload = {"question": question, "answers": answers, "hops": [question], "source": "web"}
        yield Task("searchqa", f"{name}_{key}", split, payload, "published:flashrag", name)  # type: ignore[arg-type]


@lru_cache(maxsize=1)
def _corpus() -> tuple[Task, ...]:
    corpus_tasks = []
    for question in corpus().questions:
        digest = content_hash(["searchqa", question.text, question.answer])
        payload = {
            "question": question.text,
            "answers": [question.answer],
            "hops": list(question.hops),
            "source": "local",
        }
        corpus_tasks.append(Task("searchqa", digest, split_of(digest), payload, tier=f"hops-{len(question.hops)}"))
    return tuple(corpus_tasks)


@lru_cache(maxsize=len(HOPS) * len(STATEMENTS))
def _own_articles(tier: str, hops: int) -> tuple[Task, ...]:
    return tuple(_draw(PER_HOPS, hops, tier, Random(f"searchqa/{hops}")))


def _draw(n: int, hops: int, tier: str, rng: Random) -> list[Task]:
    """Draw n different tasks. Each is a chain of things. Every article names the next thing, in the tiny tier also a distractor."""

    def draw() -> Task:
        entities = rng.sample(THINGS, 2 * hops + 1)
        links, elsewhere = entities[: hops + 1], entities[hops + 1 :]
        relations, articles = [], {}
        for entity, leads_to, other in zip(links[:-1], links[1:], elsewhere, strict=True):
            relation, another = rng.sample(ASKED, 2)
            sentences = [f"{relation} {leads_to}", f"{another} {other}"][: STATEMENTS[tier]]
            rng.shuffle(sentences)
            relations.append(relation)
            articles[entity] = " ".join(sentences)
        of = " of ".join(f"the {relation}" for relation in reversed(relations))
        payload = {
            "question": f"What is {of} of the {links[0]}?",
            "words": " ".join([links[0], *relations]),
            "answers": [links[-1]],
            "hops": links[:-1],
            "source": "local",
            "articles": articles,
            "short": True,
        }
        digest = content_hash(payload)
        task_id, task_tier = (digest, f"hops-{hops}") if tier == "tiny" else (f"{tier}-{digest}", f"{tier}-{hops}")
        return Task("searchqa", task_id, split_of(digest), payload, tier=task_tier)

    return distinct_tasks("searchqa", n, draw)
