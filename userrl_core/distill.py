"""Selection of demonstrations and their conversion to chats (UserRL section 4.1: the best of every gym, one total).

The rollout plays demonstrations and the trainer trains on them. This module only selects them and writes the file of
chats. The tasks of kept demonstrations are excluded from RL: `Selection.task_keys`.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from userrl_core.chats.message import MARKS, model_messages
from userrl_core.chats.rows import messages_of, tools_of
from userrl_core.chats.stream import items
from userrl_core.chats.values import BrokenFile, broken
from userrl_core.errors import ConfigError, TaskError
from userrl_core.gyms.prompt import turns_left_as_in
from userrl_core.gyms.registry import gym_class
from userrl_core.interact import InteractCall, parse_text, render_call, tool_schema
from userrl_core.records import Flag, Message, Trajectory, mean_score
from userrl_core.replaced_file import replacing

ABOUT = ("gym", "task", "score", "traj_id")
"""The fields of a row that are kept beside its messages."""
ROW = frozenset((*ABOUT, *MARKS, "messages", "conversations", "system", "tools", "functions"))
DropReason = Literal["not_admitted", "format_error", "no_turns", "failed", "below_cut"]


@dataclass(frozen=True, slots=True)
class GymCount:
    """The demonstrations of one gym: number played (seen) and kept, mean score of both, and the lowest score kept (cut).

    tiers: numbers kept and played by tier of the task.
    """

    seen: int
    kept: int
    mean_seen: float | None
    mean_kept: float | None
    cut: float | None
    tiers: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Selection:
    """The selected demonstrations. kept: best first within each gym, gyms in order of appearance. dropped: number of
    trajectories per reason.
    """

    kept: list[Trajectory]
    dropped: dict[str, int]
    by_gym: dict[str, GymCount]

    @cached_property
    def task_keys(self) -> frozenset[str]:
        """Return the tasks of the kept demonstrations; they are excluded from the RL task set."""
        return frozenset(trajectory.task.key for trajectory in self.kept)


def select_top_k(trajectories: Iterable[Trajectory], top_k: int, *, successes: bool = False) -> Selection:
    """Return the best demonstrations of every gym, top_k in total. successes: keep only successful ones.

    The total is shared evenly; the share that one gym cannot fill goes to the others. Ties are broken by content
    (fewer turns, task key, attempt, seed), so the order of arrival does not matter. Raises ConfigError for a top_k
    below 1.
    """
    if top_k < 1:
        raise ConfigError(
            "argument.out_of_range", f"top_k is the number of demonstrations to keep. Give 1 or more, not {top_k}."
        )
    played: dict[str, list[Trajectory]] = defaultdict(list)
    usable: dict[str, list[Trajectory]] = defaultdict(list)
    dropped: Counter[str] = Counter()
    for trajectory in trajectories:
        gym = trajectory.task.gym
        played[gym].append(trajectory)
        reason = _drop_reason(trajectory)
        if reason is None and successes and trajectory.stop_reason != "success":
            reason = "failed"
        if reason is None:
            usable[gym].append(trajectory)
        else:
            dropped[reason] += 1
    quota = _quota({gym: len(usable[gym]) for gym in played}, top_k)
    selected = {gym: sorted(usable[gym], key=_rank)[: quota[gym]] for gym in played}
    below_cut = sum(len(usable[gym]) - len(selected[gym]) for gym in played)
    if below_cut:
        dropped["below_cut"] = below_cut
    return Selection(
        kept=[trajectory for gym in played for trajectory in selected[gym]],
        dropped=dict(dropped),
        by_gym={gym: _count(played[gym], selected[gym]) for gym in played},
    )


def to_chat(trajectory: Trajectory) -> dict[str, Any]:
    """Return a trajectory in the chat format of SFT.

    ``messages``: system / user / assistant / tool, the assistant's calls as Hermes text. The last observation is left
      out because no reply follows it. ``tools``: the tool with the gym's choices (empty for a brief prompt, which has
      no system message). ``gym``, ``task`` (its key), ``score`` and ``traj_id`` identify the trajectory.
    """
    messages: list[Message] = [dict(message) for message in trajectory.messages]
    opening = str(messages[-1]["content"]) if messages else ""
    for turn in trajectory.turns:
        messages.append({"role": "assistant", "content": _reply_text(trajectory, turn.number - 1)})
        note = turns_left_as_in(opening, trajectory.horizon - turn.number) if turn.flags & Flag.TURNS_LEFT else ""
        messages.append({"role": "tool", "content": turn.observation + note})
    if trajectory.turns:
        messages.pop()
    return {
        "messages": messages,
        "tools": tools_for(trajectory.task.gym, trajectory.messages),
        "gym": trajectory.task.gym,
        "task": trajectory.task.key,
        "score": trajectory.score,
        "traj_id": trajectory.traj_id,
    }


def tools_for(gym: str, opening: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the tools argument of a chat template: the tool with the gym's choices, or none without a system message."""
    if not any(message["role"] == "system" for message in opening):
        return []
    return [tool_schema(gym_class(gym).choices())]


def write_chats(path: Path, trajectories: Iterable[Trajectory]) -> int:
    """Write chats as JSON lines, atomically. Return their number."""
    count = 0
    with replacing(path) as file:
        for trajectory in trajectories:
            file.write(json.dumps(to_chat(trajectory), ensure_ascii=False).encode() + b"\n")
            count += 1
    return count


def read_chats(path: Path, unread: Counter[str] | None = None) -> list[dict[str, Any]]:
    """Read a file of chats: ours, or in any form that `analysis.foreign.chats` reads.

    unread: counts the fields that are not read. Raises TaskError naming the file, the line and the problem.
    """
    try:
        return [read_chat(row, where, unread) for where, row in items(path)]
    except OSError as error:
        raise TaskError(
            "chats.invalid", f"The file of conversations {path} cannot be read: {error.strerror}."
        ) from error
    except BrokenFile as error:
        raise TaskError("chats.invalid", error.fact) from error


def read_chat(row: Mapping[str, Any], where: str, unread: Counter[str] | None = None) -> dict[str, Any]:
    """Return a row as a chat that is trained on: messages as a model reads them, and tools. Raises BrokenFile.

    unread: counts the fields that are not read, of the row and of its messages.
    """
    for mark in MARKS:
        if row.get(mark) not in (None, 1):  # true is equal to 1
            broken(where, f"{mark} is {row[mark]!r} for the whole chat. Write it into each reply that it is meant for")
    messages = model_messages(messages_of(row, where), where, unread)
    if not messages:
        broken(where, "field 'messages' must be a list with at least one message")
    about = {name: row[name] for name in ABOUT if name in row}
    if unread is not None:
        unread.update(key for key, value in row.items() if key not in ROW and value not in (None, "", [], {}))
    chat = {**about, "messages": messages, "tools": tools_of(row, where)}
    try:
        json.dumps(chat, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        broken(where, "a text has half of a surrogate pair, which is no character. Remove it")
    return chat


def _drop_reason(trajectory: Trajectory) -> DropReason | None:
    if not trajectory.admitted or trajectory.score is None:
        return "not_admitted"
    if not trajectory.turns:
        return "no_turns"
    if any(turn.choice is None for turn in trajectory.turns):
        return "format_error"
    return None


def _rank(trajectory: Trajectory) -> tuple[float, int, str, int, int]:
    score = trajectory.score if trajectory.score is not None else float("-inf")
    return (-score, len(trajectory.turns), trajectory.task.key, trajectory.attempt, trajectory.seed)


def _quota(available: Mapping[str, int], total: int) -> dict[str, int]:
    """Return the number of demonstrations per gym: even shares, assigned to the smallest gyms first."""
    quota: dict[str, int] = {}
    unassigned = total
    for gyms_left, gym in zip(
        range(len(available), 0, -1), sorted(available, key=lambda g: (available[g], g)), strict=True
    ):
        quota[gym] = min(available[gym], unassigned // gyms_left)
        unassigned -= quota[gym]
    return quota


def _reply_text(trajectory: Trajectory, index: int) -> str:
    """Return the reply in the format of the local model. Hermes text with one call is unchanged; anything else is
    rendered from the call.
    """
    turn = trajectory.turns[index]
    if turn.choice is None or turn.content is None:
        return turn.message
    call = InteractCall(turn.choice, turn.content)
    if not turn.flags & Flag.EXTRA_CALLS and parse_text(turn.message).call == call:
        return turn.message
    return render_call(call, turn.thought)


def _count(trajectories: Sequence[Trajectory], selected: Sequence[Trajectory]) -> GymCount:
    scores_kept = [t.score for t in selected if t.score is not None]
    tiers, selected_tiers = (Counter(t.task.tier for t in group) for group in (trajectories, selected))
    return GymCount(
        seen=len(trajectories),
        kept=len(selected),
        mean_seen=mean_score(t.score for t in trajectories if t.admitted),
        mean_kept=mean_score(scores_kept),
        cut=min(scores_kept, default=None),
        tiers={tier: (selected_tiers[tier], count) for tier, count in sorted(tiers.items())},
    )
