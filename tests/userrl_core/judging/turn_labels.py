"""The conversations whose turns were labelled, rebuilt from their specs. No text of them is stored.

airline: a recorded conversation of tau-bench by index; the calls are carried out again and the customer says what was recorded.
skill: a task of ours played by the demonstrator with a skill and a seed. calls: a task of ours with the given calls.
"""

from __future__ import annotations

import asyncio
import csv
import hashlib
import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from tests.places import TESTS
from userrl_core.episode import Episode, EpisodeRules
from userrl_core.gyms import gym_class, load_published, make, tasks
from userrl_core.gyms.base import parse_config
from userrl_core.interact import InteractCall, render_call
from userrl_core.judging.judge import rule_scores
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import PolicyReply, RolloutContext, Task, Trajectory

HERE = TESTS / "data" / "turn_labels"
TRAIN = RolloutContext(stage="rl-1", step=1, phase="train")
OPTIONS = {"verifier": "writes", "check_outputs": False}


class Replayed:
    """A customer who says what was recorded."""

    def __init__(self, replies: list[str]) -> None:
        self.ledger: list[Any] = []
        self._replies = list(replies)

    async def reply(self, message: str) -> str:
        return self._replies.pop(0)


@lru_cache
def recorded(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((folder / "trajectories_gpt-4o-airline.json").read_text(encoding="utf-8"))
    return rows


@lru_cache
def airline(folder: Path) -> dict[str, Task]:
    return {task.id: task for task in load_published("tau", folder) if task.tier == "airline"}


@lru_cache
def ours() -> dict[str, Task]:
    pool = [
        *tasks("tau", "train", domain="outfitter"),
        *tasks("tau", "train", domain="outfitter", tier="tiny", sizes=[1, 2]),
    ]
    return {task.id: task for task in pool}


def replies_of(row: dict[str, Any]) -> tuple[str, list[str], list[PolicyReply]]:
    """The customer's first message, the further ones, and the agent's replies."""
    said, replies = [], []
    for message in row["traj"][1:]:
        text = message.get("content") or ""
        if message["role"] == "user":
            said.append(text)
        elif message["role"] == "assistant":
            calls = message.get("tool_calls") or []
            if calls:
                function = calls[0]["function"]
                content = json.dumps(
                    {"name": function["name"], "arguments": json.loads(function["arguments"])}, ensure_ascii=False
                )
                replies.append(PolicyReply(text=render_call(InteractCall("answer", content), text)))
            else:
                replies.append(PolicyReply(text=render_call(InteractCall("action", text))))
    return said[0], said[1:], replies


async def _play(episode: Episode, replies: list[PolicyReply]) -> Trajectory:
    episode.start()
    for reply in replies:
        if not await episode.submit(reply):
            break
    return episode.trajectory


async def rebuild(spec: dict[str, Any], folder: Path | None = None) -> Trajectory:
    """Play the conversation again. folder: tau-bench's published data, for the recorded ones."""
    horizon, on_error = (30, "continue") if spec["source"] != "tiny" else (8, "end")
    rules = EpisodeRules(horizon, on_format_error=on_error)
    if spec["source"] == "airline":
        assert folder is not None
        row = recorded(folder)[spec["index"]]
        first, said, replies = replies_of(row)
        task = airline(folder)[f"airline-{row['task_id']:03d}"]
        task = replace(task, payload={**task.payload, "opening": first})
        return await _play(Episode(make("tau", task, user=Replayed(said), **OPTIONS), rules, context=TRAIN), replies)
    task = ours()[spec["task"]]
    gym = make("tau", task, **OPTIONS)
    episode = Episode(gym, rules, context=TRAIN, seed=spec.get("seed", 0))
    if "calls" in spec:
        texts = [one if isinstance(one, str) else render_call(InteractCall(*one)) for one in spec["calls"]]
        return await _play(episode, [PolicyReply(text=text) for text in texts])
    session = ScriptedPolicy(spec["skill"]).session(gym, spec["seed"])
    new = episode.start()
    while not episode.finished:
        new = await episode.submit(await session.act(new))
    return episode.trajectory


def fingerprint(trajectory: Trajectory) -> str:
    """Changes when a conversation is not the labelled one any more."""
    text = json.dumps([[t.choice, t.content, t.observation] for t in trajectory.turns], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def specs(half: str) -> list[dict[str, Any]]:
    """The conversations of one half: dev, on which the judge was improved, or held, which was scored once at the end."""
    return [spec for spec in json.loads((HERE / "conversations.json").read_text()) if spec["half"] == half]


def labels(labeller: str) -> dict[tuple[str, int], tuple[int, str]]:
    """Label and kind by conversation and turn."""
    with (HERE / "labels.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["labeller"] == labeller]
    return {(row["conversation"], int(row["turn"])): (int(row["label"]), row["kind"]) for row in rows}


def marks(half: str, folder: Path | None, version: int = 1) -> dict[tuple[str, int], int]:
    """The rule judge's marks of one half. folder: None leaves the recorded conversations out. version: of the judge."""
    found: dict[tuple[str, int], int] = {}
    for spec in specs(half):
        if spec["source"] == "airline" and folder is None:
            continue
        trajectory = asyncio.run(rebuild(spec, folder))
        assert fingerprint(trajectory) == spec["fingerprint"], (
            f"the turns of {spec['id']} have changed since they were labelled"
        )
        tau = gym_class("tau")
        reference = tau.reference(trajectory.task, parse_config(tau, OPTIONS))
        assert reference is not None
        found |= {(spec["id"], n): mark for n, mark in enumerate(rule_scores(trajectory, reference, version), 1)}
    return found
