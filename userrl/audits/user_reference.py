"""The users that others are compared with: people, a file of another tool or of ours, or another run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from analysis.foreign.conversation import ForeignConversation
from analysis.foreign.formats import OURS, conversations, recognised
from analysis.users.conversation import conversation
from analysis.users.distance import Users
from analysis.users.features import FEATURES, fingerprint
from userrl.audits.chitchat import CHITCHAT, chitchat_users
from userrl.machine.home import warehouse_dir
from userrl.reports.people_report import RUN as PEOPLE
from userrl.run.stored import stored_conversations
from userrl_core.chats.values import broken
from userrl_core.errors import ConfigError
from userrl_core.records import RolloutContext, Task, Trajectory, Turn
from userrl_core.user_path import user_path
from warehouse.files.runs import find_run
from warehouse.upkeep.exchange.conversations import ExportedConversation
from warehouse.upkeep.exchange.own_exports import read_conversations

HUMAN = "human"
"""The name of a user that is a person."""


def fingerprints(name: str, stored: Iterable[Trajectory]) -> Users:
    """Return the fingerprints of conversations. Those without words of the user are left out."""
    dialogues = [dialogue for dialogue in map(conversation, stored) if dialogue.utterances()]
    features = np.array([list(fingerprint(dialogue.utterances()).values()) for dialogue in dialogues]).reshape(
        -1, len(FEATURES)
    )
    return Users(name, features, tuple(dialogue.task.key for dialogue in dialogues))


def of_people(stored: Iterable[Trajectory]) -> list[Trajectory]:
    """Return the conversations whose user is a person. In the others of the run people, a person is the agent."""
    return [trajectory for trajectory in stored if trajectory.user == HUMAN]


def reference_users(name: str) -> Users:
    """Return the users of a run or of a file: of people, or of the phase evaluate, or else play. people:chitchat are strangers.

    A name that contains a slash or ends like a file is a file. Nothing is stored. Raises ConfigError for neither.
    """
    if name == CHITCHAT:
        return chitchat_users()
    path = user_path(name)
    if name != PEOPLE and (path.is_file() or "/" in name or path.suffix in (".json", ".jsonl", ".parquet", ".eval")):
        return fingerprints(path.name, _of_file(path))
    try:
        run_id = str(find_run(warehouse_dir(), name)["run_id"])
    except ConfigError:
        if name != PEOPLE:
            raise
        raise ConfigError(
            "run.no_conversations",
            "No person has held a conversation here yet. Start one with `userrl play GYM --as user`, or under People in "
            "`userrl view`.",
        ) from None
    if run_id == PEOPLE:
        return fingerprints(run_id, of_people(_trajectories(run_id, "play")))
    return fingerprints(run_id, _trajectories(run_id, "evaluate") or _trajectories(run_id, "play"))


def _trajectories(run_id: str, phase: str) -> Sequence[Trajectory]:
    return [trajectory for trajectory in stored_conversations(run_id, phase, None, lenient=True) if trajectory.turns]


def _of_file(path: Path) -> Iterator[Trajectory]:
    format = recognised(path)
    if format != OURS:
        yield from (_trajectory(item, format, number) for number, item in enumerate(conversations(path, format)))
        return
    trajectories = [_exported(where, item) for where, item in read_conversations(path)]
    yield from (
        of_people(trajectories)
        if any(trajectory.context.phase == "play" for trajectory in trajectories)
        else trajectories
    )


def _trajectory(item: ForeignConversation, format: str, number: int) -> Trajectory:
    task = Task(item.gym, item.task_id, "test", dict(item.payload), f"imported:{format}", "")
    return Trajectory(
        task,
        number if item.attempt is None else item.attempt,
        len(item.turns),
        0,
        RolloutContext("evaluate", 0, "evaluate", item.policy, None),
        messages=item.opening,
        turns=[
            Turn(n, turn.choice, turn.content, turn.thought, turn.message, turn.observation, turn.reward)
            for n, turn in enumerate(item.turns, 1)
        ],
        score=item.score,
        user=item.user or "",
    )


def _exported(where: str, item: ExportedConversation) -> Trajectory:
    row = item.trajectory
    texts = [(turn.get("choice"), turn.get("content"), turn.get("observation")) for turn in item.turns]
    if any(not isinstance(text, str | None) for turn_texts in texts for text in turn_texts):
        broken(where, "a turn holds something other than text")
    try:
        messages = json.loads(row.get("messages") or "[]")
        opening = [{"role": str(message["role"]), "content": str(message["content"])} for message in messages]
    except (TypeError, ValueError, KeyError):
        broken(where, "its opening is not a list of messages")
    return Trajectory(
        Task(row["gym"], row["task_id"], "test", {}, str(row.get("source") or ""), ""),
        0,
        len(texts),
        0,
        RolloutContext(str(row.get("stage") or ""), 0, row["phase"], str(row.get("policy") or ""), None),
        messages=opening,
        turns=[
            Turn(n, choice, content or "", "", "", reply or "", None)
            for n, (choice, content, reply) in enumerate(texts, 1)
        ],
        user=str(row.get("user_name") or ""),
    )
