"""The mixture of users that is nearest to a reference: which populations to train with, and in which shares.

Array suffixes: N conversations, U users, K clusters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.users.distance import MIN_CONVERSATIONS, SEED, Users, clustered, histogram, jensen_shannon

DRAWS = 200
"""Resamples of all conversations, for the limits of the weights."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """The shares of users whose mixture is nearest to the reference by Jensen-Shannon divergence over clusters.

    weights: by user, with 95 % limits from all conversations resampled. js: the mixture's divergence, which is fitted and
    never above the smallest of `alone`, the divergence of each user by itself.
    """

    reference: str
    weights: Mapping[str, tuple[float, float, float]]
    js: float
    alone: Mapping[str, float]


def mixture(reference: Users, users: Sequence[Users]) -> Mixture:
    """Return the nearest mixture. Raises ValueError for fewer than two users or too few conversations."""
    if len(users) < 2 or min(len(user.features) for user in (reference, *users)) < MIN_CONVERSATIONS:
        raise ValueError(f"A mixture needs two users, and {MIN_CONVERSATIONS} conversations of each.")
    clusters, labels = clustered([reference, *users])
    target_K, *parts = (histogram(labels_N, clusters) for labels_N in labels)
    shares_UK = np.array([part / part.sum() for part in parts])
    best_U = _weights(target_K, shares_UK)
    rng, drawn = np.random.default_rng(SEED), []
    for _ in range(DRAWS):
        again_K, *again = (histogram(rng.choice(labels_N, len(labels_N)), clusters) for labels_N in labels)
        drawn.append(_weights(again_K, np.array([part / part.sum() for part in again])))
    low_U, high_U = np.quantile(drawn, [0.025, 0.975], axis=0)
    weighted = zip(users, best_U, low_U, high_U, strict=True)
    return Mixture(
        reference.name,
        {user.name: (float(weight), float(low), float(high)) for user, weight, low, high in weighted},
        jensen_shannon(target_K, best_U @ shares_UK),
        {user.name: jensen_shannon(target_K, share_K) for user, share_K in zip(users, shares_UK, strict=True)},
    )


def _weights(target_K: np.ndarray, shares_UK: np.ndarray) -> np.ndarray:
    """Return the weights [U] of the nearest mixture. The divergence is convex in them, so a local search suffices."""
    from scipy.optimize import minimize

    users = len(shares_UK)
    optimum = minimize(
        lambda weights_U: jensen_shannon(target_K, np.clip(weights_U, 0, None) @ shares_UK + 1e-12),
        np.full(users, 1 / users),
        bounds=[(0.0, 1.0)] * users,
        constraints={"type": "eq", "fun": lambda weights_U: weights_U.sum() - 1.0},
        method="SLSQP",
    )
    weights_U = np.clip(optimum.x, 0.0, 1.0)
    return np.asarray(weights_U / weights_U.sum())
