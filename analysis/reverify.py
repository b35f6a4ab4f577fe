"""Rescoring of stored conversations under another judge or other rules; the words of the conversation do not change.

Every stored call is given to a new gym with the task and the seed of the conversation. The user repeats its stored
words and judges again. If a judge or a rule ends the conversation earlier, later turns are dropped. If it would have
continued, the score covers the stored turns. A turn may come out differently although nobody judged it. It then
depended on state that was not stored, and the conversation gets no score.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from userrl_core.errors import JudgeError, UserError, UserRLError
from userrl_core.gyms.base import Gym, parse_config
from userrl_core.gyms.registry import gym_class, make_user
from userrl_core.interact import InteractCall
from userrl_core.records import Flag, StopReason, Task, Trajectory, Turn
from userrl_core.seeding import derive_seed

SPOKEN = frozenset({"reply", "reveal", "chat"})
"""The methods of a user that speak to the agent; all other methods judge."""


@dataclass(slots=True)
class Reverified:
    """A conversation under the new rules.

    trajectory: with the new rewards, score and user. cut: the new verdict would have let the conversation continue.
    refused: reason for a missing score, "" otherwise.
    """

    trajectory: Trajectory
    cut: bool = False
    refused: str = ""


def judges(gym: str, task: Task) -> tuple[str, ...]:
    """Return the methods of a gym's user that judge; empty where the score follows from the calls alone."""
    user_instance = make_user(gym_class(gym), task, "rule")
    return () if user_instance is None else tuple(name for name in _methods(user_instance) if name not in SPOKEN)


async def reverify(stored: Trajectory, judge: Any, config: dict[str, Any], judge_name: str) -> Reverified:
    """Score a stored conversation again.

    stored: with its turns and stop reason. judge: a user kind, or kind and options. config: the gym's config with the
    changes. Raises ConfigError and TaskError for settings that allow no score for any conversation of the gym.
    """
    gym_type = gym_class(stored.task.gym)
    user = make_user(gym_type, stored.task, judge)
    recorded = _Recorded(user)
    gym = gym_type(stored.task, user=None if user is None else recorded, config=parse_config(gym_type, config))
    rescored = replace(stored, turns=[], user=judge_name, traj_id=None, score=None, admitted=True, reject_reason=None)
    try:
        gym.reset(seed=derive_seed("gym", stored.seed))
        return await _replay(gym, recorded, stored, rescored)
    finally:
        await gym.aclose()


async def _replay(gym: Gym[Any], recorded: _Recorded, stored: Trajectory, rescored: Trajectory) -> Reverified:
    is_finished = stored.stop_reason in ("success", "gave_up")
    for turn in stored.turns:
        if turn.choice is None:
            rescored.turns.append(replace(turn, reward=0.0, model_calls=[]))
            continue
        stored_text = turn.observation
        recorded.say(gym.last_words(stored_text) if is_finished and turn is stored.turns[-1] else stored_text)
        try:
            result = await gym.step(InteractCall(turn.choice, turn.content or ""))
        except (UserError, JudgeError) as error:
            return _rejected(rescored, f"judge: {error}")
        except UserRLError as error:
            return _rejected(rescored, f"gym: {error}")
        calls = list(gym.ledger)
        gym.ledger.clear()
        if not recorded.judged and not _same(result.observation, stored_text):
            sentence = f"turn {turn.number} comes out otherwise: it depended on state that was not stored"
            return _rejected(rescored, sentence)
        rescored.turns.append(_rescored(turn, result.reward, result.info, calls))
        if result.terminated:
            rescored.stop_reason = "success" if gym.succeeded else "gave_up"
            rescored.score = gym.score()
            return Reverified(rescored)
    rescored.score = gym.score()
    rescored.stop_reason = "horizon" if is_finished else stored.stop_reason
    return Reverified(rescored, cut=is_finished)


def _rescored(turn: Turn, reward: float | None, info: dict[str, Any], calls: list[Any]) -> Turn:
    flags = turn.flags & ~int(Flag.TIMEOUT)
    return replace(turn, reward=reward, info=info, model_calls=calls, flags=flags, token_ids=None, logprobs=None)


def _rejected(rescored: Trajectory, reason: str) -> Reverified:
    rescored.admitted, rescored.reject_reason, rescored.stop_reason = False, reason, _ERROR
    return Reverified(rescored, refused=reason)


_ERROR: StopReason = "error"


def _same(now: str, then: str) -> bool:
    """Return True if the agent would have seen the same text. A note on further calls may follow the stored observation."""
    return then.strip() == now.strip() or then.startswith(now.strip() + "\nOnly the first of ")


def _methods(user: Any) -> Sequence[str]:
    return [name for name, _ in inspect.getmembers(type(user), inspect.iscoroutinefunction) if not name.startswith("_")]


class _Recorded:
    """A user that repeats the stored words, and judges by another user.

    judged: True if it was asked for a verdict, or for words, since the last `say`.
    """

    def __init__(self, judge: Any) -> None:
        self._judge, self._said = judge, ""
        self.judged = False

    def say(self, text: str) -> None:
        """Set the stored text that the user says next."""
        self._said, self.judged = text, False

    @property
    def ledger(self) -> Any:
        """Return the judge's calls."""
        return getattr(self._judge, "ledger", None)

    @ledger.setter
    def ledger(self, value: Any) -> None:
        if hasattr(self._judge, "ledger"):
            self._judge.ledger = value

    def __getattr__(self, name: str) -> Any:
        method: Callable[..., Any] = getattr(self._judge, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def answer(*arguments: Any, **keywords: Any) -> Any:
            self.judged = True
            if name in SPOKEN:
                return self._said
            verdict = await method(*arguments, **keywords)
            # A verdict that comes with words (PersuadeGym) keeps the words that were said.
            return replace(verdict, response=self._said) if hasattr(verdict, "response") else verdict

        return answer
