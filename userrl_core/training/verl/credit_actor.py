"""An actor that assigns credits to their trajectories.

verl's estimator sees a group id and numbers, but no trajectory. The agent loops, in other processes, know the ids
from the turn log. A small Ray actor holds a summary of each trajectory per group. The estimator queries it, logs
shaped credit and advantage under the right id, and appends one line per step about the batch (`steps.jsonl`).

For PPO verl always calls its own estimator, and shows a critic's values to no other. There the agent loop that ends a
step's last trajectory takes the step from the actor and appends the line.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from userrl_core.errors import ConfigError
from userrl_core.json_files import append_line
from userrl_core.records import mean_score
from userrl_core.rewards import CreditConfig, assign_credit
from userrl_core.training.verl.job import StageFile, read_stage_file

ACTOR = "userrl_credit_actor"
Signature = tuple[tuple[float, int], ...]


@dataclass(frozen=True, slots=True)
class TrajectorySummary:
    """One finished trajectory. signature: `estimator.signature`, empty for one that was not admitted.

    score: the gym's. return_sum: sum of raw rewards, before the recipe's optional terms; None where not admitted.
    """

    signature: Signature
    traj_id: int | None
    step: int
    task: str
    admitted: bool
    success: bool
    score: float | None
    return_sum: float | None
    turns: int
    waits: int = 0
    """Number of times the agent wrote "wait", over all turns."""
    reply_tokens: int = 0
    """Number of sampled tokens."""
    interruptions: int = 0
    """Number of attempts that were not executed."""
    last_replies: tuple[int, ...] = ()
    """For each turn, the index of the executed reply; empty when every reply was executed."""


ByGroup = dict[str, list[TrajectorySummary]]
"""Trajectories by group id."""


class CreditActor:
    """A store of trajectories per group id, until their group's credits are known. A Ray actor of the stage's driver."""

    def __init__(self) -> None:
        self._by_group: defaultdict[str, list[TrajectorySummary]] = defaultdict(list)
        self._finished: Counter[int] = Counter()
        self._offered: dict[str, list[list[float]]] = {}
        self._asked: Counter[str] = Counter()
        self._baselines: dict[str, float | None] = {}

    def put(self, uid: str, trajectory: TrajectorySummary, whole: int = 0) -> ByGroup | None:
        """Add a finished trajectory. When a step has ``whole`` of them, return and forget them all."""
        self._by_group[uid].append(trajectory)
        if not whole:
            return None
        self._finished[trajectory.step] += 1
        if self._finished[trajectory.step] < whole:
            return None
        del self._finished[trajectory.step]
        return self.take(
            [key for key, trajectories in self._by_group.items() if trajectories[0].step == trajectory.step]
        )

    def offer(self, uid: str, rewards: list[float]) -> int:
        """Add a trajectory's turn rewards, empty without a score, for its group. Return its index in the group."""
        group = self._offered.setdefault(uid, [])
        group.append(rewards)
        return len(group) - 1

    def offered(self, uid: str, whole: int) -> list[list[float]] | None:
        """Return all rewards of a group of ``whole`` trajectories, None until it is complete. They are forgotten once
        each trajectory has asked.
        """
        group = self._offered[uid]
        if len(group) < whole:
            return None
        self._asked[uid] += 1
        if self._asked[uid] == whole:
            del self._offered[uid], self._asked[uid]
        return group

    def baseline(self, uid: str, score: float | None) -> None:
        """Store the score of a group's greedy conversation (remax), None without a score."""
        self._baselines[uid] = score

    def baselines(self, uids: Sequence[str]) -> dict[str, float | None]:
        """Return and forget the scores of these groups' greedy conversations."""
        return {uid: self._baselines.pop(uid) for uid in uids if uid in self._baselines}

    def take(self, uids: Sequence[str]) -> ByGroup:
        """Return and forget all trajectories of these groups."""
        return {uid: self._by_group.pop(uid, []) for uid in uids}


def find_credit_actor() -> Any:
    """Return the running actor's handle, or None outside a stage."""
    import ray

    if not ray.is_initialized():
        return None
    try:
        return ray.get_actor(ACTOR)
    except ValueError:
        return None


def take_baselines(uids: Sequence[str]) -> dict[str, float | None]:
    """Return the scores of these groups' greedy conversations. Raises ConfigError outside a stage, which plays them."""
    import ray

    actor = find_credit_actor()
    if actor is None:
        raise ConfigError(
            "training.bad_call",
            "Estimator userrl_remax needs greedy conversations, which the agent loops of a stage play. Start a stage.",
        )
    baselines: dict[str, float | None] = ray.get(actor.baselines.remote(sorted(set(uids))))
    return baselines


def record_credits(
    stage_file: str,
    groups: Sequence[str],
    signatures: Sequence[Signature],
    shaped: Sequence[Sequence[float]],
    advantages: Sequence[Sequence[float]],
    numbers: Mapping[str, float],
) -> None:
    """Log the credits of a step's trajectories (row by row), and the step's numbers."""
    import ray

    actor = find_credit_actor()
    if actor is None:
        return
    by_group: ByGroup = ray.get(actor.take.remote(sorted(set(groups))))
    stage = read_stage_file(stage_file)
    if stage.sink is not None:
        sink = stage.sink.open()
        waiting = {uid: [t for t in trajectories if t.admitted] for uid, trajectories in by_group.items()}
        for uid, key, credit, advantage in zip(groups, signatures, shaped, advantages, strict=True):
            match = _closest(waiting[uid], key)
            if match is None:
                continue  # a trajectory without a score has none
            waiting[uid].remove(match)
            if match.traj_id is not None:
                turn_indices = match.last_replies or range(len(credit))
                sink.credits(match.traj_id, [credit[i] for i in turn_indices], [advantage[i] for i in turn_indices])
    _append(stage.folder / "steps.jsonl", [t for trajectories in by_group.values() for t in trajectories], numbers)


def record_step(stage: StageFile, by_group: ByGroup) -> None:
    """Record the numbers of a step whose advantages are not reported to us. Its groups are compared by their sums of rewards."""
    rows = [(uid, trajectory) for uid, trajectories in by_group.items() for trajectory in trajectories]
    credits = assign_credit(
        [[reward for reward, _ in trajectory.signature] for _, trajectory in rows],
        [uid for uid, _ in rows],
        CreditConfig(score="sum"),
        admitted=[trajectory.admitted and bool(trajectory.signature) for _, trajectory in rows],
        good=[trajectory.success for _, trajectory in rows],
    )
    _append(stage.folder / "steps.jsonl", [trajectory for _, trajectory in rows], credits.diagnostics.metrics())


def _closest(trajectories: Sequence[TrajectorySummary], key: Signature) -> TrajectorySummary | None:
    """Return the trajectory with these tokens per turn and the nearest rewards. Only a KL penalty can make the
    rewards differ.
    """
    tokens = [n for _, n in key]
    alike = [t for t in trajectories if [n for _, n in t.signature] == tokens]

    def distance(trajectory: TrajectorySummary) -> float:
        return sum(
            abs(logged - estimated) for (logged, _), (estimated, _) in zip(trajectory.signature, key, strict=True)
        )

    return min(alike, key=distance, default=None) if tokens else None


def _append(path: Path, trajectories: Sequence[TrajectorySummary], numbers: Mapping[str, float]) -> None:
    """Append one JSON line: the step, its groups' diagnostics, and success, score and raw return over admitted trajectories."""
    if not trajectories:
        return
    admitted = [t for t in trajectories if t.admitted]
    line: dict[str, Any] = {
        "step": max(t.step for t in trajectories),
        "admitted": len(admitted),
        "attempts": len(trajectories),
    }
    groups: defaultdict[str, list[bool]] = defaultdict(list)
    for trajectory in admitted:
        groups[trajectory.task].append(trajectory.success)
    if turns := sum(t.turns for t in trajectories):
        line["waits"] = sum(t.waits for t in trajectories) / turns
        line["reply_tokens"] = sum(t.reply_tokens for t in trajectories) / turns
        if interrupted := sum(t.interruptions for t in trajectories):
            line["interventions"] = interrupted / turns
    line["tasks"] = {task: sum(won) / len(won) for task, won in groups.items()}
    line["conversations"] = {task: len(won) for task, won in groups.items()}
    if admitted:
        line["success"] = sum(t.success for t in admitted) / len(admitted)
        line["turns"] = sum(t.turns for t in admitted) / len(admitted)
        line["score"] = mean_score(t.score for t in admitted)
        line["return_sum"] = mean_score(t.return_sum for t in admitted)
    append_line(path, {**line, "numbers": dict(numbers)})
