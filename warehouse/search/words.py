"""The words of a text exactly as SQLite's `unicode61` tokenizer cuts them, and hashed bigrams.

The text index stores for each turn which words it has, not where: positions are most of an index's size. So that phrases
are found quickly all the same, each bigram leaves its hash, one of 4,096. A turn without the bigrams of a phrase cannot
hold it; one with them may, and is then read.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from zlib import crc32

import numpy as np

LETTERS = [chr(0x2000 + n) for n in range(64)]
"""Letters of hashes: general punctuation, which unicode61 takes for gaps, so that no word of any text looks like one."""

_HASHES = np.array([first + second for first in LETTERS for second in LETTERS])
_SPACED = np.char.add(_HASHES, " ")
_BITS = len(_HASHES).bit_length() - 1

_LONGEST = 32_768
"""Bytes of a word that FTS5 looks at."""

BATCH_CHARACTERS = 4_000_000
"""Characters of texts whose words are in memory at once: as objects they take 16 times the text's own bytes."""

_BLOCK = 256
_CACHED_CODES = 200_000


def words(text: str) -> list[str]:
    """Words in their order, folded as unicode61 does: lower case, without diacritics."""
    return text.translate(_FOLDED).split()


def bigrams(tokens: list[str]) -> set[str]:
    """Hashes of each two neighbours."""
    return set(_HASHES[_pairs(tokens)].tolist())


def documents(texts: list[str]) -> Iterator[str]:
    """What the index stores of each text: its words and bigrams, for FTS5's `ascii` tokenizer."""
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= BATCH_CHARACTERS:
            yield from _documents(batch)
            batch, size = [], 0
    yield from _documents(batch)


def _documents(texts: list[str]) -> Iterator[str]:
    folded = [text.translate(_FOLDED) for text in texts]
    tokens = [text.split() for text in folded]
    # Many texts at once, which is much quicker; the pair of one text's end and the next one's start is cut out.
    spaced = _SPACED[_pairs(list(chain.from_iterable(tokens)))].tobytes().decode(f"utf-32-{sys.byteorder[0]}e")
    width, at = len(_SPACED[0]), 0
    for text, own in zip(folded, tokens, strict=True):
        yield f"{text} {spaced[width * at : width * (at + len(own) - 1)]}" if own else ""
        at += len(own)


def _pairs(tokens: list[str]) -> np.ndarray:
    """Numbers of the neighbours' hashes, shape [tokens - 1]."""
    codes = np.fromiter(map(_CODES.__getitem__, tokens), np.uint32, len(tokens))
    return (codes[:-1] ^ codes[1:] >> _BITS) & (len(_HASHES) - 1)


class _Folded(dict[int, str]):
    """What unicode61 makes of a character: a gap, nothing (a combining diacritic), or one folded character.

    SQLite itself is asked, for a block of characters at a time, as its tables of Unicode differ from Python's.
    """

    def __missing__(self, point: int) -> str:
        first = point - point % _BLOCK
        block = [p for p in range(first, first + _BLOCK) if not 0xD800 <= p < 0xE000]
        folded = dict.fromkeys(range(first, first + _BLOCK), " ")
        with closing(sqlite3.connect(":memory:")) as probe:
            probe.execute("CREATE VIRTUAL TABLE probed USING fts5(body, content='', tokenize='unicode61')")
            probe.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(probed, 'instance')")
            probe.executemany("INSERT INTO probed(rowid, body) VALUES (?, ?)", ((p, f"a{chr(p)}b") for p in block))
            for p, term in probe.execute("SELECT doc, term FROM terms WHERE term GLOB 'a*b'"):
                folded[p] = term[1:-1]
        self.update(folded)
        return self[point]


class _Codes(dict[str, int]):
    """Cached check sums of words."""

    def __missing__(self, word: str) -> int:
        if len(self) >= _CACHED_CODES:
            self.clear()
        code = self[word] = crc32(word.encode()[:_LONGEST])
        return code


_FOLDED, _CODES = _Folded(), _Codes()
