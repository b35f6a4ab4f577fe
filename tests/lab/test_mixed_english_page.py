"""The page of a language model on three gyms, from rows of runs."""

from __future__ import annotations

from typing import Any

from lab.pages import mixed_english
from lab.rows import read_rows
from lab.studies.registered import plans, read_plan

PLAN: dict[str, Any] = {"gyms": ["errand", "wish", "travel"], "seeds": {"first": 13, "last": 15}}


def row(seed: int, gym: str, policy: str, score: float) -> dict[str, Any]:
    return {"seed": seed, "gym": gym, "policy": policy, "score": score, "error": 0.04, "turns": 5.0}


def test_the_gain_is_the_mean_over_gyms_for_each_seed_with_students_limits_over_seeds() -> None:
    gains = {13: (0.1, 0.2, 0.3), 14: (0.2, 0.2, 0.2), 15: (0.0, 0.3, 0.6)}
    rows = [
        row(seed, gym, policy, 0.2 + (gain if policy == "RL" else 0.0))
        for seed, of_gyms in gains.items()
        for gym, gain in zip(PLAN["gyms"], of_gyms, strict=True)
        for policy in ("SFT", "RL")
    ]
    rows += [row(13, "travel", "RL last step", 0.2)]  # fell back after the best checkpoint
    *_, head, _, last, best = mixed_english.tables(PLAN, rows)
    assert head == "| gain over the cold start | errand | wish | travel | mean of the gyms |"
    # The means of the seeds are .1, .2 and .3, and .2, .2 and .3 at the best checkpoints: half-widths 4.303 s / sqrt(3).
    assert last.endswith("| +0.200 [−0.048, +0.448] |")
    assert best.endswith("| +0.233 [+0.090, +0.377] |")
    assert last.startswith("| last step, seeds 13 to 15, 95 % |")


def test_a_second_look_is_decided_alone_at_its_own_level() -> None:
    plan = {**PLAN, "second_look": {"first": 16, "last": 17, "level": 0.975}}
    gains = {13: 0.9, 14: 0.9, 15: 0.9, 16: 0.1, 17: 0.2}
    rows = [
        row(seed, gym, policy, 0.05 + (gain if policy == "RL" else 0.0))
        for seed, gain in gains.items()
        for gym in PLAN["gyms"]
        for policy in ("SFT", "RL")
    ]
    *_, first, _, second, _ = mixed_english.tables(plan, rows)
    assert first.endswith("| +0.900 [+0.900, +0.900] |")
    # Student's quantile at .9875 with one degree of freedom is 25.452, and the standard error .05.
    assert second.startswith("| last step, seeds 16 to 17, 97.5 % |")
    assert second.endswith("| +0.150 [−1.123, +1.423] |")


def test_the_page_shows_the_tables_that_the_data_give() -> None:
    plan = read_plan(mixed_english.PLAN)
    rows = [row for row in read_rows(mixed_english.SCORES) if row["plan"] in plans(mixed_english.PLAN)]
    (first, _), (second, _) = mixed_english.looks(plan)
    assert set(first) <= {row["seed"] for row in rows} <= {*first, *second}
    assert "\n".join(mixed_english.tables(plan, rows)) in mixed_english.PAGE.read_text(encoding="utf-8")
