"""A chat divided into the opening and the agent's turns. All readers of chat messages build their turns here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.foreign.conversation import MESSAGE, ForeignTurn
from userrl_core.chats.message import MARKS, ChatMessage, is_read, read_message
from userrl_core.chats.order import arranged
from userrl_core.chats.values import broken, mapping
from userrl_core.interact import TOOL_NAME
from userrl_core.seeding import content_hash


@dataclass(slots=True)
class Chat:
    """A divided chat. turns_of: the turns that each message became, by its place. Most become one or none.
    unread: number of parts by kind, and of fields by name, that have no stored form. silent: that its messages have no
    words, and where these may be; else "".
    """

    opening: list[dict[str, str]] = field(default_factory=list)
    turns: list[ForeignTurn] = field(default_factory=list)
    turns_of: list[range] = field(default_factory=list)
    unread: Counter[str] = field(default_factory=Counter)
    silent: str = ""


def divided(messages: Sequence[Any], where: str, *, prompt: int = 0, read: Collection[str] = ()) -> Chat:
    """Divide messages at the agent's messages. Further fields of the agent's messages are stored with their turns.

    prompt: messages at the beginning that are not the agent's own. read: fields that the caller reads itself. Raises
    BrokenFile for a message that is not an object or has no role.
    """
    chat = Chat()
    silent = True
    replies: list[tuple[str, str]] = []
    for position, item in enumerate(arranged(messages)):
        source = mapping(item, where, f"message {position + 1}")
        if not isinstance(source.get("role"), str):
            broken(where, f"message {position + 1} has no role")
        turns = len(chat.turns)
        for message in read_message(source, where):
            chat.unread += message.unread
            chat.unread.update({f"field {name}": number for name, number in message.fields.items()})
            silent = silent and not (message.spoken or message.thought)
            if message.role == "assistant" and position >= prompt:
                _observe(chat, replies)
                chat.turns.append(_turn(message))
                continue
            chat.unread.update({"reasoning of another message": bool(message.thought)})
            if chat.turns:
                replies.append((_speaker(message.role, source), message.spoken))
            else:
                chat.opening.append({"role": message.role, "content": message.spoken, **_name(source)})
        chat.turns_of.append(range(turns, len(chat.turns)))
        _keep_other_fields(chat, chat.turns[turns:], source, read)
    _observe(chat, replies)
    if silent and (names := sorted({key for item in messages for key in item if not is_read(key, item[key])})):
        chat.silent = f"no message has a text in 'content', or a call, but there are other fields: {', '.join(names)}"
    chat.unread += Counter()  # without zeros
    return chat


def _keep_other_fields(
    chat: Chat, turns: Sequence[ForeignTurn], source: Mapping[str, Any], read: Collection[str]
) -> None:
    """Store further fields of the agent's message with its first turn, and count those of another message."""
    others = {key: value for key, value in source.items() if key not in read and not is_read(key, value)}
    marks = {key: source[key] for key in MARKS if source.get(key) is not None}
    if not turns:
        chat.unread.update(f"field {key}" for key in (*others, *marks))
        return
    others |= marks | ({"name": source["name"]} if source.get("name") is not None else {})
    if others:
        turns[0].info["message"] = others


def task_of_opening(opening: Iterable[Mapping[str, str]]) -> str:
    """Return an id for a chat without a task id: a hash of its opening, so that attempts at one prompt share it."""
    return content_hash([dict(message) for message in opening])[:16]


def _turn(message: ChatMessage) -> ForeignTurn:
    """Return an agent's message as a turn. Its text contains the calls between tags, as in our own turns."""
    if not message.calls:
        return ForeignTurn(MESSAGE, message.text, message.thought, message.text)
    name, arguments = message.calls[0]
    return ForeignTurn(name, arguments, "\n".join(filter(None, (message.thought, message.text))), message.spoken)


def _observe(chat: Chat, replies: list[tuple[str, str]]) -> None:
    """Store the replies to the last turn as its observation, and clear them. Without a speaker it is what the turn asks
    for: a user's reply to a message or to a call of our tool, or the result of a call.
    """
    if replies:
        show_speakers = len(replies) > 1 or replies[0][0] not in _expected(chat.turns[-1])
        chat.turns[-1].observation = "\n".join(
            f"{speaker}: {text}" if show_speakers else text for speaker, text in replies
        )
    replies.clear()


def _expected(turn: ForeignTurn) -> tuple[str, ...]:
    """Return the speakers who may reply to a turn. A call may also be written as text."""
    tools = ("tool", "function") if "<tool_call>" in turn.message else ()
    return tools if turn.content != turn.message and turn.choice != TOOL_NAME else ("user", *tools)


def _speaker(role: str, source: Mapping[str, Any]) -> str:
    """Return the role and the name; the name of a tool is in its call."""
    return role if role in ("tool", "function") else " ".join([role, *_name(source).values()])


def _name(source: Mapping[str, Any]) -> dict[str, str]:
    name = source.get("name")
    return {"name": name} if isinstance(name, str) and name else {}
