"""The rule judge's marks of tau-bench's recorded airline conversations, which are played again with what was recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

from tests.userrl_core.judging.turn_labels import OPTIONS, rebuild
from tests.userrl_core.judging.turn_labels import recorded as rows
from userrl_core.gyms import gym_class
from userrl_core.gyms.base import parse_config
from userrl_core.judging.judge import rule_scores

Marks = dict[int, int]


def judged(data: Path, keys: Collection[str], version: int) -> dict[str, Marks]:
    """Return the marks of the judged turns by conversation ("task/trial") and turn."""
    marks: dict[str, Marks] = {}
    tau = gym_class("tau")
    for index, row in enumerate(rows(data)):
        key = f"{row['task_id']}/{row['trial']}"
        if key in keys:
            trajectory = asyncio.run(rebuild({"source": "airline", "index": index}, data))
            reference = tau.reference(trajectory.task, parse_config(tau, OPTIONS))
            assert reference is not None
            marks[key] = dict(enumerate(rule_scores(trajectory, reference, version), 1))
    return marks
