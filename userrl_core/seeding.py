"""Seeds and splits derived from content, so that no order of execution and no global generator can change them."""

from __future__ import annotations

import hashlib
import json
from typing import Literal

Split = Literal["train", "validation", "test"]


def derive_seed(*parts: object) -> int:
    """A 63-bit seed from the parts' JSON: the same parts give the same seed on every machine and Python version."""
    digest = hashlib.blake2b(json.dumps(parts, sort_keys=True, default=str).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def content_hash(value: object) -> str:
    """16 hex digits over the canonical JSON of a value: the identity of a task's content."""
    return hashlib.blake2b(_canonical(value).encode(), digest_size=8).hexdigest()


_canonical = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode


def split_of(content: str, *, test: float = 0.2, validation: float = 0.05) -> Split:
    """The split of our own task with this content hash: 20 % test, 5 % of the rest validation, by hash alone."""
    draw = derive_seed("split", content) / 2**63
    if draw < test:
        return "test"
    return validation_of(content, validation)


def validation_of(content: str, share: float = 0.05) -> Split:
    """Train or validation for a task that is not test: the 5 % that checkpoints are chosen on (UserRL section 4.1)."""
    return "validation" if derive_seed("validation", content) / 2**63 < share else "train"
