"""Conversations that a person gives for supervised training instead of demonstrations: they must call what a gym allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from userrl_core.distill import read_chats
from userrl_core.errors import TaskError
from userrl_core.gyms.registry import gym_class
from userrl_core.interact import TOOL_NAME, parse_text


def read_conversations(
    path: Path, gyms: Collection[str] = (), unread: Counter[str] | None = None
) -> list[dict[str, Any]]:
    """Return the chats of a file.

    gyms: the gyms that the agent will play. unread: counts the fields that are not read. Raises TaskError
    naming the file, the line and the problem. Also raises it when no reply that is trained on is a call that one of
    these gyms allows.
    """
    chats = read_chats(path, unread)
    if not chats:
        raise TaskError("chats.invalid", f"{path} contains no conversation. Give a file with at least one.")
    if gyms and not any(map(_calls(gyms), _replies(chats))):
        raise TaskError(
            "chats.invalid",
            f"{path} contains no call of {', '.join(gyms)}: no assistant turn has a {TOOL_NAME} call with a "
            "choice that these gyms allow. docs/reference/conversation-files.md describes the format.",
        )
    return chats


def _calls(gyms: Collection[str]) -> Callable[[str], bool]:
    """Return a predicate: True for a reply that is a call allowed by one of the gyms."""
    choices = {choice for gym in map(gym_class, gyms) for choice in (*gym.choices(), *gym.aliases)}

    def is_call(reply: str) -> bool:
        call = parse_text(reply).call
        return call is not None and call.choice in choices

    return is_call


def _replies(chats: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    messages = (message for chat in chats for message in chat["messages"])
    return (reply["content"] for reply in messages if reply["role"] == "assistant" and reply.get("train") is not False)
