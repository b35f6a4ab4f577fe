"""Dialogue acts by a linear head over the encoder's embeddings.

    python -m userrl_core.training.local.acts FOLDER       answers on stdout what it reads on stdin

One line is a JSON list of utterances ([speaker, before, text]); the answer is one line with the list of their acts. Whoever may
not load a model starts this process. `lab/checks/users_acts.py` trains the head.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import numpy as np
from safetensors import safe_open

from userrl_core.judging.acts import ACTS, Act, Utterance
from userrl_core.training.local.encoder import LAYERS, SentenceEncoder
from userrl_core.training.local.threads import fix_threads

HEAD = Path(__file__).with_name("acts.safetensors")
"""weight [A, F], bias [A] and threshold [A], for the acts in the order of `ACTS`."""


HASHED = 2048
_WORD = re.compile(r"[a-z0-9']+|[?!]|[^\W\d_]+|[^\s\w]")
_MASKS = (
    (re.compile(r"[\w.+-]+@[\w-]+(\.\w+)+"), "someone@mail.com"),
    (re.compile(r"\b\d{4}-\d\d-\d\d\b"), "May 5"),
    (re.compile(r"#?\b(?=\w*\d)\w{3,}\b"), "A1"),
)


class EncoderActs:
    """The reader of acts by the encoder. folder: of the encoder."""

    name = "encoder"

    def __init__(self, folder: Path) -> None:
        self._encoder = SentenceEncoder(folder, max(LAYERS))
        with safe_open(HEAD, framework="numpy") as file:
            self._weight_AF, self._bias_A, self._threshold_A = (
                file.get_tensor(name).astype(np.float32) for name in ("weight", "bias", "threshold")
            )

    def read(self, utterances: Sequence[Utterance]) -> list[frozenset[Act]]:
        """Return the acts of each utterance: those whose probability is above the act's threshold."""
        if not utterances:
            return []
        logits_NA = features(self._encoder, utterances) @ self._weight_AF.T + self._bias_A
        above_NA = logits_NA > np.log(self._threshold_A / (1 - self._threshold_A))
        return [frozenset(act for act, above in zip(ACTS, row, strict=True) if above) for row in above_NA]


def features(encoder: SentenceEncoder, utterances: Sequence[Utterance]) -> np.ndarray:
    """Return the head's input, [N, F]: the embeddings, hashed words, and five facts of the surface.

    Identifiers, dates and addresses are masked first: an act does not depend on them.
    """
    pairs = [(masked(utterance.before), masked(utterance.text)) for utterance in utterances]
    surface_NS = [
        [
            utterance.speaker == "agent",
            "?" in utterance.text,
            "?" in utterance.before,
            math.log1p(len(utterance.text.split())) / 3,
            "!" in utterance.text,
        ]
        for utterance in utterances
    ]
    words_NH = np.array([_hashed(text) for _, text in pairs])
    return np.concatenate([encoder.read(pairs), words_NH, np.array(surface_NS, dtype=np.float32)], axis=1)


def masked(text: str) -> str:
    """Return a text with common words in place of addresses, dates and identifiers."""
    for pattern, replacement in _MASKS:
        text = pattern.sub(replacement, text)
    return text


def _hashed(text: str) -> np.ndarray:
    """Return the counts of a text's words, pairs of words and parts of words, hashed to `HASHED` places, of length 1."""
    tokens = _WORD.findall(text.lower())
    parts = [f" {token} "[at : at + size] for token in tokens for size in (3, 4) for at in range(len(token) + 3 - size)]
    counts_H = np.zeros(HASHED, dtype=np.float32)
    for gram in (*tokens, *map(" ".join, pairwise(tokens)), *(f"#{part}" for part in parts)):
        counts_H[crc32(gram.encode()) % HASHED] += 1
    counts_H = np.log1p(counts_H)
    return counts_H / max(float(np.linalg.norm(counts_H)), 1e-6)


def main() -> None:
    """Answer every line of stdin."""
    fix_threads(2)
    reader = EncoderActs(Path(sys.argv[1]))
    for line in sys.stdin:
        utterances = [Utterance(*fields) for fields in json.loads(line)]
        print(json.dumps([sorted(acts) for acts in reader.read(utterances)]), flush=True)


if __name__ == "__main__":
    main()
