"""SearchQA's local corpus. Its invented country differs from SearchGym's, which stays held out."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from userrl_core.gyms.search.corpus import Corpus, build

SEED = 1848
"""Seed of the corpus. Another seed gives other facts and other tasks."""


@lru_cache(maxsize=1)
def corpus() -> Corpus:
    """Return the corpus, built once and always the same."""
    return build(Path(__file__).with_name("world.json"), SEED)
