"""Dialogue acts by patterns of English words, for a home without the encoder. They miss words that nobody thought of."""

from __future__ import annotations

import re
from collections.abc import Sequence

from analysis.users.findings import PATTERNS
from userrl_core.gyms.tau.blame import REFUSES
from userrl_core.gyms.tau.stopping import announces
from userrl_core.judging.acts import Act, Utterance

_YES = re.compile(
    r"^\W*(yes|yeah|yep|sure|ok(ay)?|please (do|proceed|go ahead)|correct|absolutely|perfect|sounds (good|great))\b|"
    r"\b(go ahead|please proceed|proceed with|i confirm|i agree|that('s| is| would be| sounds) (right|correct|fine|good|great))\b",
    re.I,
)
_OBJECTS_TO = re.compile(r"\b(no|not|but|instead|rather|except|wait)\b|n't\b", re.I)
_HANDS_OVER = re.compile(r"\btransfer|\bhand(ing|ed)? (you|this) over\b|\b(human|colleague)\b", re.I)
_FORGOTTEN = re.compile(r"\b(not|n't) (remember|recall|know)\b", re.I)
_FAREWELL = re.compile(r"\b(thank(s| you)|good ?bye|bye|that('s| is) all|have a (great|good|nice))\b", re.I)
_COACHED = re.compile(
    r"\b(you (should|need to|must|have to) (check|look up|call|use|search|verify|query|run)|"
    r"(use|call|run|try) (the|your) (\w+ )?(tool|function|api)|according to (the|your) policy|your policy (says|allows|states))\b",
    re.I,
)


class PatternActs:
    """The reader of acts by patterns. It never says that an utterance states something."""

    name = PATTERNS

    def read(self, utterances: Sequence[Utterance]) -> list[frozenset[Act]]:
        """Return the acts of each utterance."""
        return [_acts(utterance.text) for utterance in utterances]


def _acts(text: str) -> frozenset[Act]:
    present: dict[Act, bool] = {
        "confirms": bool(_YES.search(text)) and not _OBJECTS_TO.search(text),
        "refuses": bool(REFUSES.search(text)),
        "asks": "?" in text or "provide" in text.lower(),
        "leaves": bool(_FAREWELL.search(text)),
        "announces": announces(text),
        "coaches": bool(_COACHED.search(text)),
        "hands_over": bool(_HANDS_OVER.search(text)),
        "hesitates": bool(_FORGOTTEN.search(text)),
    }
    return frozenset(act for act, holds in present.items() if holds)
