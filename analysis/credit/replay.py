"""Replay of a recorded conversation up to a turn, in a new gym, with the same task, seed and replies.

The gym is then in the same state, so that other replies can continue from there (`continuations.py`). Each turn's
observation and reward are compared with the record. A conversation cannot be replayed if a model answered in it, or
if its gym is not reproducible.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from userrl_core.episode import Episode, EpisodeRules
from userrl_core.errors import GymError
from userrl_core.gyms.prompt import EpisodeStyle
from userrl_core.gyms.registry import gym_class, make
from userrl_core.interact import TOOL_NAME, parse_text
from userrl_core.records import Flag, PolicyReply, Trajectory, Turn
from userrl_core.seeding import derive_seed


@dataclass(frozen=True, slots=True)
class Setting:
    """The conditions of the conversations, by gym where they differ. user: as `run_episodes` takes it."""

    gym_config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    user: Mapping[str, Any] = field(default_factory=dict)
    on_format_error: Literal["end", "continue"] = "end"
    prompt_style: EpisodeStyle = "full"
    turns_left: bool = False


def why_not(gym_name: str, user: str | None) -> str:
    """Return the reason why a conversation of this gym with this user cannot be replayed, as a sentence; "" if it can."""
    gym = gym_class(gym_name)
    if gym.irreproducible:
        return f"Gym '{gym.name}' cannot be replayed: {gym.irreproducible}."
    if gym.users and user != "rule":
        return (
            f"This conversation of gym '{gym.name}' cannot be replayed: {user} answered in it, who need not say the same "
            "again; play it with the rule user."
        )
    return ""


async def replay(stored: Trajectory, turns: int, setting: Setting, *, fresh: int | None = None) -> Episode:
    """Return an episode in which the first turns of a recorded one were replayed. The caller closes its gym.

    fresh: seed of new generators for gym and user from here on, while the facts of the task stay. None keeps their
    generators. Raises GymError, with gym and turn, if the conversation cannot be replayed or differs from the record.
    """
    if reason := why_not(stored.task.gym, stored.user):
        raise GymError("gym.not_replayable", reason)
    name = stored.task.gym
    episode = Episode(
        make(name, stored.task, setting.user.get(name, "rule"), **setting.gym_config.get(name, {})),
        EpisodeRules(
            stored.horizon,
            setting.on_format_error,
            prompt_style=setting.prompt_style,
            turns_left=setting.turns_left,
        ),
        attempt=stored.attempt,
        seed=stored.seed,
        context=stored.context,
        group=stored.group,
        user=stored.user,
    )
    try:
        messages = await episode.begin()
        if stored.messages and messages != stored.messages:
            raise _otherwise(stored, "the opening")
        for turn in stored.turns[:turns]:
            await episode.submit(_reply(turn))
            again = episode.trajectory.turns[-1]
            if (again.observation, again.reward) != (turn.observation, turn.reward):
                raise _otherwise(stored, f"turn {turn.number}")
    except BaseException:
        await episode.gym.aclose()
        raise
    if fresh is not None:
        _draw_anew(episode, fresh)
    return episode


def _otherwise(stored: Trajectory, where: str) -> GymError:
    return GymError(
        "gym.not_replayable",
        f"Gym '{stored.task.gym}' cannot be replayed: {where} of task {stored.task.key} differs from the "
        "stored one. The gym depends on state that was not stored, or its rules have changed.",
    )


def _reply(turn: Turn) -> PolicyReply:
    """Return the agent's reply as the episode received it."""
    calls = None
    if turn.choice is not None and parse_text(turn.message).call is None:
        arguments = json.dumps({"choice": turn.choice, "content": turn.content})
        calls = [{"function": {"name": TOOL_NAME, "arguments": arguments}}]
    return PolicyReply(
        text=turn.message,
        tool_calls=calls,
        prompt_tokens=turn.prompt_tokens,
        completion_tokens=turn.completion_tokens,
        token_ids=turn.token_ids,
        logprobs=turn.logprobs,
        truncated=bool(turn.flags & Flag.LENGTH),
    )


def _draw_anew(episode: Episode, fresh: int) -> None:
    """Reseed the generators of the gym and its user. Earlier draws stay."""
    for owner in (episode.gym, episode.gym.user):
        for name, value in sorted(getattr(owner, "__dict__", {}).items()):
            if isinstance(value, random.Random):
                value.seed(derive_seed("branch", fresh, type(owner).__name__, name))
