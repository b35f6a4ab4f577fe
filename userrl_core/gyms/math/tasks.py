"""The math gym's tasks: generated problems with one integer answer, in four tiers (for TARL's mixed tasks, section 4.2).

Every problem of easy, medium and hard draws its numbers within one of its tier's families. The tier of laptop size, step, adds
1 or 2 to a number of three digits, or takes it away, without a carry. The answer is computed, never parsed from the text.
"""

from __future__ import annotations

import itertools
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from random import Random

from userrl_core.errors import ConfigError
from userrl_core.gyms.pool import draw_tasks
from userrl_core.gyms.released import read_json, text_field
from userrl_core.records import Task
from userrl_core.seeding import content_hash, split_of

Problem = tuple[str, int]
DEEPSCALER = "deepscaler.json"
WHOLE = re.compile(r"-?(\d{1,3}(,\d{3})+|\d{1,15})")
"""Definition of a whole number: no fraction, no decimal point, no unit, no LaTeX except its dollar signs."""

SET_SIZE, SET_SEED = 900, 20
"""Size and seed of our task set, without the tier step."""

STEP = "step"
"""The tier of one step: `346 + 2`, `718 - 1`. A model that reads digits one by one can solve a problem that it never saw."""


def tasks(split: str, *, tier: str | None = None) -> Sequence[Task]:
    """Return our problems of a split. tier: ``step``, ``easy``, ``medium`` or ``hard``; None: the last three."""
    _check_tier(tier)
    pool = _one_step() if tier == STEP else _all()
    return [task for task in pool if task.split == split and tier in (None, task.tier)]


def load_published(root: Path) -> list[Task]:
    """Return DeepScaleR's problems, or others in its format: a JSON list of ``problem`` and ``answer`` in
    ``root/deepscaler.json``.

    Keeps only problems whose answer is a whole number, each problem once (TARL 4.1), and warns of the others with their number.
    Of a problem with several answers no entry is kept. All are training tasks. Raises TaskError with file, index and field.
    """
    path, entries, skipped = root / DEEPSCALER, dict[str, list[int]](), Counter[str]()
    rows = read_json(path, list)
    for index, row in enumerate(rows):
        question = text_field(row, "problem", path, index).strip()
        answer = row.get("answer")
        if isinstance(answer, float) and answer.is_integer():
            answer = int(answer)
        text = str(answer).strip().strip("$").replace("{,}", ",") if isinstance(answer, (str, int)) else ""
        if isinstance(answer, bool) or not WHOLE.fullmatch(text):
            skipped["without a whole number as answer"] += 1
            continue
        entries.setdefault(question, []).append(int(text.replace(",", "")))
    problems: dict[str, int] = {}
    for question, answers in entries.items():
        if len({*answers}) > 1:
            skipped["with several answers"] += len(answers)
        else:
            problems[question] = answers[0]
            skipped["repeated"] += len(answers) - 1
    if skipped := +skipped:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in skipped.items())
        sentence = f"{path}: {skipped.total():,} of {len(rows):,} problems were skipped: {reasons}."
        warnings.warn(sentence, UserWarning, stacklevel=2)
    return [
        Task(
            "math",
            content_hash(["math", question]),
            "train",
            {"question": question, "answer": answer},
            "published:deepscaler",
        )
        for question, answer in problems.items()
    ]


def generate(n: int, seed: int, *, tier: str | None = None) -> list[Task]:
    """Return n different problems drawn with the seed, without a tier none of ``step``.

    Raises ConfigError for an unknown tier or a too large n.
    """
    _check_tier(tier)
    if tier == STEP:
        return draw_tasks(_one_step(), n, seed, "The tier step of the math gym")
    rng = Random(seed)
    generated: dict[str, Task] = {}
    for draws in itertools.count():
        if len(generated) >= n:
            break
        if draws > 50 * n:
            raise ConfigError(
                "task.too_few",
                f"The math gym has only {len(generated)} different problems with these options. Ask for fewer "
                f"than {n}.",
            )
        name = tier or rng.choice(list(TIERS))
        question, answer = rng.choice(TIERS[name])(rng)
        task = _task(question, answer, name)
        generated[task.id] = task
    return list(generated.values())


@lru_cache(maxsize=1)
def _all() -> list[Task]:
    return generate(SET_SIZE, SET_SEED)


@lru_cache(maxsize=1)
def _one_step() -> tuple[Task, ...]:
    """All problems of the tier, each once."""
    pairs = list(itertools.product(range(100, 1000), (1, 2)))
    sums = [_task(f"{a} + {b}", a + b, STEP) for a, b in pairs if a % 10 + b < 10]
    return (*sums, *(_task(f"{a} - {b}", a - b, STEP) for a, b in pairs if a % 10 >= b))


def _task(question: str, answer: int, tier: str) -> Task:
    key = content_hash(["math", question])
    return Task("math", key, split_of(key), {"question": question, "answer": answer}, tier=tier)


def _check_tier(tier: str | None) -> None:
    if tier not in (None, STEP) and tier not in TIERS:
        raise ConfigError("task.bad_option", f"The math gym has no tier '{tier}'. It has {', '.join((STEP, *TIERS))}.")


def _sum_of_products(rng: Random) -> Problem:
    a, b, c, d = (rng.randint(2, 12) for _ in range(4))
    return f"What is {a} * {b} + {c} * {d}?", a * b + c * d


def _brackets(rng: Random) -> Problem:
    a, b, c = rng.randint(10, 60), rng.randint(2, 30), rng.randint(2, 9)
    return f"What is ({a} - {b}) * {c}?", (a - b) * c


def _shopping(rng: Random) -> Problem:
    name, goods = rng.choice(["Ira", "Noel", "Tova", "Emre"]), rng.choice(["pens", "rolls", "tickets", "plums"])
    count, price, paid = rng.randint(3, 12), rng.randint(2, 9), rng.choice([100, 150, 200])
    text = f"{name} buys {count} {goods} at {price} coins each and pays with {paid} coins. How many coins come back?"
    return text, paid - count * price


def _linear(rng: Random) -> Problem:
    x, a, b = rng.randint(-15, 25), rng.randint(2, 12), rng.randint(-40, 40)
    sign = "+" if b >= 0 else "-"
    return f"Solve {a} * x {sign} {abs(b)} = {a * x + b} for x.", x


def _trains(rng: Random) -> Problem:
    slow, gap, hours = rng.randint(40, 80), rng.randint(5, 40), rng.randint(2, 9)
    text = (
        f"Two trains leave the same station in opposite directions, one at {slow} km/h and one at {slow + gap} km/h. "
        f"How many kilometres are they apart after {hours} hours?"
    )
    return text, (2 * slow + gap) * hours


def _sequence(rng: Random) -> Problem:
    first, step, n = rng.randint(-20, 40), rng.choice([-7, -4, 3, 5, 6, 8, 11]), rng.randint(12, 60)
    terms = ", ".join(str(first + step * i) for i in range(4))
    return f"The sequence {terms}, ... goes on with the same step. What is its term number {n}?", first + step * (n - 1)


def _ages(rng: Random) -> Problem:
    child, factor = rng.randint(4, 15), rng.randint(3, 5)
    later = child * (factor - 2)
    text = (
        f"A parent is {factor} times as old as a child of {child}. In how many years will the parent be twice as old?"
    )
    return text, later


def _system(rng: Random) -> Problem:
    x, y = rng.randint(-9, 15), rng.randint(-9, 15)
    a, b, c = rng.randint(2, 7), rng.randint(2, 7), rng.randint(2, 7)
    text = f"x and y satisfy {a} * x + {b} * y = {a * x + b * y} and x - {c} * y = {x - c * y}. What is x + y?"
    return text, x + y


def _power(rng: Random) -> Problem:
    base, exponent, modulus = rng.randint(2, 19), rng.randint(20, 200), rng.choice([7, 11, 13, 17, 19, 23])
    text = f"What is the remainder when {base} to the power {exponent} is divided by {modulus}?"
    return text, pow(base, exponent, modulus)


def _divisors(rng: Random) -> Problem:
    n = 2 ** rng.randint(0, 4) * 3 ** rng.randint(0, 3) * 5 ** rng.randint(0, 2) * rng.choice([1, 7, 11, 13])
    return f"How many positive divisors does {n} have?", sum(n % d == 0 for d in range(1, n + 1))


def _multiples(rng: Random) -> Problem:
    a, b, top = rng.randint(3, 9), rng.randint(10, 16), rng.randint(200, 900)
    both = top // math.lcm(a, b)
    text = f"How many whole numbers from 1 to {top} are divisible by {a} or by {b}?"
    return text, top // a + top // b - both


def _committee(rng: Random) -> Problem:
    n, k = rng.randint(6, 12), rng.randint(2, 4)
    text = f"A club of {n} elects a chair and then {k} ordinary members of the board from the rest. In how many ways?"
    return text, n * math.comb(n - 1, k)


TIERS: dict[str, tuple[Callable[[Random], Problem], ...]] = {
    "easy": (_sum_of_products, _brackets, _shopping),
    "medium": (_linear, _trains, _sequence, _ages),
    "hard": (_system, _power, _divisors, _multiples, _committee),
}
