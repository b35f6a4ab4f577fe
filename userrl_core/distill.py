"""Which demonstrations are learnt from, and the chats they become (UserRL section 4.1: the best of every gym, one total).

Pure: trajectories in, a selection and chats out. Playing the demonstrations is the rollout's business, training on them
the trainer's. The tasks of kept demonstrations are spent: `Selection.task_keys` is what leaves the RL task set.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from userrl_core.errors import ConfigError, TaskError
from userrl_core.gyms.registry import gym_class
from userrl_core.interact import InteractCall, parse_text, render_call, tool_schema
from userrl_core.records import Flag, Message, Trajectory

DropReason = Literal["not_admitted", "format_error", "no_turns", "low_score", "below_cut"]


@dataclass(frozen=True, slots=True)
class GymCount:
    """What one gym contributed: attempts seen and kept, mean score of both, the lowest score that was kept."""

    seen: int
    kept: int
    mean_seen: float | None
    mean_kept: float | None
    cut: float | None


@dataclass(frozen=True, slots=True)
class Selection:
    """kept: best first within each gym, gyms in order of appearance. dropped: how many for each reason."""

    kept: list[Trajectory]
    dropped: dict[str, int]
    by_gym: dict[str, GymCount]

    @property
    def task_keys(self) -> frozenset[str]:
        """Tasks that were demonstrated and are kept; they leave the RL task set."""
        return frozenset(trajectory.task.key for trajectory in self.kept)


def select_top_k(
    trajectories: Iterable[Trajectory],
    top_k: int,
    *,
    per_gym: Mapping[str, int] | None = None,
    min_score: float | None = None,
    per_task: int | None = None,
) -> Selection:
    """The best demonstrations of every gym, top_k in all.

    Without per_gym the total is shared evenly; what one gym cannot fill goes to the others. per_gym: a quota for each gym
    named, no more than top_k together. min_score: demonstrations below it are not taken however few there are.
    per_task: most demonstrations of one task. Ties are broken by the content (fewer turns, task key, attempt, seed), so
    the order of arrival changes nothing. Raises ConfigError for a top_k below 1.
    """
    if top_k < 1:
        raise ConfigError(f"top_k is the number of demonstrations to keep; {top_k} keeps none, give 1 or more.")
    seen: dict[str, list[Trajectory]] = defaultdict(list)
    usable: dict[str, list[Trajectory]] = defaultdict(list)
    dropped: Counter[str] = Counter()
    for trajectory in trajectories:
        gym = trajectory.task.gym
        seen[gym].append(trajectory)
        reason = _unusable(trajectory, min_score)
        if reason is None:
            usable[gym].append(trajectory)
        else:
            dropped[reason] += 1
    ranked = {gym: _limit_tasks(sorted(usable[gym], key=_rank), per_task) for gym in seen}
    quota = _quota({gym: len(ranked[gym]) for gym in seen}, top_k, per_gym)
    kept = {gym: ranked[gym][: quota[gym]] for gym in seen}
    below = sum(len(usable[gym]) - len(kept[gym]) for gym in seen)
    if below:
        dropped["below_cut"] = below
    return Selection(
        kept=[trajectory for gym in seen for trajectory in kept[gym]],
        dropped=dict(dropped),
        by_gym={gym: _count(seen[gym], kept[gym]) for gym in seen},
    )


def to_chat(trajectory: Trajectory) -> dict[str, Any]:
    """A conversation in the chat format that SFT reads.

    ``messages``: system / user / assistant / tool, the assistant's calls as Hermes text; what came back after the last
    turn is left out, since nothing answers it. ``tools``: the tool as the gym allows it (empty for a brief prompt, which
    has no system message). ``gym``, ``task`` (its key), ``score`` and ``traj_id`` say where it is from.
    """
    messages: list[Message] = [dict(message) for message in trajectory.messages]
    for turn in trajectory.turns:
        messages.append({"role": "assistant", "content": _reply_text(trajectory, turn.number - 1)})
        messages.append({"role": "tool", "content": turn.observation})
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
    """The tool as a chat template shows it: the gym's own choices, or nothing where the opening has no system message."""
    if not any(message["role"] == "system" for message in opening):
        return []
    return [tool_schema(gym_class(gym).choices())]


def write_chats(path: Path, trajectories: Iterable[Trajectory]) -> int:
    """Write chats as JSON lines, whole or not at all; returns how many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    count = 0
    with partial.open("w", encoding="utf-8") as file:
        for trajectory in trajectories:
            file.write(json.dumps(to_chat(trajectory), ensure_ascii=False) + "\n")
            count += 1
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    return count


def read_chats(path: Path) -> list[dict[str, Any]]:
    """Read chats; raises TaskError naming the file, the line and what is wrong with it."""
    try:
        # JSON keeps U+2028 and its like inside of texts, and splitlines would end a line there.
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise TaskError(f"The chats in {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise TaskError(f"The chats in {path} are not UTF-8 text (byte {error.start}).") from error
    return [_read_line(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]


def read_chat(chat: Any, where: str) -> dict[str, Any]:
    """One chat, checked; raises TaskError that begins with ``where``."""
    messages = chat.get("messages") if isinstance(chat, dict) else None
    if not isinstance(messages, list) or not messages:
        raise TaskError(f"{where}: field 'messages' must be a list with at least one message.")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("content"), str):
            raise TaskError(f"{where}: messages[{index}] needs a text in 'content'.")
        if message.get("role") not in ("system", "user", "assistant", "tool"):
            role = message.get("role")
            raise TaskError(f"{where}: messages[{index}] has role {role!r}; use system, user, assistant or tool.")
    tools = chat.setdefault("tools", [])
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise TaskError(f"{where}: field 'tools' must be a list of objects.")
    return dict(chat)


def _read_line(line: str, where: str) -> dict[str, Any]:
    try:
        return read_chat(json.loads(line), where)
    except (json.JSONDecodeError, RecursionError) as error:
        raise TaskError(f"{where}: this is not JSON.") from error


def _unusable(trajectory: Trajectory, min_score: float | None) -> DropReason | None:
    if not trajectory.admitted or trajectory.score is None:
        return "not_admitted"
    if not trajectory.turns:
        return "no_turns"
    if any(turn.choice is None for turn in trajectory.turns):
        return "format_error"
    if min_score is not None and trajectory.score < min_score:
        return "low_score"
    return None


def _rank(trajectory: Trajectory) -> tuple[float, int, str, int, int]:
    score = trajectory.score if trajectory.score is not None else float("-inf")
    return (-score, len(trajectory.turns), trajectory.task.key, trajectory.attempt, trajectory.seed)


def _limit_tasks(ranked: list[Trajectory], per_task: int | None) -> list[Trajectory]:
    if per_task is None:
        return ranked
    taken: Counter[str] = Counter()
    kept = []
    for trajectory in ranked:
        taken[trajectory.task.key] += 1
        if taken[trajectory.task.key] <= per_task:
            kept.append(trajectory)
    return kept


def _quota(available: Mapping[str, int], total: int, per_gym: Mapping[str, int] | None) -> dict[str, int]:
    """How many to take from each gym: the given quota, or even shares, the smallest gyms served first."""
    if per_gym is not None:
        if any(n < 0 for n in per_gym.values()) or sum(per_gym.values()) > total:
            raise ConfigError(
                f"The quotas per gym sum to {sum(per_gym.values())}, which must lie between 0 and top_k {total}."
            )
        return {gym: per_gym.get(gym, 0) for gym in available}
    quota: dict[str, int] = {}
    left = total
    for waiting, gym in zip(
        range(len(available), 0, -1), sorted(available, key=lambda g: (available[g], g)), strict=True
    ):
        quota[gym] = min(available[gym], left // waiting if waiting > 1 else left)
        left -= quota[gym]
    return quota


def _reply_text(trajectory: Trajectory, index: int) -> str:
    """The reply as the local model should write it: unchanged if it is Hermes text with one call, else rendered anew."""
    turn = trajectory.turns[index]
    if turn.choice is None or turn.content is None:
        return turn.message
    call = InteractCall(turn.choice, turn.content)
    if not turn.flags & Flag.EXTRA_CALLS and parse_text(turn.message).call == call:
        return turn.message
    return render_call(call, turn.thought)


def _count(seen: Sequence[Trajectory], kept: Sequence[Trajectory]) -> GymCount:
    scores_seen = [t.score for t in seen if t.admitted and t.score is not None]
    scores_kept = [t.score for t in kept if t.score is not None]
    return GymCount(len(seen), len(kept), _mean(scores_seen), _mean(scores_kept), min(scores_kept, default=None))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
