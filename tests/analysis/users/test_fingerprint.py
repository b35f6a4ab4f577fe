"""The fingerprint of a user and its distance from a reference."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from analysis.foreign.dialogue import divided
from analysis.users.conversation import conversation, words_of
from analysis.users.distance import Users, coverage, dice, distance, jensen_shannon, told_apart
from analysis.users.features import FEATURES, WORDS, fingerprint, typical
from tests.analysis.users.recorded import recorded
from tests.published import published

NOTES = {
    **WORDS,
    "politeness": r"\b(please|thank(s| you)?|appreciate|grateful)\b",
    "formality": r"\b(would like|could you|regarding|furthermore|additionally|kindly|assist(ance)?)\b",
    "acknowledgment": r"^\s*(ok(ay)?|got it|sure|yes|yeah|yep|alright|great|perfect|understood|sounds good)\b",
    "uncertainty": r"\b(maybe|not sure|i think|i guess|perhaps|don'?t (know|remember|recall)|probably|might)\b",
    "certainty": r"\b(definitely|absolutely|certainly|for sure|of course|exactly|always|must)\b",
    "emotional_expression": r"\b(ugh|frustrat\w*|annoy\w*|upset|disappoint\w*|angry|happy|worried|sorry|wow)\b|!",
    "accusatory": r"\b(unacceptable|ridiculous|scam|your fault|terrible|waste of|incompetent|lied)\b",
    "strategy_pivot": r"\b(instead|in that case|alternatively|scratch that|never ?mind)\b",
}
"""The word lists of the golden values."""

LINES = ("I want to cancel my booking.", "It is for the red bike.", "On the third of May.", "Two days, with insurance.")


def user(name: str, n: int, seed: int, ending: str = "", short: float = 0.2) -> Users:
    """A scripted user: sentences in random order, some of them short, each with an ending."""
    rng = random.Random(seed)
    said = [
        [("Yes." if rng.random() < short else rng.choice(LINES)) + ending for _ in range(rng.randint(3, 6))]
        for _ in range(n)
    ]
    return users(name, said)


def users(name: str, said: Sequence[Sequence[str]]) -> Users:
    features = np.array([list(fingerprint(one).values()) for one in said])
    return Users(name, features, tuple(str(i % 12) for i in range(len(said))))


def test_a_fingerprint_has_the_19_features_of_one_conversation() -> None:
    found = fingerprint(["Hello, my order is W1234567.", "Yes", "Please cancel it!", "my order is W1234567. please"])
    assert tuple(found) == FEATURES
    assert len(FEATURES) == 19
    assert found["words_per_turn"] == pytest.approx((5 + 1 + 3 + 5) / 4)
    assert found["short_utterance_rate"] == 0.5
    assert found["politeness"] == 0.5
    assert found["acknowledgment"] == 0.25
    assert found["repetition"] == 0.25
    assert found["front_loading"] == 0.5
    assert (found["opening_length"], found["identifiers_per_turn"]) == (5.0, 0.5)
    with pytest.raises(ValueError, match="at least one"):
        fingerprint([])


def test_the_recorded_gpt_4o_user_has_the_golden_values() -> None:
    said = [conversation(one).utterances() for one in recorded(published("tau-bench"))]
    by_notes = [fingerprint(one, NOTES) for one in said if one]
    mean = {name: sum(one[name] for one in by_notes) / len(by_notes) for name in FEATURES}
    assert len(by_notes) == 200
    assert mean["words_per_turn"] == pytest.approx(19.3, abs=0.05)
    assert mean["short_utterance_rate"] == pytest.approx(0.004, abs=0.01)
    assert mean["verbosity_cv"] == pytest.approx(0.36, abs=0.01)
    assert mean["politeness"] == pytest.approx(0.357, abs=0.01)
    assert mean["acknowledgment"] == pytest.approx(0.28, abs=0.01)


def test_two_halves_of_one_user_are_not_told_apart_and_two_users_are() -> None:
    reference = user("people", 60, 1)
    same, other = user("same", 60, 2), user("other", 60, 3, " Thank you!", short=0.0)
    near, far = (distance(one, reference, trees=10) for one in (same, other))
    assert not near.classifier.apart
    assert near.classifier.sentence() == "The classifier cannot tell it from the reference."
    assert far.classifier.apart
    assert far.classifier.auc > 0.95
    assert {name for name, _ in far.classifier.features} & {
        "politeness",
        "emotional_expression",
        "short_utterance_rate",
    }
    for key, (_, low, _) in near.floor.items():
        if key.startswith("D"):
            assert near.dimensions[key] > low - 0.05, key
    assert far.dimensions["D1"] < far.floor["D1"][1]
    assert far.coverage < far.floor["coverage"][1]
    assert near.coverage > far.coverage
    assert near.js < near.floor["js"][2] < far.js


def test_the_formulas_have_their_values() -> None:
    assert (dice(1, 3), dice(0, 0), dice(0, 1)) == (0.5, 1.0, 0.0)
    assert jensen_shannon(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == pytest.approx(1.0)
    assert jensen_shannon(np.array([2.0, 2.0]), np.array([1.0, 1.0])) == 0.0
    points = np.array([[0.0] * 19, [1.0] * 19, [2.0] * 19])
    assert coverage(points, points) == 1.0
    assert coverage(points + 100, points) == 0.0


def test_too_few_tasks_or_conversations_give_no_verdict() -> None:
    one = user("one", 20, 1)
    few = Users("few", one.features, ("t",) * 20)
    assert not told_apart(few, few).apart
    with pytest.raises(ValueError, match="8 conversations"):
        distance(user("tiny", 4, 1), one)


@pytest.mark.parametrize("role", ["system", "developer", "tool"])
def test_words_of_a_developer_or_a_tool_in_mid_chat_are_not_the_users(role: str) -> None:
    said = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Where to?"},
        {"role": role, "content": "Offer the insurance.\nAlways."},
        {"role": "user", "name": "ada", "content": "To Rome.\nBy train."},
        {"role": "assistant", "content": "When?"},
        {"role": "user", "content": "Note: on the third."},
    ]
    first, second = divided(said, "a chat").turns
    assert words_of(first.observation) == "To Rome.\nBy train."
    assert words_of(second.observation) == "Note: on the third."


def test_typical_utterances_are_of_middling_length() -> None:
    assert typical([["a", "a b c"], ["a b c d e f", "x y z"]]) == ["a b c", "x y z"]
    assert typical([]) == []
