"""Sampling of training tasks: every task once per epoch, in an order that is a pure function of seed, pool and position.

An epoch's order is a keyed permutation of 0 ... N-1: a Feistel network over the next power of two, repeated until the
result is inside. Only a position must be saved, and a seed gives the same order under every version of numpy. Tasks
whose last group was mixed, neither all-good nor all-bad, can be drawn again in proportion to p (1 - p) (after DAPO).

A task curriculum that estimates pass rates replaces the epochs: a batch gets the tasks of the highest priorities.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curricula.task_curriculum import Floats, TaskCurriculum
from userrl_core.errors import ConfigError
from userrl_core.records import Task
from userrl_core.seeding import content_hash, derive_seed

_MASK = (1 << 64) - 1
_MEMORY = 0.95
"""Weight of the past in the running mean of a pool's tokens per task."""


class Permutation:
    """A keyed permutation of 0 ... n-1, computed index by index."""

    def __init__(self, n: int, key: int) -> None:
        """Prepare the permutation. n: at least 1. The same n and key always give the same permutation."""
        bits = max((n - 1).bit_length(), 2)
        self.n = n
        self._low = bits // 2
        self._low_mask = (1 << self._low) - 1
        self._high_mask = (1 << (bits - self._low)) - 1
        self._keys = [_mixed(key + round_) for round_ in range(1, 5)]

    def __getitem__(self, index: int) -> int:
        """Return the image of ``index``."""
        if not 0 <= index < self.n:
            raise IndexError(index)
        value = self._once(index)
        while value >= self.n:
            value = self._once(value)
        return value

    def _once(self, value: int) -> int:
        high, low = value >> self._low, value & self._low_mask
        for i in (0, 2):
            high ^= _mixed(low ^ self._keys[i]) & self._high_mask
            low ^= _mixed(high ^ self._keys[i + 1]) & self._low_mask
        return (high << self._low) | low


def _mixed(x: int) -> int:
    """Apply the finaliser of splitmix64: every input bit reaches every output bit."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def uniforms(n: int, key: int) -> Floats:
    """Return n numbers in (0, 1), a pure function of n and key. They are `_mixed` of key + 0 ... n-1, in numpy's integers."""
    x = np.arange(n, dtype=np.uint64) + np.uint64(key & _MASK)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = x ^ (x >> np.uint64(31))
    numbers: Floats = ((x >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53
    return numbers


@dataclass(slots=True)
class _Pool:
    """The tasks of one gym (or of all gyms, shuffled into one list), and the position in their order."""

    tasks: Sequence[Task]
    fingerprint: str
    order: Permutation
    index: dict[str, int]
    epoch: int = 0
    position: int = 0
    pending: list[int] = field(default_factory=list)
    """Drawn tasks that their batch already contained. They are next in line."""
    mixed: np.ndarray = field(init=False)
    """p (1 - p) of each task's last group, shape [tasks]; p is its share of successes."""
    passed: Floats = field(init=False)
    """Faded number of conversations that passed, shape [tasks]; counted for a curriculum."""
    failed: Floats = field(init=False)
    families: list[str] = field(init=False)
    family_of: NDArray[np.intp] = field(init=False)
    """The number of each task's family in `families`."""

    def __post_init__(self) -> None:
        self.mixed, self.passed, self.failed = (np.zeros(len(self.tasks)) for _ in range(3))
        numbers: dict[str, int] = {}
        self.family_of = np.array([numbers.setdefault(family(task), len(numbers)) for task in self.tasks])
        self.families = list(numbers)


class TaskSampler:
    """A sampler of batches of distinct tasks from pools, exactly resumable. No task is lost or repeated within an epoch."""

    def __init__(
        self, pools: Mapping[str, Sequence[Task]], seed: int = 0, curriculum: TaskCurriculum | None = None
    ) -> None:
        """Prepare the pools. pools: tasks per pool name (a gym, or several gyms together). curriculum: chooses the tasks of
        a pool; None: every task once per epoch. Raises ConfigError for an empty pool.
        """
        self.seed = seed
        self._curriculum = curriculum
        self.draws = 0
        self._credit: dict[str, float] = {}
        self._in_weights = False
        """Whether the credits are in the unit of the weights, as in checkpoints of earlier versions, and not in draws."""
        self._prices: dict[str, float] = {}
        """Tokens of a trajectory per pool, a running mean."""
        self._pools: dict[str, _Pool] = {}
        self._repeats = 0
        self.use(pools)

    def use(self, pools: Mapping[str, Sequence[Task]]) -> None:
        """Replace the pools. A pool with the same tasks as before continues at its position. Outcomes of tasks are kept."""
        before = self._pools
        outcomes = {
            pool.tasks[index].key: (pool.passed[index], pool.failed[index])
            for pool in before.values()
            for index in map(int, np.flatnonzero(pool.passed + pool.failed))
        }
        self._pools = {}
        for name, tasks in pools.items():
            if not tasks:
                raise ConfigError(
                    "task.none_left",
                    f"There is no task left in '{name}'. Lower demonstrations.top_k, or choose other tasks.",
                )
            fingerprint = content_hash([task.key for task in tasks])
            old = before.get(name)
            if old is not None and old.fingerprint == fingerprint:
                self._pools[name] = old
                continue
            index = {task.key: i for i, task in enumerate(tasks)}
            if len(index) != len(tasks):
                raise ConfigError("task.duplicate", f"Pool '{name}' contains a task twice. Give every task once.")
            pool = _Pool(tasks, fingerprint, self._order(name, fingerprint, len(tasks), 0), index)
            for key in outcomes.keys() & index.keys():
                pool.passed[index[key]], pool.failed[index[key]] = outcomes[key]
            self._pools[name] = pool
        self._credit = {name: self._credit.get(name, 0.0) for name in self._pools}

    def batch(
        self,
        n: int,
        weights: Mapping[str, float],
        *,
        oversample: float = 0.0,
        by_tokens: bool = False,
        last: Collection[str] = (),
    ) -> list[Task]:
        """Return the next n distinct tasks. Over time, pools get exact shares in proportion to their weights.

        by_tokens: weights are shares of tokens, at the observed prices; shares of tasks until every pool has a price.
        oversample: expected share drawn again from tasks whose last group was mixed, if there are any.
        last: keys of tasks that a curriculum chooses only after all others of their pool.
        Raises ConfigError for weights without a pool, and for batches larger than their pools.
        """
        for name in weights:
            if name not in self._pools:
                raise ConfigError(
                    "task.none_left",
                    f"The mix names '{name}', but no tasks were given for it. Give some, or take it out of the mix.",
                )
        if not weights or n > sum(len(self._pools[name].tasks) for name in weights):
            raise ConfigError(
                "task.none_left",
                f"A batch of {n} tasks cannot be drawn from "
                f"{sum(len(self._pools[name].tasks) for name in weights)}. Lower algorithm.batch, or add "
                "tasks.",
            )
        # A share of tokens buys fewer tasks where a conversation is long.
        if by_tokens and all(name in self._prices for name in weights):
            weights = {name: weight / self._prices[name] for name, weight in weights.items()}
        batch_tasks: dict[str, Task] = {}
        tasks_left = {name: len(self._pools[name].tasks) for name in weights}
        by_priority = {name: self._by_priority(name, last) for name in weights} if self._curriculum is not None else {}
        # By key, so that no task is twice in a batch, whichever way it was drawn.
        while len(batch_tasks) < n:
            name = self._next_pool({pool: weight for pool, weight in weights.items() if tasks_left[pool]})
            if name in by_priority:
                task = next(by_priority[name])
                self.draws += 1
            else:
                task = self._again(name, oversample, batch_tasks) or self._next(name, batch_tasks)
            batch_tasks[task.key] = task
            tasks_left[name] -= 1
        return list(batch_tasks.values())

    def tasks(self) -> list[Task]:
        """Return the tasks of all pools."""
        return [task for pool in self._pools.values() for task in pool.tasks]

    def observe(self, task_key: str, success: float, tokens: float | None = None, conversations: int = 1) -> None:
        """Record a task's last group: its share of successes, in [0, 1], the mean tokens of its trajectories, and the number
        of its admitted conversations.

        A task between the extremes may be drawn again.
        """
        if not 0.0 <= success <= 1.0:
            raise ConfigError(
                "argument.out_of_range", f"A success share is in [0, 1]. Task {task_key} was given {success}."
            )
        for name, pool in self._pools.items():
            if task_key in pool.index:
                index = pool.index[task_key]
                pool.mixed[index] = success * (1.0 - success)
                if self._curriculum is not None:
                    pool.passed[index] += success * conversations
                    pool.failed[index] += (1.0 - success) * conversations
                if tokens is not None:
                    self._prices[name] = tokens + _MEMORY * (self._prices.get(name, tokens) - tokens)

    def end_step(self) -> None:
        """Let the outcomes fade by one training step."""
        half_life = self._curriculum.half_life if self._curriculum is not None else None
        if half_life is not None:
            for pool in self._pools.values():
                pool.passed *= 0.5 ** (1.0 / half_life)
                pool.failed *= 0.5 ** (1.0 / half_life)

    def metrics(self) -> dict[str, float]:
        """Return the progress of the epochs and the estimates, under the warehouse's metric names.

        The estimate of a family (a gym, or a tier of a gym) is the mean of its tasks' estimated pass rates.
        """
        metrics = {"sampler/all/draws": float(self.draws), "sampler/mixed/draws": float(self._repeats)}
        for name, pool in self._pools.items():
            if self._curriculum is not None:
                alpha, beta = self._curriculum.posterior(pool.passed, pool.failed, pool.family_of)
                means = np.bincount(pool.family_of, alpha / (alpha + beta)) / np.bincount(pool.family_of)
                metrics |= {f"sampler/{key}/pass_rate": float(m) for key, m in zip(pool.families, means, strict=True)}
                continue
            metrics[f"sampler/{name}/epochs"] = pool.epoch + pool.position / len(pool.tasks)
            metrics[f"sampler/{name}/mixed"] = float(np.count_nonzero(pool.mixed))
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Return everything that later draws depend on, JSON-able."""
        return {
            "seed": self.seed,
            "draws": self.draws,
            "repeats": self._repeats,
            "credit": dict(self._credit),
            "credit_unit": "weights" if self._in_weights else "draws",
            "prices": dict(self._prices),
            "pools": {
                name: {
                    "fingerprint": pool.fingerprint,
                    "epoch": pool.epoch,
                    "position": pool.position,
                    "pending": list(pool.pending),
                    "mixed": {"weights": {str(i): float(pool.mixed[i]) for i in np.flatnonzero(pool.mixed)}},
                    **({} if self._curriculum is None else {"outcomes": _outcomes(pool)}),
                }
                for name, pool in self._pools.items()
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly from a `state_dict`. Raises ConfigError if the tasks differ."""
        if set(state["pools"]) != set(self._pools):
            raise ConfigError(
                "checkpoint.other_settings",
                f"The checkpoint draws tasks from {sorted(state['pools'])}, and this run from "
                f"{sorted(self._pools)}. Resume with the same recipe.",
            )
        for name, saved in state["pools"].items():
            pool = self._pools[name]
            if saved["fingerprint"] != pool.fingerprint:
                raise ConfigError(
                    "checkpoint.other_settings",
                    f"The tasks of '{name}' are not those of the checkpoint. Resume with the same task files.",
                )
        self.seed, self.draws, self._repeats = int(state["seed"]), int(state["draws"]), int(state["repeats"])
        self._credit = {name: float(value) for name, value in state["credit"].items()}
        self._in_weights = state.get("credit_unit") != "draws"
        self._prices = {name: float(value) for name, value in state.get("prices", {}).items()}
        for name, saved in state["pools"].items():
            pool = self._pools[name]
            pool.epoch, pool.position = int(saved["epoch"]), int(saved["position"])
            pool.pending = [int(i) for i in saved["pending"]]
            pool.order = self._order(name, pool.fingerprint, len(pool.tasks), pool.epoch)
            pool.mixed[:] = 0.0
            for index, weight in saved["mixed"]["weights"].items():
                pool.mixed[int(index)] = weight
            pool.passed[:] = pool.failed[:] = 0.0
            for index, (passed, failed) in saved.get("outcomes", {}).items():
                pool.passed[int(index)], pool.failed[int(index)] = passed, failed

    def _order(self, name: str, fingerprint: str, n: int, epoch: int) -> Permutation:
        return Permutation(n, derive_seed("order", self.seed, name, fingerprint, epoch))

    def _next_pool(self, weights: Mapping[str, float]) -> str:
        """Choose a pool by smooth weighted round robin: after any number of draws each pool is within one of its share."""
        if len(weights) == 1:
            return next(iter(weights))
        # Shares, and not weights: their unit changes between stages, and once tokens have prices. A credit left over in the old
        # unit would then be worth a hundred draws.
        total = sum(weights.values())
        if self._in_weights:
            self._credit = {name: credit / total for name, credit in self._credit.items()}
            self._in_weights = False
        for name, weight in weights.items():
            self._credit[name] += weight / total
        # Rounded, so that pools with equal shares take turns in their order.
        best = max(weights, key=lambda name: round(self._credit[name], 9))
        # As much as all pools together were given, so that the credits keep adding up to zero.
        self._credit[best] -= 1.0
        return best

    def _by_priority(self, name: str, last: Collection[str]) -> Iterator[Task]:
        """Return the tasks of a pool, the highest priority first, and those of ``last`` after all others."""
        pool, curriculum = self._pools[name], self._curriculum
        assert curriculum is not None
        uniform = uniforms(len(pool.tasks), derive_seed("curriculum", self.seed, name, self.draws))
        estimates = curriculum.posterior(pool.passed, pool.failed, pool.family_of)
        # Stable, so that tasks of equal priority have the same order on every machine.
        order = np.argsort(-curriculum.priorities(*estimates, uniform), kind="stable")
        ranked = [pool.tasks[int(index)] for index in order]
        return iter(sorted(ranked, key=lambda task: task.key in last) if last else ranked)

    def _next(self, name: str, chosen: Mapping[str, Task]) -> Task:
        """Return the next task of the epoch outside the batch. Tasks inside the batch wait for a later batch."""
        pool = self._pools[name]
        # First the tasks that an earlier batch passed over.
        for pending_index in pool.pending:
            if pool.tasks[pending_index].key not in chosen:
                pool.pending.remove(pending_index)
                self.draws += 1
                return pool.tasks[pending_index]
        while True:
            index = pool.order[pool.position]
            pool.position += 1
            if pool.position == len(pool.tasks):
                pool.epoch, pool.position = pool.epoch + 1, 0
                pool.order = self._order(name, pool.fingerprint, len(pool.tasks), pool.epoch)
            if pool.tasks[index].key not in chosen:
                self.draws += 1
                return pool.tasks[index]
            # The batch has it already. It waits, because an epoch draws every task once.
            pool.pending.append(index)

    def _again(self, name: str, share: float, chosen: Mapping[str, Task]) -> Task | None:
        """Return, with probability ``share``, a task whose last group was mixed; never one of the batch."""
        if share <= 0.0:
            return None
        draw = derive_seed("again", self.seed, name, self.draws, self._repeats)
        pool = self._pools[name]
        if draw / 2**63 >= share or not pool.mixed.any():
            return None
        sums = np.cumsum(pool.mixed)
        # The first running sum above the drawn mass; rounding may leave that mass at the very end, where the last one counts.
        index = min(
            np.searchsorted(sums, _mixed(draw) / 2**64 * sums[-1], side="right"), np.flatnonzero(pool.mixed)[-1]
        )
        task = pool.tasks[int(index)]
        if task.key in chosen:
            return None
        self._repeats += 1
        return task


def family(task: Task) -> str:
    """Return a task's family as a part of a metric's name: its gym, with its tier where the gym has tiers."""
    return f"{task.gym}.{task.tier}".replace("/", "-") if task.tier else task.gym


def _outcomes(pool: _Pool) -> dict[str, tuple[float, float]]:
    played = np.flatnonzero(pool.passed + pool.failed)
    return {str(i): (float(pool.passed[i]), float(pool.failed[i])) for i in played}
