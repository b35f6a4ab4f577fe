"""New scores for stored conversations under another judge or changed rules. No conversation is repeated.

SQL re-scores what follows from stored rewards (`rescore`). This module runs the gym's rules and a judge on the stored
texts. The result is a separate run in the warehouse, for use in every query and comparison.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict

from analysis.reverify import Reverified, judges
from analysis.reverify import reverify as scored_again
from curricula.load import from_resolved
from curricula.options import check_drafted_options
from curricula.spec import User
from curricula.validation import validated
from userrl.machine.foreign_text import plain
from userrl.machine.home import quiet_process, warehouse_dir
from userrl.machine.notebook import Printed, Tabular
from userrl.run.fingerprint import reverified_protocol
from userrl.run.run import find, run_fields
from userrl.run.stored import role_of, stored_conversations
from userrl.run.tasks import gym_config, users_of
from userrl_core.errors import ConfigError
from userrl_core.gyms.base import parse_config
from userrl_core.gyms.registry import gym_class
from userrl_core.number_format import number
from userrl_core.records import Trajectory, mean_score
from userrl_core.rollout import user_name
from userrl_core.seeding import content_hash
from warehouse import TurnLog, open_warehouse
from warehouse.files.runs import RESCORED

AT_ONCE = 32
"""Number of conversations judged in parallel."""


class ReverifyRequest(BaseModel):
    """A request. judge: None keeps the original users. changes: changed rules by gym. gyms: empty means all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str = "latest"
    judge: User | None = None
    changes: dict[str, dict[str, Any]] = {}
    gyms: tuple[str, ...] = ()
    phase: str = "evaluate"


@dataclass(frozen=True, slots=True)
class ReverifiedScores:
    """The new scores of one gym and actor.

    before, after: mean scores. cut: number of conversations that would have continued under the new verdict. refused: reasons
    for missing scores, with counts.
    """

    gym: str
    policy: str
    conversations: int
    before: float | None
    after: float | None
    changed: int
    cut: int
    refused: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        cut = f", {self.cut} would have continued" if self.cut else ""
        lines = [
            f"{plain(self.policy)}  {self.gym}  {number(self.before)} -> {number(self.after)}  "
            f"({self.conversations} conversations, {self.changed} changed{cut})"
        ]
        return "\n".join(
            [*lines, *(f"  not scored ({n} times): {plain(reason)}" for reason, n in self.refused.items())]
        )


@dataclass(frozen=True, slots=True)
class ReverifiedRun(Printed, Tabular):
    """A run's conversations under another judge or changed rules. run: the original id. reverified: the new id."""

    run: str
    reverified: str
    rows: tuple[ReverifiedScores, ...]

    @property
    def scored(self) -> bool:
        """Return whether any conversation could be scored."""
        return any(sum(row.refused.values()) < row.conversations for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        """Return the scores as JSON."""
        return {"run": self.run, "reverified": self.reverified, "rows": [asdict(row) for row in self.rows]}

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return one row per gym and actor. refused: number of conversations without a score."""
        return [{**asdict(row), "refused": sum(row.refused.values())} for row in self.rows]

    def __str__(self) -> str:
        turns = f"all conversations: userrl sql \"from trajectories where run_id = '{self.reverified}'\""
        return "\n".join([*map(str, self.rows), turns])


def reverify(
    run: str = "latest",
    *,
    judge: str | Mapping[str, Any] | None = None,
    changes: Mapping[str, Mapping[str, Any]] | None = None,
    gyms: Sequence[str] = (),
    phase: str = "evaluate",
) -> ReverifiedRun:
    """Score a run's stored conversations again and return the scores before and after. No conversation is repeated.

    judge: ``rule``, ``openai``, or kind and options. changes: changed rules by gym, such as
    ``{"tau": {"check_outputs": True}}``. phase: ``evaluate``, ``validate``, ``train`` or ``distill``. The result is stored as
    a separate run in the warehouse. Raises ConfigError with one sentence.
    """
    quiet_process()
    values = {"run": run, "judge": judge, "changes": changes or {}, "gyms": gyms, "phase": phase}
    return _reverified(validated(ReverifyRequest, values, "reverify"))


def _reverified(request: ReverifyRequest) -> ReverifiedRun:
    """Score the conversations again and log them as a separate run. A repeated request replaces its earlier result.

    Raises ConfigError if there is nothing to score, or if an original verdict is needed that was not stored.
    """
    if request.judge is None and not request.changes:
        raise ConfigError(
            "argument.missing",
            "Nothing is changed. Give another judge with --judge, or a changed rule with --set GYM.FIELD=VALUE.",
        )
    if (user := request.judge) is not None:
        check_drafted_options(user.kind, user.options, user.population, "judge")
    stored_run, judge = find(request.run), None if user is None else user.as_argument()
    stored: list[Trajectory] = list(stored_conversations(stored_run.id, request.phase, request.gyms or None))
    if not stored:
        raise ConfigError(
            "run.no_conversations",
            f"Run {stored_run.id} has no finished conversation of phase {request.phase} to score again.",
        )
    played = list(dict.fromkeys(trajectory.task.gym for trajectory in stored))
    if unknown := sorted(set(request.changes) - set(played)):
        raise ConfigError(
            "argument.unknown_value",
            f"--set names gym '{unknown[0]}', which run {stored_run.id} did not play. It has {', '.join(played)}.",
        )
    recipe = from_resolved(stored_run.info.resolved)
    config = gym_config(recipe, evaluation=request.phase == "evaluate")
    config = {name: {**config.get(name, {}), **request.changes.get(name, {})} for name in played}
    judged_by = users_of(recipe, played, role=role_of(request.phase)) if judge is None else dict.fromkeys(played, judge)
    if judge is None:
        refuse_lost_verdicts(stored)
    for name in played:
        parse_config(gym_class(name), config[name])
    gyms = [sorted(set(request.gyms))] if request.gyms else []
    with open_warehouse(warehouse_dir(), run=stored_run.id) as warehouse:
        text = "FROM protocols WHERE run_id = $run AND $phase = 'evaluate'"
        protocols = warehouse.rows(text, run=stored_run.id, phase=request.phase)
    request_hash = content_hash([stored_run.id, request.phase, judge, request.changes, *gyms])[:10]
    run_id = f"{stored_run.id}{RESCORED}{request_hash}"
    fields = run_fields(recipe, seed=stored_run.info.seed, backend=stored_run.info.backend, parent=stored_run.id)
    with TurnLog.open(
        warehouse_dir(), run_id, run_fields={**fields, "name": f"evaluate{RESCORED}{request_hash}"}
    ) as log:
        for stage in dict.fromkeys(trajectory.context.stage for trajectory in stored):
            log.event("rewind", stage=stage)
        log.tasks(trajectory.task for trajectory in stored)
        log.protocols(reverified_protocol(row, config[row["gym"]], judge) for row in protocols if row["gym"] in config)
        results = asyncio.run(_score(stored, judged_by, config, log))
    return ReverifiedRun(stored_run.id, run_id, _by_gym_and_actor(stored, results))


def refuse_lost_verdicts(stored: Sequence[Trajectory]) -> None:
    """Raise ConfigError for a conversation judged by a model or a person. Without a judge it cannot be scored."""
    for trajectory in {trajectory.task.gym: trajectory for trajectory in stored if trajectory.user != "rule"}.values():
        if judges(trajectory.task.gym, trajectory.task):
            raise ConfigError(
                "judge.none",
                f"Scores of gym '{trajectory.task.gym}' depend on verdicts of {trajectory.user}, which were not stored. "
                "Name a judge with --judge.",
            )


async def _score(
    stored: Sequence[Trajectory], judged_by: Mapping[str, Any], config: Mapping[str, dict[str, Any]], log: TurnLog
) -> list[Reverified]:
    limit = asyncio.Semaphore(AT_ONCE)

    async def score_one(trajectory: Trajectory) -> Reverified:
        judge = judged_by[trajectory.task.gym]
        async with limit:
            result = await scored_again(trajectory, judge, config[trajectory.task.gym], user_name(judge))
        log.begin(result.trajectory)
        for turn in result.trajectory.turns:
            log.turn(result.trajectory, turn)
        log.end(result.trajectory)
        return result

    return list(await asyncio.gather(*map(score_one, stored)))


def _by_gym_and_actor(stored: Sequence[Trajectory], results: Sequence[Reverified]) -> tuple[ReverifiedScores, ...]:
    groups: dict[tuple[str, str], list[tuple[Trajectory, Reverified]]] = {}
    for before, after in zip(stored, results, strict=True):
        groups.setdefault((before.task.gym, before.context.policy), []).append((before, after))
    rows = []
    for (gym, policy), pairs in groups.items():
        scored = [(before.score, after.trajectory.score) for before, after in pairs if not after.refused]
        rows.append(
            ReverifiedScores(
                gym,
                policy,
                conversations=len(pairs),
                before=mean_score(before for before, _ in scored),
                after=mean_score(after for _, after in scored),
                changed=sum(abs((after or 0.0) - (before or 0.0)) > 1e-9 for before, after in scored),
                cut=sum(after.cut for _, after in pairs),
                refused=dict(Counter(after.refused for _, after in pairs if after.refused)),
            )
        )
    return tuple(rows)
