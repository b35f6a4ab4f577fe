"""The papers' metrics as plain functions of rewards or scores, which the warehouse's views are held to.

A null reward makes a trajectory's value None, and a mean leaves None out: an unscored turn is not a zero.
Turn numbers start at 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import comb
from typing import Any

Rewards = Sequence[float | None]


# -- one trajectory -------------------------------------------------------------------------------------------------


def effective_turns(rewards: Rewards) -> int | None:
    """Number of the last turn with a non-zero reward, 0 without any (UserRL section 4.3)."""
    if None in rewards:
        return None
    return max((t for t, reward in enumerate(rewards, 1) if reward), default=0)


def time_weighted(rewards: Rewards) -> float | None:
    """Sum of r_t / t (UserRL section 4.3): the first turn weighs 1, the paper's 1/(i+1) with i counted from 0."""
    total = 0.0
    for t, reward in enumerate(rewards, 1):
        if reward is None:
            return None
        total += reward / t
    return total


def first_choice(choices: Sequence[str | None], rewards: Rewards) -> int | None:
    """Number of the turn of the first answer that earned something, 0 without one (UserBench table 5, "First Index").

    The paper's indices below 1 are only possible where conversations without such an answer count as 0; they do here.
    """
    if None in rewards:
        return None
    earned = (
        t for t, (choice, r) in enumerate(zip(choices, rewards, strict=True), 1) if choice == "answer" and (r or 0) > 0
    )
    return next(earned, 0)


def weighted_score(choices: Sequence[str | None], rewards: Rewards) -> float | None:
    """That answer's reward divided by its turn, 0.0 without one (UserBench table 5): the weight of `time_weighted`."""
    turn = first_choice(choices, rewards)
    return None if turn is None else (rewards[turn - 1] or 0.0) / turn if turn else 0.0


def preferences_by_aspect(
    infos: Sequence[Mapping[str, Any]], aspect_of: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    """Shares of a trip's preferences that came to light, by aspect: active (asked for), passive (volunteered), elicited (either).

    infos: of the turns of TravelGym, shape [T]. aspect_of: the aspect of every preference that the user holds.
    """
    how = {info["preference"]: info["elicited"] for info in infos if info.get("elicited")}
    shares: dict[str, dict[str, float]] = {}
    for aspect in dict.fromkeys(aspect_of.values()):
        ways = [how.get(preference) for preference, of in aspect_of.items() if of == aspect]
        active, passive = (ways.count(way) / len(ways) for way in ("active", "passive"))
        shares[aspect] = {"elicited": active + passive, "active": active, "passive": passive}
    return shares


def number_of(value: float, rewards: Rewards) -> int | None:
    """How many turns earned exactly this (UserRL's released eval.py: 1.0 and 0.8)."""
    return None if None in rewards else list(rewards).count(value)


# -- many trajectories ----------------------------------------------------------------------------------------------


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of the values that are not None; None where there is no such value."""
    scored = [value for value in values if value is not None]
    return sum(scored) / len(scored) if scored else None


def micro_average(scores: Mapping[str, float], counts: Mapping[str, int]) -> float:
    """Mean over all test tasks of all gyms: per-gym scores weighted by the gyms' task counts (UserRL table 3).

    Raises ValueError for a gym without a count, and where all counts are zero.
    """
    missing = sorted(set(scores) - set(counts))
    if missing:
        raise ValueError(f"No task count for {', '.join(missing)}; give one for every gym that has a score.")
    total = sum(counts[gym] for gym in scores)
    if total <= 0:
        raise ValueError("All task counts are zero; give the number of test tasks of each gym.")
    return sum(score * counts[gym] for gym, score in scores.items()) / total


def pass_hat_k(successes: Sequence[Sequence[bool]], k: int) -> float:
    """pass^k: the probability that k trajectories of a task all succeed, averaged over tasks (tau-bench; TARL section 2.3).

    successes: per task one value per trajectory, shape [tasks][n], n at least k. With c of n successful, a task's value is
    C(c, k) / C(n, k).
    """
    _check_counts(successes, k)
    return sum(comb(sum(map(bool, task)), k) / comb(len(task), k) for task in successes) / len(successes)


def pass_at_k(successes: Sequence[Sequence[bool]], k: int) -> float:
    """pass@k: the probability that one of k trajectories of a task succeeds, averaged over tasks (AgentGym-RL figure 9).

    Without bias, as 1 - C(n - c, k) / C(n, k) per task; shape and errors as `pass_hat_k`. Success is what the gym says: a
    partial score is none.
    """
    return 1.0 - pass_hat_k([[not success for success in task] for task in successes], k)


def best_at_k(scores: Sequence[Sequence[float]], k: int) -> float:
    """Expected best score of k trajectories, averaged over tasks (UserBench figure 6; pass@k where scores are 0 or 1).

    scores: per task one value per trajectory, shape [tasks][n]. Exact over all k-subsets: the i-th smallest score is the
    best of C(i - 1, k - 1) of them.
    """
    _check_counts(scores, k)
    total = 0.0
    for task in scores:
        ranked = sorted(task)
        total += sum(score * comb(i, k - 1) for i, score in enumerate(ranked)) / comb(len(ranked), k)
    return total / len(scores)


def _check_counts(tasks: Sequence[Sequence[float]], k: int) -> None:
    if k < 1:
        raise ValueError(f"k is a number of trajectories; give 1 or more, not {k}.")
    if not tasks:
        raise ValueError("There are no tasks to average over.")
    fewest = min(map(len, tasks))
    if fewest < k:
        raise ValueError(f"A task has only {fewest} trajectories; k = {k} needs evaluate.attempts of {k} or more.")
