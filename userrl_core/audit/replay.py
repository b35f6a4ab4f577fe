"""A recorded conversation played again up to a turn, in a new gym: same task, same seed, same replies.

The gym then stands where it stood, so that others may go on from there (`continuations.py`). What was said is checked turn by
turn. A conversation cannot be replayed when a model answered in it, or when its gym does not bring the same again.
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
    """How the conversations were played, by gym where it differs: options of the gym, and who answered (as `run_episodes`
    takes it)."""

    gym_config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    user: Mapping[str, Any] = field(default_factory=dict)
    on_format_error: Literal["end", "continue"] = "end"
    prompt_style: EpisodeStyle = "full"


def why_not(gym_name: str, user: str | None) -> str:
    """Why a conversation of this gym with this user cannot be replayed, in a sentence; "" where it can."""
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
    """An episode that has lived through the first turns of a recorded one. The caller closes its gym.

    fresh: from here on gym and user draw from new generators with this seed, while the facts of the task stay; None goes on
    with their own. Raises GymError, naming gym and turn, where the conversation cannot be replayed or comes out otherwise.
    """
    if reason := why_not(stored.task.gym, stored.user):
        raise GymError("gym.not_replayable", reason)
    name = stored.task.gym
    episode = Episode(
        make(name, stored.task, setting.user.get(name, "rule"), **setting.gym_config.get(name, {})),
        EpisodeRules(stored.horizon, setting.on_format_error, prompt_style=setting.prompt_style),
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
    """What the agent said, as the episode got it."""
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
    """New seeds for the generators that gym and user hold; what was drawn before stays."""
    for owner in (episode.gym, episode.gym.user):
        for name, value in sorted(getattr(owner, "__dict__", {}).items()):
            if isinstance(value, random.Random):
                value.seed(derive_seed("branch", fresh, type(owner).__name__, name))
