import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curricula.sampler import Permutation, TaskSampler
from tests.makers import raises
from userrl_core.records import Task
from userrl_core.seeding import derive_seed


def make_tasks(gym, n):
    return [Task(gym, f"t{i}", "train", {"i": i}) for i in range(n)]


def keys(batch):
    return [task.key for task in batch]


@given(st.integers(1, 3000), st.integers(0, 2**63 - 1))
@settings(max_examples=40, deadline=None)
def test_a_permutation_reaches_every_index_once(n, key):
    order = Permutation(n, key)
    assert sorted(order[i] for i in range(n)) == list(range(n))


def test_all_orders_of_three_tasks_are_about_equally_likely():
    seen = Counter(tuple(Permutation(3, derive_seed(key))[i] for i in range(3)) for key in range(3000))
    assert len(seen) == 6
    assert min(seen.values()) > 400


@given(st.integers(1, 60), st.integers(1, 12), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_no_task_is_lost_or_repeated_within_an_epoch(n, size, seed):
    size = min(size, n)
    sampler = TaskSampler({"a": make_tasks("a", n)}, seed)
    drawn = [key for _ in range(3 * n) for key in keys(sampler.batch(size, {"a": 1.0}))]
    seen = Counter(drawn)
    whole = len(drawn) // n
    # A task held back because its batch had it already comes in the next batch, so counts differ by one at most.
    assert set(seen.values()) <= {whole, whole + 1}


@given(st.integers(2, 40), st.integers(1, 8), st.integers(0, 30), st.floats(0, 0.9))
@settings(max_examples=50, deadline=None)
def test_a_resume_at_any_step_draws_the_same_tasks(n, size, stop, oversample):
    size = min(size, n)
    pools = {"a": make_tasks("a", n), "b": make_tasks("b", n + 3)}
    weights = {"a": 2.0, "b": 1.0}

    def play(sampler, first, last):
        drawn = []
        for step in range(first, last):
            batch = sampler.batch(size, weights, oversample=oversample)
            for task in batch:
                sampler.observe(task.key, (derive_seed(step, task.key) % 3) / 2)
            drawn.append(keys(batch))
        return drawn

    whole = play(TaskSampler(pools, 7), 0, 40)
    broken = TaskSampler(pools, 7)
    before = play(broken, 0, stop)
    resumed = TaskSampler(pools, 7)
    resumed.load_state_dict(json.loads(json.dumps(broken.state_dict(), sort_keys=True)))
    assert before + play(resumed, stop, 40) == whole


def test_batches_hold_distinct_tasks_even_across_the_end_of_an_epoch():
    sampler = TaskSampler({"a": make_tasks("a", 5)}, 3)
    for _ in range(20):
        assert len(set(keys(sampler.batch(3, {"a": 1.0})))) == 3


def test_pools_get_their_shares_exactly_over_time():
    sampler = TaskSampler({"a": make_tasks("a", 500), "b": make_tasks("b", 500)}, 0)
    drawn = Counter(task.gym for _ in range(100) for task in sampler.batch(8, {"a": 3.0, "b": 1.0}))
    assert drawn == {"a": 600, "b": 200}


def test_two_seeds_give_two_orders_and_one_seed_gives_one():
    tasks = {"a": make_tasks("a", 50)}
    first, again, other = (keys(TaskSampler(tasks, seed).batch(50, {"a": 1.0})) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_new_stage_keeps_the_place_in_pools_that_stay_and_starts_others_anew():
    sampler = TaskSampler({"a": make_tasks("a", 10), "b": make_tasks("b", 10)}, 0)
    sampler.batch(6, {"a": 1.0})
    sampler.batch(6, {"b": 1.0})
    sampler.use({"a": make_tasks("a", 10), "b": make_tasks("b", 9)})
    metrics = sampler.metrics()
    assert metrics["sampler/a/epochs"] == 0.6
    assert metrics["sampler/b/epochs"] == 0.0


def test_mixed_groups_are_drawn_again_and_settled_ones_are_not():
    sampler = TaskSampler({"a": make_tasks("a", 1000)}, 0)
    sampler.observe("a/t5", 0.5)
    sampler.observe("a/t6", 1.0)
    sampler.observe("a/t7", 0.0)
    drawn = Counter(task.key for _ in range(50) for task in sampler.batch(4, {"a": 1.0}, oversample=0.5))
    assert drawn["a/t5"] > 20
    assert drawn["a/t6"] <= 1
    assert drawn["a/t7"] <= 1
    sampler.observe("a/t5", 1.0)
    assert sampler.metrics()["sampler/a/mixed"] == 0.0


@given(st.lists(st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0]), min_size=1, max_size=12), st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_a_task_is_drawn_again_in_proportion_to_p_times_one_less_p(shares, seed):
    tasks = make_tasks("a", len(shares) + 1)
    sampler = TaskSampler({"a": tasks}, seed)
    for task, share in zip(tasks, shares, strict=False):
        sampler.observe(task.key, share)
    weights = {task.key: share * (1 - share) for task, share in zip(tasks, shares, strict=False)}
    drawn = Counter()
    for _ in range(300):
        before = sampler.metrics()["sampler/mixed/draws"]
        (key,) = keys(sampler.batch(1, {"a": 1.0}, oversample=1.0))
        drawn[key] += int(sampler.metrics()["sampler/mixed/draws"] - before)
    total = sum(weights.values())
    assert drawn.total() == (300 if total else 0)
    for task in tasks:
        expected = weights.get(task.key, 0.0) / total if total else 0.0
        assert abs(drawn[task.key] / 300 - expected) < (0.17 if expected else 1e-9)


def test_a_checkpoint_of_an_earlier_commit_draws_on_as_it_would_have():
    # State and draws of commit f15eb95, which also kept the sums of a tree.
    mixed = {
        "weights": {"0": 0.234375, "1": 0.1875, "2": 0.1875, "3": 0.234375},
        "sums": {"1": 0.234375, "2": 0.421875},
    }
    pool = {"fingerprint": "eb7ed21e3604d5df", "epoch": 1, "position": 2, "pending": [], "mixed": mixed}
    sampler = TaskSampler({"a": make_tasks("a", 7)}, 7)
    sampler.load_state_dict({"seed": 7, "draws": 9, "repeats": 3, "credit": {"a": 0.0}, "pools": {"a": pool}})
    drawn = []
    for step in range(8):
        batch = sampler.batch(2, {"a": 1.0}, oversample=0.5)
        for task in batch:
            sampler.observe(task.key, (step + int(task.id[1:])) % 9 / 8)
        drawn.append(" ".join(task.id for task in batch))
    assert drawn == ["t2 t6", "t3 t1", "t0 t3", "t0 t6", "t0 t1", "t0 t1", "t0 t3", "t5 t1"]


def test_a_batch_larger_than_its_pools_is_refused():
    with raises("task.none_left", "algorithm.batch"):
        TaskSampler({"a": make_tasks("a", 3)}).batch(4, {"a": 1.0})


def test_empty_pools_unknown_gyms_and_doubled_tasks_are_refused():
    with raises("task.none_left"):
        TaskSampler({"a": []})
    with raises("task.none_left"):
        TaskSampler({"a": make_tasks("a", 3)}).batch(1, {"b": 1.0})
    with raises("task.duplicate"):
        TaskSampler({"a": make_tasks("a", 3) * 2})


def test_a_checkpoint_of_other_tasks_is_refused():
    state = TaskSampler({"a": make_tasks("a", 3)}).state_dict()
    with raises("checkpoint.other_settings"):
        TaskSampler({"a": make_tasks("a", 4)}).load_state_dict(state)
    with raises("checkpoint.other_settings"):
        TaskSampler({"b": make_tasks("b", 3)}).load_state_dict(state)


def test_unequal_shares_of_tokens_hold_from_the_first_batches_on():
    prices = {"errand": 450.0, "wish": 270.0, "travel": 200.0}
    sampler = TaskSampler({gym: make_tasks(gym, 200) for gym in prices}, seed=0)
    weights = {"errand": 2.0, "wish": 1.0, "travel": 0.5}
    tokens = dict.fromkeys(prices, 0.0)
    drawn = []
    for _ in range(8):
        drawn += [task.gym for task in sampler.batch(6, weights, by_tokens=True)]
        for gym in prices:
            sampler.observe(next(task.key for task in sampler.tasks() if task.gym == gym), 0.5, prices[gym])
    for gym in drawn[6:]:
        tokens[gym] += prices[gym]
    shares = {gym: tokens[gym] / sum(tokens.values()) for gym in tokens}
    # Of 42 draws each pool is within one of its share.
    assert shares == pytest.approx({"errand": 4 / 7, "wish": 2 / 7, "travel": 1 / 7}, abs=450.0 / sum(tokens.values()))


def test_a_checkpoint_with_credits_in_weights_goes_on_with_the_same_pools():
    pools, weights = {gym: make_tasks(gym, 50) for gym in "abc"}, {"a": 60.0, "b": 30.0, "c": 10.0}
    sampler = TaskSampler(pools, seed=0)
    sampler.batch(6, weights)
    state = sampler.state_dict()
    assert state["credit"] == pytest.approx({"a": -0.4, "b": -0.2, "c": 0.6})
    del state["credit_unit"]  # as an earlier version wrote it
    state["credit"] = {"a": -40.0, "b": -20.0, "c": 60.0}
    restored = TaskSampler(pools, seed=0)
    restored.load_state_dict(state)
    assert keys(restored.batch(20, weights)) == keys(sampler.batch(20, weights))


def test_a_stage_with_larger_weights_leaves_nothing_to_be_made_up_for():
    sampler = TaskSampler({gym: make_tasks(gym, 200) for gym in ("errand", "wish")}, seed=0)
    sampler.batch(7, {"errand": 200.0, "wish": 100.0})
    later = [task.gym for task in sampler.batch(20, {"errand": 1.0, "wish": 1.0})]
    assert abs(later.count("errand") - 10) <= 1


def test_weights_by_tokens_share_the_tokens_however_unlike_the_prices():
    pools = {"long": make_tasks("long", 400), "short": make_tasks("short", 400)}
    price = {"long": 60.0, "short": 15.0}
    sampler = TaskSampler(pools, 3)
    spent = Counter()
    for step in range(60):
        batch = sampler.batch(10, {"long": 1.0, "short": 1.0}, by_tokens=True)
        for task in batch:
            sampler.observe(task.key, 0.0, price[task.gym])
            spent[task.gym] += price[task.gym] if step else 0.0
        if step == 20:
            saved, sampler = sampler.state_dict(), TaskSampler(pools, 3)
            sampler.load_state_dict(json.loads(json.dumps(saved)))
    assert 0.48 < spent["long"] / spent.total() < 0.52
