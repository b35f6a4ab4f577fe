"""The turn judge of a recipe: its choice, its input, and the points of its marks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from userrl_core.errors import JudgeError
from userrl_core.gyms.base import Gym, parse_config
from userrl_core.gyms.registry import gym_class
from userrl_core.gyms.solution import ReferenceSolution
from userrl_core.judging.config import InterventionConfig
from userrl_core.judging.released import ReleasedJudge
from userrl_core.judging.served import ServedJudge
from userrl_core.records import Flag, Judgement, ModelCall, Trajectory, Turn
from userrl_core.rewards.judge import RULE, UNJUDGED, JudgeConfig, category, judged_rewards, with_terminal
from userrl_core.served.client import ChatServer

MALFORMED = Flag.FORMAT_ERROR | Flag.DISALLOWED | Flag.EXTRA_CALLS


def judge_server(config: JudgeConfig | InterventionConfig | None) -> ChatServer | None:
    """Return the server of the judge of turns or the verifier of steps; None for the rule, and without a config."""
    return None if config is None or config.model == RULE else ChatServer(model=config.model, **config.options)


def is_judged(gym: str) -> bool:
    """Return True for a gym whose turns are judged, because it defines its gold calls."""
    return gym_class(gym).reference.__func__ is not Gym.reference.__func__  # type: ignore[attr-defined]


def reference_of(trajectory: Trajectory, gym_config: Mapping[str, Mapping[str, Any]]) -> ReferenceSolution | None:
    """Return the reference solution of the trajectory's task. gym_config: options by gym, as in the trajectory."""
    gym = gym_class(trajectory.task.gym)
    config = parse_config(gym, gym_config.get(trajectory.task.gym, {}))
    reference: ReferenceSolution | None = gym.reference(trajectory.task, config)
    return reference


class TurnJudge:
    """A judge of finished trajectories. gym_config: options by gym, as in the trajectories."""

    def __init__(self, config: JudgeConfig, gym_config: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.config = config
        server = judge_server(config)
        self.served: ServedJudge | ReleasedJudge | None = None
        if server is not None:
            released = config.prompts == "released"
            self.served = ReleasedJudge(server, config.texts) if released else ServedJudge(server)
        self._gym_config = gym_config or {}

    async def judge(self, trajectory: Trajectory) -> Judgement | None:
        """Return the judgement; None for a trajectory without a score.

        A gym without gold calls is not judged. Its own rewards count, scaled by the points of an outcome.
        """
        rewards = [reward for reward in trajectory.rewards if reward is not None]
        if not trajectory.admitted or not rewards or len(rewards) < len(trajectory.turns):
            return None
        reference = reference_of(trajectory, self._gym_config)
        if reference is None:
            return Judgement("", None, None, "", [reward * self.config.terminal for reward in rewards])
        by_rule = rule_scores(trajectory, reference, self.config.version)
        calls: list[ModelCall] = []
        scores: list[int] | None = by_rule
        if self.served is not None:
            try:
                scores = await self.served.scores(trajectory, reference, calls)
            except JudgeError:
                scores = None  # the ledger's row says why
        return self._judgement(trajectory, scores, by_rule, calls)

    def _judgement(
        self, trajectory: Trajectory, scores: list[int] | None, by_rule: list[int], calls: list[ModelCall]
    ) -> Judgement:
        success, turns = trajectory.stop_reason == "success", len(trajectory.turns)
        rewards: list[float | None] = []
        if scores is not None:
            rewards += judged_rewards(scores, success, self.config)
        elif self.config.unjudged == "use":
            rewards += with_terminal([0.0] * turns, success, self.config)
        else:
            rewards += [None] * turns
        kind = UNJUDGED if scores is None else category(scores, success)
        return Judgement(self.config.model, scores, by_rule, kind, rewards, calls)


def rule_scores(trajectory: Trajectory, reference: ReferenceSolution, version: int = 1) -> list[int]:
    """Return a mark per turn, [T], by comparing the conversation's writes with the gold writes (TARL section 3.2, by rules).

    -1 marks the turn that led to the first deviation of a failed conversation. This is the refusal of a gold write, the
    message that offered a wrong one, the wrong write itself, or the last turn that allowed a missing write. 0
    marks flaws: turns that follow from the deviation, repaired deviations, format errors, failed calls, writes without a
    look-up, needless handovers. 1 marks all others. data/turn-judge/README.md gives its agreement with two labellings.
    version: of the rules; the second marks no deviation where the agent's part is not certain."""
    turns = trajectory.turns
    departures = reference.departures(turns)
    flawed = {turn.number for turn in turns if turn.flags & MALFORMED or turn.info.get("tool_error")}
    flawed |= {*departures, *reference.slips(turns)}
    deviation = None
    if trajectory.stop_reason != "success" and departures:
        origin = reference.origin if version == 1 else reference.source
        deviation = min((turn for turn in (origin(turns, d) for d in departures) if turn is not None), default=None)
        flawed -= {departure for departure in departures if not _acts(turns[departure - 1])}
        flawed |= set() if deviation is None else set(reference.by_products(turns, deviation))
    return [-1 if t.number == deviation else 0 if t.number in flawed else 1 for t in trajectory.turns]


def _acts(turn: Turn) -> bool:
    """Return True if the turn wrote, or could not be read. The last turn that allowed a write may be right itself."""
    return bool(turn.info.get("write")) or bool(turn.flags & MALFORMED) or bool(turn.info.get("tool_error"))
