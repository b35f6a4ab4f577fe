"""The fingerprint of a user: 19 numbers per conversation, in four dimensions (names of arXiv 2605.12894).

D1 style, D2 disclosure, D3 clarification, D4 reaction to errors. Shares are shares of the user's turns. The word lists are ours
and English; a gym in another language has only D2 and the lengths. Published lists (LIWC, NRC) are not free.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence

D1 = (
    "words_per_turn", "short_utterance_rate", "politeness", "formality", "acknowledgment", "verbosity_cv", "repetition",
    "identity_confusion",
)  # fmt: skip
D2 = ("front_loading", "identifiers_per_turn", "opening_length")
D3 = ("uncertainty", "certainty", "pushback", "clarification_question", "info_seeking")
D4 = ("emotional_expression", "accusatory", "strategy_pivot")
DIMENSIONS: Mapping[str, tuple[str, ...]] = {"D1": D1, "D2": D2, "D3": D3, "D4": D4}
FEATURES = (*D1, *D2, *D3, *D4)

SHORT = 3
"""Largest number of words of a short utterance."""
GRAM = 4
"""Words of a repeated passage."""

WORDS: Mapping[str, str] = {
    "politeness": r"\b(please|thank(s| you)?|thankful|appreciate[ds]?|grateful|cheers|much obliged)\b",
    "formality": r"\b(would like|could you|regarding|furthermore|moreover|additionally|kindly|assist(ance)?|concerning)\b",
    "acknowledgment": r"^\s*(ok(ay)?|got it|i see|sure|yes|yeah|yep|right|alright|great|perfect|understood|sounds good)\b",
    "identity_confusion": r"how (may|can) i (help|assist)|i('d| would) be happy to (help|assist)|is there anything else i can",
    "uncertainty": r"\b(maybe|not sure|unsure|i think|i guess|i suppose|perhaps|don'?t (know|remember|recall)|probably|might)\b",
    "certainty": r"\b(definitely|absolutely|certainly|for sure|of course|exactly|always|must|no doubt)\b",
    "pushback": r"that'?s (not|wrong|incorrect)|\bbut (i|you|that)\b|i disagree|are you sure|not what i|\bwhy (not|can'?t)\b",
    "clarification_question": r"what do you mean|can you (clarify|explain)|i don'?t understand|which (one|do you)|what does that",
    "info_seeking": r"\?",
    "emotional_expression": r"\b(ugh|frustrat\w*|annoy\w*|upset|disappoint\w*|angry|happy|glad|worried|sorry|wow)\b|!",
    "accusatory": r"\b(unacceptable|ridiculous|scam|your fault|terrible|awful|waste of|incompetent|lied|lying)\b",
    "strategy_pivot": r"\b(instead|in that case|alternatively|scratch that|never ?mind|on second thou?ghts?)\b",
}
"""Our word lists by feature, as regular expressions without regard to case."""

_IDENTIFIER = re.compile(r"\b([A-Z0-9]*\d[A-Z0-9]{3,}|#?W\d{6,}|\w+_\w+_\d+|[A-Z]{3}\d{3})\b", re.I)


def fingerprint(utterances: Sequence[str], patterns: Mapping[str, str] = WORDS) -> dict[str, float]:
    """Return the 19 features of one conversation. patterns: the word lists. Raises ValueError without utterances."""
    if not utterances:
        raise ValueError("A fingerprint needs at least one utterance.")
    tokens = [text.split() for text in utterances]
    lengths = [len(utterance_tokens) for utterance_tokens in tokens]
    mean, turns = statistics.fmean(lengths), len(utterances)
    identifiers = [len(set(_IDENTIFIER.findall(text))) for text in utterances]
    numbers = {
        "words_per_turn": mean,
        "short_utterance_rate": sum(length <= SHORT for length in lengths) / turns,
        "verbosity_cv": statistics.pstdev(lengths) / mean if mean else 0.0,
        "repetition": _repeated(tokens) / turns,
        "front_loading": identifiers[0] / sum(identifiers) if sum(identifiers) else 0.0,
        "identifiers_per_turn": sum(identifiers) / turns,
        "opening_length": float(lengths[0]),
    }
    for name, pattern in patterns.items():
        numbers[name] = sum(bool(re.search(pattern, text, re.I)) for text in utterances) / turns
    return {name: numbers[name] for name in FEATURES}


def typical(conversations: Sequence[Sequence[str]], n: int = 3) -> list[str]:
    """Return the utterances nearest to the middle in length, one conversation each; the first of equally near ones."""
    every = sorted(len(text.split()) for utterances in conversations for text in utterances)
    if not every:
        return []
    middle = every[len(every) // 2]
    nearest = [
        min(utterances, key=lambda text: abs(len(text.split()) - middle)) for utterances in conversations if utterances
    ]
    ordered = sorted(dict.fromkeys(nearest), key=lambda text: abs(len(text.split()) - middle))
    return ordered[:n]


def _repeated(tokens: Sequence[Sequence[str]]) -> int:
    """Return the number of utterances with a passage that was said before."""
    earlier_grams: set[tuple[str, ...]] = set()
    repeated = 0
    for utterance_tokens in tokens:
        lower = [token.lower() for token in utterance_tokens]
        grams = {tuple(lower[i : i + GRAM]) for i in range(len(lower) - GRAM + 1)}
        repeated += bool(grams & earlier_grams)
        earlier_grams |= grams
    return repeated
