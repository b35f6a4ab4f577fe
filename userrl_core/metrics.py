"""Every metric of the papers as a plain function of rewards, scores or counts.

A null reward makes a trajectory's value None, and None never enters a mean: what was not scored is not zero.
Turn numbers start at 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import comb

Rewards = Sequence[float | None]

_WAIT = re.compile(r"\bwait\b", re.IGNORECASE)


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


def first_rewarded_turn(rewards: Rewards) -> int | None:
    """Number of the first turn with a reward above zero; None without one, or with a null reward (UserBench table 5)."""
    if None in rewards:
        return None
    return next((t for t, reward in enumerate(rewards, 1) if reward is not None and reward > 0), None)


def return_sum(rewards: Rewards) -> float | None:
    """Sum of raw rewards: the only reward that training curves of different recipes may be compared by."""
    total = 0.0
    for reward in rewards:
        if reward is None:
            return None
        total += reward
    return total


# -- many trajectories ----------------------------------------------------------------------------------------------


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of what was scored; None where nothing was."""
    scored = [value for value in values if value is not None]
    return sum(scored) / len(scored) if scored else None


def micro_average(scores: Mapping[str, float], counts: Mapping[str, int]) -> float:
    """Mean over all test tasks of all gyms: per-gym scores weighted by the gyms' task counts (UserRL table 3).

    Raises ValueError for a gym without a count, and where all counts are zero.
    """
    missing = sorted(set(scores) - set(counts))
    if missing:
        raise ValueError(f"No task count for {', '.join(missing)}; give one for every gym that has a score.")
    whole = sum(counts[gym] for gym in scores)
    if whole <= 0:
        raise ValueError("The gyms have no tasks between them, so there is no average.")
    return sum(score * counts[gym] for gym, score in scores.items()) / whole


def pass_hat_k(successes: Sequence[Sequence[bool]], k: int) -> float:
    """pass^k: the chance that k attempts at a task all succeed, averaged over tasks (tau-bench; TARL section 2.3).

    successes: attempts per task, shape [tasks][n], n at least k. With c of n successful, a task gives C(c, k) / C(n, k).
    """
    _enough(successes, k)
    return sum(comb(sum(map(bool, task)), k) / comb(len(task), k) for task in successes) / len(successes)


def best_at_k(scores: Sequence[Sequence[float]], k: int) -> float:
    """Expected best score of k attempts, averaged over tasks (UserBench figure 6; pass@k where scores are 0 or 1).

    scores: attempts per task, shape [tasks][n]. Exact over all k-subsets: the i-th smallest is the best of
    C(i - 1, k - 1) of them.
    """
    _enough(scores, k)
    total = 0.0
    for task in scores:
        ranked = sorted(task)
        total += sum(score * comb(i, k - 1) for i, score in enumerate(ranked)) / comb(len(ranked), k)
    return total / len(scores)


def _enough(tasks: Sequence[Sequence[float]], k: int) -> None:
    if k < 1:
        raise ValueError(f"k is a number of attempts; {k} is none.")
    if not tasks:
        raise ValueError("There is no task to average over.")
    fewest = min(map(len, tasks))
    if fewest < k:
        raise ValueError(f"A task has only {fewest} attempts; {k} need evaluate.attempts of {k} or more.")


# -- UserBench's auxiliary metrics (appendix C) ---------------------------------------------------------------------


def exist_rate(found: Sequence[int], aspects: Sequence[int]) -> float | None:
    """Best Exist or Correct Exist Rate: share of a task's aspects that got such an option, averaged over tasks.

    found: aspects per task for which the best (or any correct) option was chosen. aspects: aspects per task.
    """
    return _mean_ratio(found, aspects)


def valid_attempt_rate(valid: Sequence[int], attempts: Sequence[int]) -> float | None:
    """Valid Search or Valid Action Attempt: share of a task's attempts that were valid, averaged over tasks.

    A search is valid when it fits an aspect's arguments; an action when it asks for a preference (type 1). Tasks without
    an attempt have no rate and are left out.
    """
    return _mean_ratio(valid, attempts)


def preferences_elicited(
    active: Sequence[int], passive: Sequence[int], preferences: Sequence[int]
) -> dict[str, float | None]:
    """Preference Elicited: share of a task's preferences that came out, averaged over tasks.

    active: revealed because the agent asked. passive: released because it had not asked for too long.
    Returns ``all``, ``active`` and ``passive``.
    """
    both = [a + p for a, p in zip(active, passive, strict=True)]
    return {
        "all": _mean_ratio(both, preferences),
        "active": _mean_ratio(active, preferences),
        "passive": _mean_ratio(passive, preferences),
    }


def _mean_ratio(parts: Sequence[int], wholes: Sequence[int]) -> float | None:
    for part, whole in zip(parts, wholes, strict=True):
        if not 0 <= part <= whole:
            raise ValueError(f"{part} of {whole} is no share; counts lie between 0 and the whole.")
    return mean(part / whole if whole else None for part, whole in zip(parts, wholes, strict=True))


# -- replies (TARL tables 1 and 2) ----------------------------------------------------------------------------------


def waits(reply: str) -> int:
    """How often a reply says "wait", as a word in any case: the paper's sign of self-correction."""
    return len(_WAIT.findall(reply))


def waits_per_reply(replies: Sequence[str]) -> float | None:
    """Mean number of waits of a reply; None without replies."""
    return mean(float(waits(reply)) for reply in replies)


def tokens_per_reply(completion_tokens: Sequence[int]) -> float | None:
    """Mean length of a reply in tokens; None without replies."""
    return mean(map(float, completion_tokens))
