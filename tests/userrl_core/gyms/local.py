"""The gyms that need nothing but this machine, and what is installed on it."""

from __future__ import annotations

from importlib.util import find_spec

from userrl_core.gyms import names

NEEDS = {"babyai": "minigrid"}
ELSEWHERE = ("agentgym", "openenv", "sciworld", "verifiers", "webshop")
"""Servers; a Java process and a browser, which take too long for tests of all gyms."""
LOCAL_GYMS = tuple(
    name for name in names() if name not in ELSEWHERE and (name not in NEEDS or find_spec(NEEDS[name]) is not None)
)
