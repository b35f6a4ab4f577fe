"""FunctionGym's tasks: generated rules, and the 538 published ones (UserRL appendix C).

A rule of ours uses each of a, b, c, d once, with the published operators (sum, difference, product, quotient, square). The
``hard`` tier adds remainder, integer division, minimum, maximum and absolute value.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from userrl_core.errors import ConfigError, TaskError
from userrl_core.gyms.function.expression import compile_rule, evaluate
from userrl_core.gyms.function.gym import check_payload
from userrl_core.gyms.pool import distinct_tasks
from userrl_core.gyms.released import check_same, read_json, read_parquet, text_field
from userrl_core.records import Task
from userrl_core.seeding import content_hash, split_of, validation_of

OWN = 1200
"""Number of our tasks per tier, over all splits."""
TIERS = ("easy", "hard")
_EASY_OPERATORS = ("+", "-", "*", "/", "+", "-", "*")
_HARD_OPERATORS = ("//", "%", "min", "max")
_MAX_VALUE = 5000.0
DATA = "gyms/FunctionGym/functiongym/data/functions.json"
SPLITS = {"train": "data/function_multiturn/train.parquet", "test": "data/function_multiturn/test.parquet"}


def tasks(split: str, tier: str = "easy") -> Sequence[Task]:
    """Return our own tasks of a split. tier: ``easy`` (published operators) or ``hard``."""
    return [task for task in _own(tier) if task.split == split]


@lru_cache(maxsize=4)
def _own(tier: str) -> tuple[Task, ...]:
    return tuple(generate(OWN, 0, tier=tier))


def generate(n: int, seed: int, tier: str = "easy") -> list[Task]:
    """Return n distinct tasks. Raises ConfigError for an unknown tier."""
    if tier not in TIERS:
        raise ConfigError("task.bad_option", f"Gym 'function' has no tier '{tier}'. It has {', '.join(TIERS)}.")
    rng = random.Random(f"function/{tier}/{seed}")
    return distinct_tasks("function", n, lambda: _task(rng, tier))


def _task(rng: random.Random, tier: str) -> Task | None:
    payload = _compose(rng, tier)
    if payload is None:
        return None
    digest = content_hash(payload)
    return Task("function", digest, split_of(digest), payload, tier=tier)


def _compose(rng: random.Random, tier: str) -> dict[str, Any] | None:
    rule = _expression(rng, rng.sample("abcd", 4), tier)
    function = compile_rule.__wrapped__(rule)
    # Only test cases with an integer value: an answer within 1e-6 should not need twelve decimals.
    for _ in range(12):
        numbers = [rng.randint(1, 10) for _ in range(4)]
        value = evaluate(function, [float(x) for x in numbers])
        if value is not None and value == round(value) and abs(value) <= _MAX_VALUE:
            return {"rule": rule, "test_case": numbers, "expected": value}
    return None


def _expression(rng: random.Random, letters: list[str], tier: str) -> str:
    if len(letters) == 1:
        return f"{letters[0]} ** 2" if rng.random() < 0.12 else letters[0]
    cut = rng.randint(1, len(letters) - 1)
    left, right = _expression(rng, letters[:cut], tier), _expression(rng, letters[cut:], tier)
    sign = rng.choice(_HARD_OPERATORS if tier == "hard" and rng.random() < 0.3 else _EASY_OPERATORS)
    if sign in ("min", "max"):
        return f"{sign}({left}, {right})"
    if sign == "-" and tier == "hard" and rng.random() < 0.4:
        return f"abs({left} - {right})"
    return f"{_bracket(left)} {sign} {_bracket(right)}"


def _bracket(text: str) -> str:
    is_atomic = len(text) == 1 or (text.startswith(("abs(", "min(", "max(")) and _closes_at_end(text))
    return text if is_atomic else f"({text})"


def _closes_at_end(text: str) -> bool:
    depth = 0
    for position, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if sign == ")" and depth == 0:
            return position == len(text) - 1
    return False


def load_published(root: Path) -> list[Task]:
    """Return the published rules with their published splits. Validation is 5 % of train, by hash.

    Joins ``functions.json`` with the ids of the two parquet files. Raises TaskError.
    """
    path = root / DATA
    by_id: dict[str, dict[str, Any]] = {}
    for index, record in enumerate(read_json(path, list)):
        where = f"{DATA}, record {index}"
        if not isinstance(record, dict):
            raise TaskError("task.invalid_field", f"{where}: this must be an object.")
        for field in ("id", "rule", "test_case", "expected_result"):
            if field not in record:
                raise TaskError("task.invalid_field", f"{where}: field '{field}' is missing.")
        name = text_field(record, "id", path, index)
        payload = {"rule": record["rule"], "test_case": record["test_case"], "expected": record["expected_result"]}
        check_payload(payload, where)
        if name in by_id:
            raise TaskError(
                "task.duplicate", f"{where}: id '{name}' occurs twice. Give every task an id that no other has."
            )
        by_id[name] = payload
    rows = [
        (split, f"{name}, row {index}", text_field(row["reward_model"], "id", root / name, index))
        for split, name in SPLITS.items()
        for index, row in enumerate(read_parquet(root / name, ["reward_model"]))
    ]
    check_same([identity for _, _, identity in rows], by_id, path)
    loaded: dict[str, Task] = {}
    for split, where, identity in rows:
        if identity in loaded:
            raise TaskError("task.duplicate", f"{where}: reward_model.id '{identity}' is in two splits.")
        payload = by_id[identity]
        task_split = "test" if split == "test" else validation_of(content_hash(payload))
        loaded[identity] = Task("function", identity, task_split, payload, source="published:userrl")
    return list(loaded.values())
