"""The distance of users from a reference, and the nearest mixture of users, as blocks."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.users.distance import Distance
from analysis.users.features import DIMENSIONS
from analysis.users.mixture import Mixture
from userrl.audits.chitchat import CHITCHAT
from userrl.reports.document import Block, Heading, TableBlock, Text
from userrl_core.number_format import number

MEASURES = {"D1": "D1 style", "D2": "D2 disclosure", "D3": "D3 clarification", "D4": "D4 reaction to errors"}


def distance_blocks(distance: Distance) -> Iterator[Block]:
    """Yield the distance with its floor."""
    yield Heading(f"Distance from {distance.reference}")
    users, reference = distance.conversations
    yield Text(
        f"{users} conversations of {distance.user}, {reference} of the reference. Floor: the same number between two halves of the "
        "reference, middle and 95 % of 200 halvings. Below the floor, a user differs."
    )
    if distance.reference == CHITCHAT:
        yield Text(
            "These people chat and want nothing done: a reference for style (D1, D3, D4), and none for telling a goal (D2)."
        )
    overall = {MEASURES[key]: (key, value) for key, value in distance.dimensions.items()}
    overall |= {"coverage": ("coverage", distance.coverage), "Jensen-Shannon, bits": ("js", distance.js)}
    yield TableBlock(
        ("measure", "distance", "floor"),
        tuple((name, number(value, 2), _floor(distance, key)) for name, (key, value) in overall.items()),
        "D1 to D4 are means of Dice, 1 for equal means. Coverage is 1 for equal users. For Jensen-Shannon 0 is equal, and a "
        "user above the floor differs. All are at equal numbers of conversations.",
    )
    yield TableBlock(
        ("dimension", "feature", distance.user, "reference", "Dice", "floor"),
        tuple(
            (dimension, name.replace("_", " "), *(number(mean, 2) for mean in distance.means[name]),
             number(distance.dice[name], 2), _floor(distance, name))
            for dimension, names in DIMENSIONS.items()
            for name in names
        ),
    )  # fmt: skip
    test = distance.classifier
    limits = f"{number(test.auc, 2)} [{number(test.low, 2)}, {number(test.high, 2)}]"
    yield Text(
        f"Classifier, on tasks it was not trained on: AUC {limits}, floor {number(test.floor, 2)} (the largest of ten halvings). "
        f"{test.sentence()}"
    )


def _floor(distance: Distance, key: str) -> str:
    middle, low, high = distance.floor[key]
    return f"{number(middle, 2)} [{number(low, 2)}, {number(high, 2)}]"


def mixture_blocks(mixture: Mixture) -> Iterator[Block]:
    """Yield the mixture of users that is nearest to the reference."""
    yield Heading(f"Mixture nearest to {mixture.reference}")
    yield TableBlock(
        ("user", "weight", "Jensen-Shannon alone, bits"),
        tuple(
            (name, f"{number(weight, 2)} [{number(low, 2)}, {number(high, 2)}]", number(mixture.alone[name], 2))
            for name, (weight, low, high) in mixture.weights.items()
        ),
        f"The mixture is at {number(mixture.js, 2)} bits. Its weights are fitted to this reference, with 95 % limits from all "
        "conversations resampled. Train with users in these shares to be near the reference.",
    )
