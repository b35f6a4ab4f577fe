"""The opening messages of every gym, from one template (structure: UserRL figure 16; the wording is ours).

``full`` is for pretrained models: a system message with the goal, the tool and what each choice does, then the user's
opening. ``paper`` adds what figure 16 asks for and ``full`` leaves open: reasoning first, in think tags, in every message, and
the gym's hint. ``released`` is the prompt of the task's released row (``full`` where a task has none), with the reward after
every observation, as the released trainer shows it. ``native`` knows no interact tool: the model talks in plain words and has the
gym's own tools (`policies.native`). ``brief`` is for a model of laptop size trained from scratch: the shortest
user message that states the task.
"""

from __future__ import annotations

from typing import Any, Literal

from userrl_core.gyms.base import Gym
from userrl_core.interact import TOOL_NAME
from userrl_core.records import Message

PromptStyle = Literal["full", "brief", "paper", "released"]
"""What a recipe may ask for."""
EpisodeStyle = PromptStyle | Literal["native"]
"""What an episode may show."""


THINK = "Think first, between <think> and </think>, about what is known and what to do next; then make"


def opening_messages(gym: Gym[Any], opening: str, horizon: int, style: EpisodeStyle = "full") -> list[Message]:
    """What the agent sees before its first turn.

    opening: what `Gym.reset` returned. horizon: maximum number of turns, stated in the full style only (a brief prompt must
    not change when the horizon grows from stage to stage).
    """
    if style == "brief":
        return [{"role": "user", "content": gym.brief()}]
    released = gym.task.payload.get("prompt") if style == "released" else None
    if released is not None:
        return [{"role": message["role"], "content": message["content"]} for message in released]
    if style == "native":
        return [{"role": "system", "content": _NATIVE.format(goal=gym.goal)}, {"role": "user", "content": opening}]
    choices = "\n".join(f"- {choice}: {gym.help_for(choice)}" for choice in gym.choices())
    system = (
        f"You help a user through one tool, {TOOL_NAME}, which takes two strings: choice and content.\n\n"
        f"# Goal\n{gym.goal}\n\n"
        f"# Choices\n{choices}\n\n"
        f"# Rules\n"
        f"- {THINK if style == 'paper' else 'Think first if you need to, then make'} exactly one call in every message.\n"
        f"- The user sees only what the call says, and you see only what comes back.\n"
        f"- You have at most {horizon} turns; fewer is better."
    )
    if style == "paper" and gym.hint:
        system += f"\n\n# Hint\n{gym.hint}"
    return [{"role": "system", "content": system}, {"role": "user", "content": opening}]


_NATIVE = (
    "You help a user.\n\n# Goal\n{goal}\n\n# Rules\n"
    "- What you write goes to the user; what you look up or carry out goes through your tools, one call in a message.\n"
    "- Do either in a message, not both."
)
