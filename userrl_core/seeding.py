"""Seeds and splits derived from content: independent of the order of execution and of global generators."""

from __future__ import annotations

import hashlib
import json
from typing import Literal

Split = Literal["train", "validation", "test"]


def derive_seed(*parts: object) -> int:
    """Return a 63-bit seed from the parts' JSON: the same parts give the same seed on every machine and Python version."""
    digest = hashlib.blake2b(json.dumps(parts, sort_keys=True, default=str).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def content_hash(value: object) -> str:
    """Return 16 hex digits over the canonical JSON of a value; the id of a task of ours."""
    return hashlib.blake2b(_canonical(value).encode(), digest_size=8).hexdigest()


_canonical = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode


def split_of(content: str, *, test: float = 0.2, validation: float = 0.05) -> Split:
    """Return the split of a task of ours with this content hash: 20 % test, 5 % of the rest validation."""
    draw = derive_seed("split", content) / 2**63
    if draw < test:
        return "test"
    return validation_of(content, validation)


def validation_of(content: str, share: float = 0.05) -> Split:
    """Return train or validation for a task outside the test split; checkpoints are chosen on the 5 % (UserRL section 4.1)."""
    return "validation" if derive_seed("validation", content) / 2**63 < share else "train"
