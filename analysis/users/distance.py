"""The distance of a user from a reference, always with the distance between two halves of the reference (the floor).

Input is one fingerprint per conversation and its task. Array suffixes: N conversations, F features, K clusters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.users.features import DIMENSIONS, FEATURES

FLOOR_DRAWS = 200
"""Random halvings of the reference."""
SEED = 42
MAX_TELLING = 3
TREES = 200
FLOOR_FORESTS = 10
"""Halvings of the reference that the classifier is trained on."""
MIN_CONVERSATIONS = 8
"""Conversations on either side below which no distance is computed."""


@dataclass(frozen=True, slots=True)
class Users:
    """A user's conversations. features: fingerprints [N, F]. tasks: the task of each."""

    name: str
    features: np.ndarray
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClassifierTest:
    """Whether a classifier tells two users apart, on tasks it was not trained on.

    auc: nan for too few tasks. low, high: 95 % limits from the tasks resampled. features: the most telling ones, with True
    where the user has more than the reference. floor: the largest AUC between two halves of the reference. The limits alone
    are too narrow, because similar conversations are few different ones.
    """

    auc: float
    low: float
    high: float
    features: tuple[tuple[str, bool], ...]
    floor: float = 0.5

    @property
    def apart(self) -> bool:
        """Whether the users can be told apart."""
        return self.low > 0.5 and self.auc > self.floor

    def sentence(self) -> str:
        """Return how the user differs from the reference."""
        if self.auc != self.auc:
            return "There are too few tasks to train a classifier."
        if not self.apart:
            return "The classifier cannot tell it from the reference."
        parts = [f"{'more' if more else 'less'} {name.replace('_', ' ')}" for name, more in self.features]
        return f"The classifier can tell it from the reference: {', '.join(parts)}."


@dataclass(frozen=True, slots=True)
class Distance:
    """The distance of a user from a reference.

    conversations: numbers of the user's and of the reference's. dice: by feature. dimensions: D1 to D4. js: Jensen-Shannon
    divergence (base 2) of cluster histograms. floor: middle and 95 % range of the same numbers between two halves of the
    reference, by name. All are at equal numbers of conversations: those of half the reference, or of the user if it has fewer.
    """

    user: str
    reference: str
    conversations: tuple[int, int]
    means: Mapping[str, tuple[float, float]]
    """Means of each feature: the user's and the reference's."""
    dice: Mapping[str, float]
    dimensions: Mapping[str, float]
    coverage: float
    js: float
    classifier: ClassifierTest
    floor: Mapping[str, tuple[float, float, float]]


def dice(a: float, b: float) -> float:
    """Return 2 min(a, b) / (a + b); 1 where both are 0."""
    return 2 * min(a, b) / (a + b) if a + b else 1.0


def task_mean(users: Users) -> np.ndarray:
    """Return the mean fingerprint [F]: over the attempts at a task, then over tasks."""
    names, place_N = np.unique(np.array(users.tasks), return_inverse=True)
    sums_TF = np.zeros((len(names), users.features.shape[1]))
    np.add.at(sums_TF, place_N, users.features)
    return np.asarray((sums_TF / np.bincount(place_N)[:, None]).mean(0))


def feature_dice(user: Users, reference: Users) -> dict[str, float]:
    """Return the Dice of the mean features by name, and their means over each of D1 to D4."""
    means = zip(FEATURES, task_mean(user), task_mean(reference), strict=True)
    by_feature = {name: dice(float(a), float(b)) for name, a, b in means}
    return by_feature | {key: float(np.mean([by_feature[n] for n in names])) for key, names in DIMENSIONS.items()}


def coverage(user_NF: np.ndarray, reference_NF: np.ndarray) -> float:
    """Return max(0, 1 - min(1, err / (2 d))), with err the two-way Chamfer distance and d the reference's mean distance."""
    from scipy.spatial.distance import cdist, pdist

    middle_F, spread_F = reference_NF.mean(0), reference_NF.std(0) + 1e-9
    user, reference = (user_NF - middle_F) / spread_F, (reference_NF - middle_F) / spread_F
    between = cdist(reference, user)
    scale = float(pdist(reference).mean())
    if scale == 0:
        return float(between.max() == 0)
    error = float(between.min(1).mean() + between.min(0).mean())
    return max(0.0, 1.0 - min(1.0, error / (2 * scale)))


def jensen_shannon(p_K: np.ndarray, q_K: np.ndarray) -> float:
    """Return the Jensen-Shannon divergence of two histograms in bits, in [0, 1]."""
    from scipy.spatial.distance import jensenshannon

    return float(jensenshannon(p_K, q_K, base=2)) ** 2


def clustered(all_users: Sequence[Users]) -> tuple[int, list[np.ndarray]]:
    """Return the number of clusters, and the clusters of each one's conversations; k-means over all of them."""
    from sklearn.cluster import KMeans

    every_NF = np.vstack([users.features for users in all_users])
    scaled_NF = (every_NF - every_NF.mean(0)) / (every_NF.std(0) + 1e-9)
    clusters = int(np.clip(len(scaled_NF) // 10, 2, 12))
    labels_N = KMeans(clusters, n_init=4, random_state=SEED).fit(scaled_NF).labels_
    return clusters, np.split(labels_N, np.cumsum([len(users.features) for users in all_users])[:-1])


def told_apart(user: Users, reference: Users, *, with_features: bool = True, trees: int = TREES) -> ClassifierTest:
    """Train a random forest to tell the two apart, split by task, and return its AUC on the tasks left out.

    with_features: find the most telling features too, by permutation, which takes most of the time.
    """
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.inspection import permutation_importance
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import GroupKFold

    features_NF = np.vstack([user.features, reference.features])
    label_N = np.repeat([1, 0], [len(user.features), len(reference.features)])
    tasks_N = np.array([*user.tasks, *reference.tasks])
    names = sorted(set(tasks_N))
    if len(names) < 4:
        return ClassifierTest(float("nan"), float("nan"), float("nan"), ())
    forest = RandomForestClassifier(trees, max_depth=12, class_weight="balanced", random_state=SEED)
    scores_N, importance_F = np.zeros(len(label_N)), np.zeros(len(FEATURES))
    for train, test in GroupKFold(min(5, len(names))).split(features_NF, label_N, tasks_N):
        if len(set(label_N[train])) < 2:
            return ClassifierTest(float("nan"), float("nan"), float("nan"), ())
        forest.fit(features_NF[train], label_N[train])
        scores_N[test] = forest.predict_proba(features_NF[test])[:, 1]
        if with_features and len(set(label_N[test])) > 1:
            importance = permutation_importance(
                forest, features_NF[test], label_N[test], n_repeats=1, random_state=SEED, scoring="roc_auc"
            )
            importance_F += importance.importances_mean
    rng, drawn = np.random.default_rng(SEED), []
    of_task = {name: np.flatnonzero(tasks_N == name) for name in names}
    for _ in range(FLOOR_DRAWS if with_features else 1):
        rows = np.concatenate([of_task[name] for name in rng.choice(names, len(names))])
        if len(set(label_N[rows])) > 1:
            drawn.append(roc_auc_score(label_N[rows], scores_N[rows]))
    low, high = np.quantile(drawn, [0.025, 0.975])
    more_F = user.features.mean(0) > reference.features.mean(0)
    telling = tuple(
        (FEATURES[i], bool(more_F[i])) for i in np.argsort(-importance_F)[: MAX_TELLING if with_features else 0]
    )
    return ClassifierTest(float(roc_auc_score(label_N, scores_N)), float(low), float(high), telling)


def distance(user: Users, reference: Users, *, trees: int = TREES) -> Distance:
    """Return the distance of a user from a reference, with the floor. Raises ValueError for fewer than `MIN_CONVERSATIONS` each."""
    if min(len(user.features), len(reference.features)) < MIN_CONVERSATIONS:
        raise ValueError(f"A distance needs {MIN_CONVERSATIONS} conversations on either side.")
    rng = np.random.default_rng(SEED)
    half = min(len(reference.features) // 2, len(user.features))
    floor: dict[str, list[float]] = {}
    distances: dict[str, list[float]] = {}
    clusters, (labels_N, user_labels_N) = clustered([reference, user])

    def measure(into: dict[str, list[float]], measured: Users, measured_labels_N: np.ndarray, part: np.ndarray) -> None:
        """Measure a part of a user's conversations from the first half of the reference."""
        half_user = _part(measured, part)
        numbers = feature_dice(half_user, first)
        numbers["coverage"] = coverage(half_user.features, first.features)
        numbers["js"] = jensen_shannon(
            histogram(labels_N[order[:half]], clusters), histogram(measured_labels_N[part], clusters)
        )
        for key, value in numbers.items():
            into.setdefault(key, []).append(value)

    for _ in range(FLOOR_DRAWS):
        order = rng.permutation(len(reference.features))
        first = _part(reference, order[:half])
        measure(floor, reference, labels_N, order[half : 2 * half])
        measure(distances, user, user_labels_N, rng.permutation(len(user.features))[:half])
    mean = {key: float(np.mean(values)) for key, values in distances.items()}
    return Distance(
        user.name,
        reference.name,
        (len(user.features), len(reference.features)),
        dict(zip(FEATURES, zip(task_mean(user).tolist(), task_mean(reference).tolist(), strict=True), strict=True)),
        {name: mean[name] for name in FEATURES},
        {name: mean[name] for name in DIMENSIONS},
        mean["coverage"],
        mean["js"],
        replace(told_apart(user, reference, trees=trees), floor=_forest_floor(reference, trees)),
        {key: _range(values) for key, values in floor.items()},
    )


def _part(users: Users, rows: np.ndarray) -> Users:
    return Users(users.name, users.features[rows], tuple(users.tasks[i] for i in rows))


def _forest_floor(reference: Users, trees: int) -> float:
    rng, aucs = np.random.default_rng(SEED), [0.5]
    for _ in range(FLOOR_FORESTS):
        order = rng.permutation(len(reference.features))
        first, second = (_part(reference, part) for part in np.array_split(order, 2))
        aucs.append(told_apart(first, second, with_features=False, trees=trees).auc)
    return float(np.nanmax(aucs))


def histogram(labels_N: np.ndarray, clusters: int) -> np.ndarray:
    """Return the number of conversations in each cluster, [K]."""
    return np.bincount(labels_N, minlength=clusters).astype(float)


def _range(values: Sequence[float]) -> tuple[float, float, float]:
    low, middle, high = np.quantile(values, [0.025, 0.5, 0.975])
    return float(middle), float(low), float(high)
