"""The opening messages of all gyms, from one template (structure: UserRL figure 16; the wording is ours).

- ``full`` is for pretrained models: a system message with the goal, the tool and the choices, then the user's opening.
- ``paper`` adds two items of figure 16 that ``full`` omits: reasoning first in think tags in every message, and the
  gym's hint.
- ``released`` is the prompt of the task's released row, or ``full`` if it has no such prompt. Every observation shows
  its reward, as in the released trainer.
- ``native`` has no interact tool: the model writes plain text and calls the gym's native tools (`policies.native`).
- ``brief`` is for a laptop-size model trained from scratch: the shortest user message that states the task.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from userrl_core.gyms.base import Gym
from userrl_core.interact import TOOL_NAME
from userrl_core.records import Message

PromptStyle = Literal["full", "brief", "paper", "released"]
"""The styles that a recipe may request."""
EpisodeStyle = PromptStyle | Literal["native"]
"""The styles that an episode may use."""


THINK = "Think first, between <think> and </think>, about what is known and what to do next; then make"


_TEENS = tuple(f"{stem}teen" for stem in ("thir", "four", "fif", "six", "seven", "eigh", "nine"))
_UNITS = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    *_TEENS,
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def number_word(n: int) -> str:
    """Return a number as one word, such as twentyone; "many" from 100. A tokenizer of whole words has digits as single tokens."""
    if n < len(_UNITS):
        return _UNITS[n]
    tens, unit = divmod(n, 10)
    return "many" if n >= 100 else _TENS[tens - 2] + (_UNITS[unit] if unit else "")


def turns_left_note(left: int, *, brief: bool) -> str:
    """Return what `model.turns_left` appends to a message: a line, or in brief prompts one word, the number.

    left: number of turns that remain, the agent's next one included.
    """
    if brief:
        return f" {number_word(left)}"
    return f"\n({left} turn{'' if left == 1 else 's'} left)"


def turns_left_as_in(opening: str, left: int) -> str:
    """Return the note in the form that it has in an opening."""
    return turns_left_note(left, brief=not opening.endswith(" left)"))


def without_turns_left(text: str) -> str:
    """Return a message without the line of `turns_left_note`."""
    return re.sub(r"\n\(\d+ turns? left\)\Z", "", text)


def opening_messages(gym: Gym[Any], opening: str, horizon: int, style: EpisodeStyle = "full") -> list[Message]:
    """Return the messages that the agent sees before its first turn.

    opening: the return value of `Gym.reset`. horizon: maximum number of turns, stated in the full and the paper's style.
    """
    if style == "brief":
        # No horizon here: the prompt must not change when the horizon grows from stage to stage.
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
