"""Task curricula: priorities by pass rate, exact resume, recipes that name one."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import curricula
from curricula.sampler import TaskSampler, _mixed, uniforms
from curricula.task_curriculum import Learnability, Pools, TaskCurriculum, Thompson
from userrl.worker.curriculum import RecipeCurriculum
from userrl_core.errors import ConfigError
from userrl_core.records import Task
from userrl_core.seeding import derive_seed

KINDS: list[TaskCurriculum] = [
    Learnability(),
    Thompson(),
    Pools(),
    Learnability(half_life=None, prior=(0.5, 2.0), family=8),
]
EIGHT = {"kind": "learnability", "half_life": 8}


def tasks(n: int, gym: str = "a") -> list[Task]:
    return [Task(gym, f"t{i}", "train", {}) for i in range(n)]


def counted(curriculum: TaskCurriculum, outcomes: dict[str, float], draws: int = 400, n: int = 4) -> Counter[str]:
    """Return how often each of n tasks was drawn alone, after 100 conversations with these shares of successes."""
    sampler = TaskSampler({"a": tasks(n)}, 0, curriculum)
    for name, share in outcomes.items():
        sampler.observe(f"a/{name}", share, conversations=100)
    return Counter(sampler.batch(1, {"a": 1.0})[0].id for _ in range(draws))


def test_uniform_numbers_are_those_of_the_sampler_s_hash() -> None:
    assert uniforms(5, 2**64 - 2).tolist() == [
        ((_mixed((2**64 - 2 + i) % 2**64) >> 11) + 0.5) / 2**53 for i in range(5)
    ]


def test_learnability_draws_in_proportion_to_p_times_one_less_p() -> None:
    drawn = counted(Learnability(), {"t0": 0.5, "t1": 0.1, "t2": 1.0, "t3": 0.0}, draws=4000)
    family = (50 + 10 + 100 + 1) / 402
    rates = (np.array([50, 10, 100, 0]) + 2 * family) / 102
    weights = rates * (1 - rates)
    for number, weight in enumerate(weights / weights.sum()):
        assert abs(drawn[f"t{number}"] / 4000 - weight) < 4 * np.sqrt(weight / 4000)


def test_thompson_tries_what_it_does_not_know_and_gives_up_what_always_fails() -> None:
    drawn = counted(Thompson(), {"t0": 0.0, "t1": 1.0, "t2": 0.5})
    assert drawn["t0"] + drawn["t1"] == 0
    assert drawn["t3"] > 0  # never played: its pass rate may be a half
    assert drawn["t2"] > drawn["t3"]


def test_pools_get_their_shares_and_a_task_is_promoted() -> None:
    pools = Pools(easy=0.25, medium=0.5, hard=0.25)
    drawn = counted(pools, {"t0": 0.0, "t1": 1.0}, draws=2000)
    assert abs(drawn["t0"] / 2000 - 0.25) < 0.04
    assert abs(drawn["t1"] / 2000 - 0.25) < 0.04
    # Without easy and hard tasks the whole batch is medium.
    assert set(counted(Pools(easy=0.5, medium=0.5, hard=0.0), {}, draws=50)) <= {"t0", "t1", "t2", "t3"}
    promoted = counted(Pools(easy=0.0, medium=1.0, hard=0.0), {"t0": 0.5, "t1": 0.9, "t2": 0.1, "t3": 0.95})
    assert promoted == {"t0": 400}


def test_outcomes_fade_to_the_prior() -> None:
    sampler = TaskSampler({"a": tasks(2)}, 0, Learnability(half_life=2))
    sampler.observe("a/t0", 0.0, conversations=6)
    # The family's rate is 1 of 8, so t0 has .25 of 8 and t1 .25 of 2.
    assert sampler.metrics()["sampler/a/pass_rate"] == pytest.approx((0.25 / 8 + 0.25 / 2) / 2)
    sampler.end_step()
    sampler.end_step()
    # Of 6 failed conversations 3 are left, so the family's rate is 1 of 5.
    assert sampler.metrics()["sampler/a/pass_rate"] == pytest.approx((0.4 / 5 + 0.4 / 2) / 2)
    for _ in range(200):
        sampler.end_step()
    assert sampler.metrics()["sampler/a/pass_rate"] == pytest.approx(0.5)


def test_a_task_that_was_never_played_is_as_hard_as_its_family() -> None:
    pool = [Task("errand", f"t{n}", "train", {}, tier=f"depth {n % 2}") for n in range(40)]
    sampler = TaskSampler({"errand": pool}, 0, Pools(easy=0.0, medium=1.0, hard=0.0))
    sampler.observe("errand/t1", 0.0, conversations=16)
    assert sampler.metrics()["sampler/errand.depth 0/pass_rate"] == pytest.approx(0.5)
    assert sampler.metrics()["sampler/errand.depth 1/pass_rate"] < 0.06
    assert {task.tier for _ in range(50) for task in sampler.batch(8, {"errand": 1.0})} == {"depth 0"}


@pytest.mark.parametrize("curriculum", KINDS, ids=lambda kind: f"{kind.kind} {kind.half_life}")
@given(n=st.integers(2, 30), size=st.integers(1, 6), stop=st.integers(0, 12))
@settings(max_examples=10, deadline=None)
def test_a_resume_at_any_step_draws_the_same_tasks(curriculum: TaskCurriculum, n: int, size: int, stop: int) -> None:
    pools = {"a": tasks(n), "b": tasks(n + 3, "b")}

    def play(sampler: TaskSampler, first: int, last: int) -> list[list[str]]:
        drawn = []
        for step in range(first, last):
            batch = sampler.batch(min(size, n), {"a": 2.0, "b": 1.0})
            assert len({task.key for task in batch}) == len(batch)
            for task in batch:
                sampler.observe(task.key, (derive_seed(step, task.key) % 3) / 2, conversations=8)
            sampler.end_step()
            drawn.append([task.key for task in batch])
        return drawn

    whole = play(TaskSampler(pools, 7, curriculum), 0, 14)
    broken, resumed = (TaskSampler(pools, 7, curriculum) for _ in range(2))
    before = play(broken, 0, stop)
    resumed.load_state_dict(json.loads(json.dumps(broken.state_dict())))
    assert before + play(resumed, stop, 14) == whole


def recipe(**changes: Any) -> curricula.Recipe:
    return curricula.load("horizon-fork", profile="laptop", overrides=changes)


def test_a_recipe_without_a_curriculum_keeps_its_id_and_its_checkpoints() -> None:
    assert recipe().hash == recipe(curriculum={"kind": "uniform"}).hash
    assert recipe().hash != recipe(curriculum=EIGHT).hash
    plain = RecipeCurriculum(recipe(), (), 0)
    plain.draw(1, 2)
    assert all("outcomes" not in pool for pool in plain.state_dict()["sampler"]["pools"].values())


def test_a_recipe_s_curriculum_chooses_by_the_outcomes_of_its_groups() -> None:
    curriculum = RecipeCurriculum(recipe(curriculum={"kind": "pools", "easy": 0.0, "medium": 1.0, "hard": 0.0}), (), 0)
    assert RecipeCurriculum(recipe(), (), 0).choices(1) is None
    pool = curriculum.choices(1)
    assert pool is not None
    kept = {task.key for gym in ("errand", "wish") for task in [task for task in pool if task.gym == gym][:3]}
    assert len(pool) > 1000
    for task in pool:
        curriculum.observe(task.key, 0.5 if task.key in kept else 0.0, conversations=50)
    assert {task.key for task in curriculum.draw(1, 6)} == kept


@pytest.mark.parametrize("kind", ["learnability", "thompson", "pools"])
def test_groups_without_a_signal_are_drawn_again_from_tasks_that_the_step_has_not_played(kind: str) -> None:
    curriculum = RecipeCurriculum(recipe(curriculum={"kind": kind}), (), 0)
    pool = curriculum.choices(1)
    assert pool is not None
    for task in pool:  # ten tasks are far more worth than all others
        curriculum.observe(task.key, 0.5 if task in pool[:10] else 0.0, conversations=500)
    first, again = curriculum.draw(1, 8), curriculum.draw(1, 8)
    assert not {task.key for task in first} & {task.key for task in again}


def test_a_stage_with_more_tasks_keeps_the_outcomes_of_the_one_before() -> None:
    sampler = TaskSampler({"a": tasks(4)}, 0, Learnability())
    sampler.observe("a/t1", 0.5, conversations=100)
    before = sampler.state_dict()["pools"]["a"]["outcomes"]
    sampler.use({"a": tasks(6)})
    assert sampler.state_dict()["pools"]["a"]["outcomes"] == before


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"curriculum": {"kind": "learnable"}}, "learnability"),
        ({"curriculum": {"half_life": 3}}, "'curriculum.kind' is missing; docs/reference/recipe-keys.md"),
        ({"curriculum": {"kind": "learnability", "halflife": 3}}, "half_life"),
        ({"curriculum": {"kind": "pools", "easy": 0.9}}, "sum to 1"),
        ({"curriculum": {"kind": "pools", "hard_below": 0.9}}, "lower than easy_from"),
        ({"curriculum": {"kind": "thompson", "prior": [0, 1]}}, "prior"),
        ({"curriculum": EIGHT, "stages": [{"steps": 2, "horizon": 6, "mix": {"errand": 1}, "oversample": 0.5}]}, "omit"),
    ],
)  # fmt: skip
def test_a_curriculum_that_cannot_be_meant_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        recipe(**changes)
