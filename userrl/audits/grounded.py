"""Grounded answers in a run's stored conversations: success with everything told, lucky success, and the price in questions.

It works in gyms that count what was told: wish, errand, travel and intention. In turtle a question is free text, so what a
story's answers have told cannot be counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from analysis.measure.checkpoints import mean_score
from analysis.measure.grounded import (
    AREA_TO,
    BUDGETS,
    Answered,
    CurveIntervals,
    GroundedCurve,
    curve_intervals,
    grounded_curve,
)
from analysis.measure.interval import Interval
from userrl.machine.notebook import Printed
from userrl.reports import figures
from userrl.reports.document import Block, Code, Document, Figure, TableBlock, Text
from userrl.run.run import find
from userrl.run.stored import stored_conversations
from userrl_core.errors import ConfigError
from userrl_core.gyms.registry import min_turns
from userrl_core.gyms.travel.world import World
from userrl_core.number_format import with_limits
from userrl_core.records import Trajectory


@dataclass(frozen=True, slots=True)
class GroundedAgent:
    """One agent in one gym: grounded and lucky success with limits over tasks, and the curve over turn budgets."""

    gym: str
    agent: str
    conversations: int
    grounded: Interval
    lucky: Interval
    curve: GroundedCurve
    limits: CurveIntervals


@dataclass(frozen=True, slots=True)
class GroundedReport(Printed):
    """Grounded answers of a run's agents. uncounted: gyms of the run that do not count what was told."""

    run: str
    phase: str
    agents: tuple[GroundedAgent, ...]
    uncounted: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON, with every point of the curves."""
        agents = [asdict(agent) for agent in self.agents]
        return {"run": self.run, "phase": self.phase, "agents": agents, "uncounted": list(self.uncounted)}

    def document(self) -> Document:
        """Return the report with its table and curves."""
        return Document(f"Grounded answers of {self.run}, phase {self.phase}", tuple(_blocks(self)))

    def __str__(self) -> str:
        return self.document().text()


def audit_grounded(run: str, *, phase: str = "evaluate") -> GroundedReport:
    """Split the success of a run's agents. Raises ConfigError if the run has no conversation of a gym that counts facts."""
    stored_run = find(run)
    answered_by_agent: dict[tuple[str, str], dict[str, list[Answered]]] = {}
    uncounted: dict[str, None] = {}
    for trajectory in stored_conversations(stored_run.id, phase, None):
        if trajectory.task.gym not in TOLD:
            uncounted[trajectory.task.gym] = None
        elif trajectory.turns:
            agent = trajectory.context.checkpoint or trajectory.context.policy
            answered_by_agent.setdefault((trajectory.task.gym, agent), {}).setdefault(trajectory.task.id, []).append(
                answered(trajectory)
            )
    if not answered_by_agent:
        raise ConfigError(
            "run.no_conversations",
            f"Run {stored_run.id} has no finished conversation of phase {phase} in {', '.join(TOLD)}. Choose another with --phase.",
        )
    agents = tuple(_agent(gym, agent, list(by_task.values())) for (gym, agent), by_task in answered_by_agent.items())
    return GroundedReport(stored_run.id, phase, agents, tuple(uncounted))


def answered(trajectory: Trajectory) -> Answered:
    """Return a conversation of one of the gyms of `TOLD` for a curve."""
    told_count, needed = TOLD[trajectory.task.gym](trajectory)
    solved, last = _solved(trajectory), trajectory.turns[-1].number
    question_turns = tuple(turn.number for turn in trajectory.turns if turn.choice == "action")
    return Answered(
        last if solved else None,
        solved and told_count >= needed,
        solved and told_count < needed,
        question_turns,
        needed,
        min_turns(trajectory.task),
    )


def _solved(trajectory: Trajectory) -> bool:
    """Return whether the answer is right. In travel's tiny tier the score also pays for preferences, so the choices decide."""
    if trajectory.task.gym != "travel":
        return trajectory.stop_reason == "success"
    best = {aspect.best for aspect in World.of(trajectory.task.payload).aspects.values()}
    choices = [choice for turn in trajectory.turns for choice in (turn.info.get("choices") or {}).items()]
    return best <= {option for option, kind in choices if kind == "best"}


def _wish(trajectory: Trajectory) -> tuple[int, int]:
    counts = [turn.info["told"] for turn in trajectory.turns if "told" in turn.info]
    return (counts[-1] if counts else 0), len(trajectory.task.payload["wished"])


def _errand(trajectory: Trajectory) -> tuple[int, int]:
    """Count the things whose part, or whose being raw, the user told. Asked in order: only what was mentioned can be named."""
    chain, asked_names = list(trajectory.task.payload["chain"]), set[str]()
    for turn in trajectory.turns:
        if turn.choice == "action":
            mentioned = chain[: len(asked_names) + 1]
            asked_names |= set(re.findall(r"[a-z]+", (turn.content or "").lower())) & set(mentioned)
    return len(asked_names), len(chain)


def _travel(trajectory: Trajectory) -> tuple[int, int]:
    told_preferences = {
        turn.info[key] for turn in trajectory.turns for key in ("preference", "volunteered") if turn.info.get(key)
    }
    return len(told_preferences), sum(
        len(aspect["preferences"]) for aspect in trajectory.task.payload["aspects"].values()
    )


def _intention(trajectory: Trajectory) -> tuple[int, int]:
    """Count the details asked for. Success in this gym is that all were, so no success is lucky."""
    return sum(int(turn.info.get("covered", 0)) for turn in trajectory.turns), len(trajectory.task.payload["details"])


TOLD: Mapping[str, Callable[[Trajectory], tuple[int, int]]] = {
    "wish": _wish,
    "errand": _errand,
    "travel": _travel,
    "intention": _intention,
}
"""The facts told and needed in a conversation, by gym."""


def _agent(gym: str, agent: str, by_task: Sequence[Sequence[Answered]]) -> GroundedAgent:
    every = [conversation for attempts in by_task for conversation in attempts]
    longest = max(
        turn for conversation in every for turn in (*conversation.question_turns, conversation.turn or 0, BUDGETS[-1])
    )
    budgets = range(BUDGETS[0], longest + 1)
    return GroundedAgent(
        gym,
        agent,
        len(every),
        mean_score([[float(attempt.grounded) for attempt in attempts] for attempts in by_task]),
        mean_score([[float(attempt.lucky) for attempt in attempts] for attempts in by_task]),
        grounded_curve(every, budgets),
        curve_intervals(by_task, budgets),
    )


def _blocks(report: GroundedReport) -> Iterator[Block]:
    yield TableBlock(
        ("gym", "agent", "conversations", "grounded", "lucky", "questions", "area", "below the oracle"),
        tuple(
            (
                agent.gym,
                Code(agent.agent),
                str(agent.conversations),
                with_limits(agent.grounded),
                with_limits(agent.lucky),
                with_limits(agent.limits.questions, 1),
                with_limits(agent.limits.area),
                with_limits(agent.limits.between),
            )
            for agent in report.agents
        ),
        "Grounded: solved after everything needed was told. Lucky: solved with something untold. 95 % limits over tasks. Area: "
        f"under grounded success against questions, up to {AREA_TO:g} questions, divided by {AREA_TO:g}. The oracle asks once for "
        "each fact and wastes no turn.",
    )
    if report.uncounted:
        yield Text(f"Not counted: {', '.join(report.uncounted)}. These gyms do not count what was told.")
    gyms = dict.fromkeys(agent.gym for agent in report.agents)
    yield Figure(partial(_drawn, report, list(gyms)), "Grounded success by questions asked, one point per turn budget.")


def _drawn(report: GroundedReport, gyms: Sequence[str]) -> str:
    panels = []
    for gym in gyms:
        agents = [agent for agent in report.agents if agent.gym == gym]
        lines = [_line(agent.agent, agent.curve.questions, agent.curve.grounded) for agent in agents]
        oracle = _line("oracle", agents[0].curve.oracle_questions, agents[0].curve.oracle)
        panels.append(figures.Panel(f"{gym}: grounded success", [*lines, oracle], x="questions"))
    return figures.panels(panels)


def _line(name: str, questions: Sequence[float], success: Sequence[float]) -> figures.Line:
    return figures.Line(name, list(zip(questions, success, strict=True)), markers=True)
