"""PersuadeGym's tasks: our own claims with an opening argument and weighted rebuttals, and the published claims.

Ours: `claims.json`, a list of ``{claim, argument, rebuttals: [[text, weight], ...]}``. Published: the parquet rows, which
hold a claim and an argument but no solution. All released test claims also occur in the released training rows, with
other arguments. The published splits are kept.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from userrl_core.errors import ConfigError
from userrl_core.gyms.pool import distinct_tasks
from userrl_core.gyms.released import read_json, read_parquet, released_splits, text_field
from userrl_core.records import Task
from userrl_core.seeding import Split, content_hash, derive_seed

ROWS = "persuasion_multiturn"


def tasks(split: str) -> Sequence[Task]:
    """Return our own tasks of a split. The split depends on the claim alone, so that each claim is in one split only."""
    return tuple(task for task in _ours() if task.split == split)


def generate(n: int, seed: int) -> list[Task]:
    """Return n variants of our claims, with the opening argument's sentences in another order and one rebuttal's
    weight redrawn.

    Raises ConfigError if there are fewer than n different ones.
    """
    if n < 1:
        raise ConfigError("argument.out_of_range", f"n is the number of tasks to generate. Give 1 or more, not {n}.")
    rng = random.Random(seed)
    return distinct_tasks("persuade", n, lambda: _variant(rng.choice(_bank()), rng))


def load_published(root: Path) -> list[Task]:
    """Return the released tasks of both splits (378 train, 42 test; 5 % of train become validation).

    Raises TaskError.
    """
    splits = released_splits(root, ROWS, "id")
    published = []
    for part in ("train", "test"):
        path = root / "data" / ROWS / f"{part}.parquet"
        for index, row in enumerate(read_parquet(path, ["reward_model"])):
            model = row["reward_model"]
            payload = {name: text_field(model, name, path, index) for name in ("claim", "argument")}
            key = text_field(model, "id", path, index)
            published.append(Task("persuade", key, splits[key], payload, source="published:userrl"))
    return published


def _variant(entry: Mapping[str, Any], rng: random.Random) -> Task:
    sentences = [part.strip() for part in str(entry["argument"]).split(". ")]
    sentences = [part if part.endswith(".") else f"{part}." for part in sentences]
    rng.shuffle(sentences)
    rebuttals = [list(pair) for pair in entry["rebuttals"]]
    weak = [pair for pair in rebuttals if pair[1] == 1]
    if weak and rng.random() < 0.5:
        rng.choice(weak)[1] = 2
    return _task({"claim": entry["claim"], "argument": " ".join(sentences), "rebuttals": rebuttals})


@lru_cache(maxsize=1)
def _ours() -> tuple[Task, ...]:
    return tuple(_task(entry) for entry in _bank())


def _task(entry: Mapping[str, Any]) -> Task:
    rebuttals = [{"text": text, "weight": weight} for text, weight in entry["rebuttals"]]
    payload = {"claim": entry["claim"], "argument": entry["argument"], "rebuttals": rebuttals}
    return Task("persuade", content_hash(payload), _splits()[entry["claim"]], payload)


@lru_cache(maxsize=1)
def _splits() -> dict[str, Split]:
    """Return the split of each claim, by the rank of its hash. A draw per claim would leave fewer than four for validation."""
    claims = sorted((entry["claim"] for entry in _bank()), key=lambda claim: derive_seed("persuade", claim))
    test = round(0.2 * len(claims))
    validation = max(4, round(0.05 * (len(claims) - test)))
    return {
        claim: "test" if rank < test else "validation" if rank < test + validation else "train"
        for rank, claim in enumerate(claims)
    }


@lru_cache(maxsize=1)
def _bank() -> list[dict[str, Any]]:
    bank: list[dict[str, Any]] = read_json(Path(str(files("userrl_core.gyms.persuade") / "claims.json")), list)
    return bank
