"""Messages to token ids, by appended increments; nothing is rendered twice.

A conversation starts with its opening: the template's rendering up to the agent's first message. The agent's ids, as
sampled, then alternate with the template's text between two agent messages. SFT examples and rollouts use the same
increments, so a model is trained on exactly the ids it sees in rollouts.

Any number of messages may be between two agent messages, also none: the template renders them together. Where it refuses
them, as templates do that want user and assistant in turn, it renders the merged form: neighbours of one role become one
message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from userrl_core.errors import TrainingError, first_line
from userrl_core.records import Message
from userrl_core.training.local.text.calls import style_of
from userrl_core.training.local.text.tokenizer import rendered

_REPLY = "reply-marker-7f3a"
_OBSERVATION = "answer-marker-7f3a"
DROPPED = (
    "The chat template drops earlier replies or observations, so a conversation cannot be extended turn by turn. Use "
    "another checkpoint."
)
_REMEMBERED = 1024
"""Number of texts, and of replies, whose encoding is cached."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """One conversation of L tokens. turns: [L], the index of the agent turn a token belongs to, -1 for all other tokens."""

    ids: list[int]
    turns: list[int]

    @property
    def agent_tokens(self) -> int:
        """Return the number of the agent's tokens."""
        return len(self.turns) - self.turns.count(-1)


def control_tokens(tokenizer: Any) -> tuple[str, ...]:
    """Return all tokens that structure a conversation.

    `all_special_tokens` is not enough: it lists tokens with a role (end, padding), and the start of a turn may lack one.
    """
    added = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    return tuple(sorted(added | set(tokenizer.all_special_tokens)))


def harmless(text: str, control: Sequence[str]) -> str:
    """Return untrusted text without control tokens. An end-of-turn token in a user's text must not end a turn."""
    for token in control:
        if token in text:
            text = text.replace(token, f"{token[0]} {token[1:]}")
    return text


class ChatFormat:
    """The conversation format of a tokenizer. Raises TrainingError for a template that cannot be extended by increments."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._control = control_tokens(tokenizer)
        # Short tasks say the same few words again and again: a twelfth of a step at the laptop's sizes was their coding.
        self._ids_of = lru_cache(_REMEMBERED)(self._ids)
        self._text_of = lru_cache(_REMEMBERED)(self._decoded)
        if tokenizer.eos_token_id is None:
            raise TrainingError(
                "checkpoint.bad_tokenizer", "This tokenizer has no end-of-turn token. Set its eos_token."
            )
        self._style = style_of(tokenizer)
        self._observed = self._style.observed if self._between(self._style.observed) else "user"
        between = self._between(self._observed)
        if between is None:
            raise TrainingError("checkpoint.bad_tokenizer", DROPPED)
        self._split(between)

    @property
    def calls_are_lines(self) -> bool:
        """Return whether the model writes a call as one line."""
        return self._style.line

    def opening(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Return the ids up to the agent's first reply."""
        told, offered = self._style.opening(self._safe(messages), tools)
        if told:
            return self._encode(self._rendered(told, offered))
        head, _, _ = self._rendered([_agent(_REPLY), {"role": "user", "content": "."}], offered).partition(_REPLY)
        return self._encode(head)

    def reply(self, text: str) -> list[int]:
        """Return the ids of a demonstrated (not sampled) reply with its end token, for supervised training."""
        written = self._style.written(text)
        # In the lean format the end token is the end of a call; other replies have the template's own.
        end = self.end_id if written.endswith(self._ending) else self._closing_id
        return [*self._encode(harmless(written.removesuffix(self._ending), self._control)), end]

    def stored(self, ids: Sequence[int] | None, text: str) -> Sequence[int]:
        """Return the token ids of a stored reply: the sampled ones if they give this text, else those of the text.

        Tokenising the text again may give other ids than were sampled. Ids of another tokenizer give another text here.
        """
        if ids and self.knows(ids) and self.text(ids) == text:
            return ids
        return self.reply(text)

    def knows(self, ids: Sequence[int]) -> bool:
        """Return whether all ids are in the vocabulary."""
        count = len(self.tokenizer)
        return all(isinstance(token, int) and 0 <= token < count for token in ids)

    def prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Return the ids of a conversation up to its next reply. Its last message is not the agent's."""
        last = max((i for i, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
        if last < 0:
            return self.opening(messages, tools)
        return [*self.chat({"messages": messages[: last + 1], "tools": tools}).ids, *self.after(messages[last + 1 :])]

    def after(self, messages: Sequence[Message], *, prompt: bool = True) -> list[int]:
        """Return the ids between a reply's end token and the next reply. messages: all that are between the two.

        prompt: with the head of the next reply.
        """
        if prompt and [message["role"] for message in messages] == ["tool"]:
            return self.after_reply(messages[0]["content"])
        probe = [{"role": "user", "content": "."}, _agent(_REPLY), *self._safe(messages)]
        _, reply, text = self._rendered(probe, prompt=prompt).partition(_REPLY)
        if not reply:
            raise TrainingError("checkpoint.bad_tokenizer", DROPPED)
        return self._encode(text.lstrip().removeprefix(self._closing))

    def after_reply(self, observation: str) -> list[int]:
        """Return the ids between a reply's end token and the next reply: the environment's observation."""
        return self._encode(f"{self._head}{harmless(observation, self._control)}{self._tail}")

    def text(self, ids: Sequence[int]) -> str:
        """Return a sampled reply as text, without its end token."""
        return self._text_of(tuple(ids))

    def _decoded(self, ids: tuple[int, ...]) -> str:
        ended = bool(ids) and ids[-1] == self.end_id
        body = self.tokenizer.decode(
            list(ids[:-1] if ended else ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return f"{self._style.read(body)}{self._ending}" if ended else str(body)

    def chat(self, chat: Mapping[str, Any], cutoff: int | None = None) -> Encoded:
        """Encode a whole conversation (`userrl_core.distill.read_chat`), cut after cutoff tokens.

        The tokens of a reply with ``train: False`` belong to no turn.
        """
        messages: list[Message] = list(chat["messages"])
        replies = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        ids = self.opening(messages[: min(replies, default=None)], chat.get("tools") or ())
        turns = [-1] * len(ids)
        for turn, (start, stop) in enumerate(pairwise([*replies, len(messages)])):
            reply, last = self.reply(messages[start]["content"]), stop == len(messages)
            between = [] if last and stop == start + 1 else self.after(messages[start + 1 : stop], prompt=not last)
            ids += reply + between
            owner = -1 if messages[start].get("train") is False else turn
            turns += [owner] * len(reply) + [-1] * len(between)
        return Encoded(ids[:cutoff], turns[:cutoff])

    def _safe(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages without control tokens, with the role of observations that the template has."""
        return [
            {
                **message,
                "role": self._observed if message["role"] == "tool" else message["role"],
                "content": harmless(str(message["content"]), self._control),
            }
            for message in messages
        ]

    def _rendered(self, messages: Sequence[Message], tools: Any = None, *, prompt: bool = True) -> str:
        """Return the template's text, of the merged form where it refuses the messages."""
        for form in (messages, _merged(messages)):
            try:
                return rendered(self.tokenizer, form, tools or None, prompt=prompt)
            except TrainingError:
                raise
            except Exception as error:  # noqa: BLE001  a template may raise any exception for messages that it refuses
                reason = first_line(error)
        raise TrainingError(
            "checkpoint.bad_tokenizer",
            f"The chat template refuses messages with the roles {', '.join(m['role'] for m in messages)} ({reason}). "
            "Change the conversation, or use another checkpoint.",
        )

    def _encode(self, text: str) -> list[int]:
        return list(self._ids_of(text))

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def _between(self, role: str) -> str | None:
        """Return the template's text after a reply, including an observation of this role.

        None: the template refuses the role, or drops the reply or the observation.
        """
        messages = [
            {"role": "user", "content": "."},
            {"role": "assistant", "content": _REPLY},
            {"role": role, "content": _OBSERVATION},
        ]
        try:
            text = rendered(self.tokenizer, messages)
        except TrainingError:
            raise
        except Exception:  # noqa: BLE001  a template may raise any exception for a role that it does not support
            return None
        _, reply, after = text.partition(_REPLY)
        return after if reply and after.count(_OBSERVATION) == 1 else None

    def _split(self, between: str) -> None:
        """Set the end tokens, the reply text that the agent's stands for, and the texts before and after an observation."""
        head, _, self._tail = between.partition(_OBSERVATION)
        ids = self._encode(head.lstrip())
        self._closing_id = ids[0] if ids else self.tokenizer.eos_token_id
        self._closing = str(self.tokenizer.decode([self._closing_id], skip_special_tokens=False))
        if self._closing not in self._control:
            raise TrainingError(
                "checkpoint.bad_tokenizer",
                "The chat template does not close replies with a single end-of-turn token. Use a tokenizer "
                "whose template does.",
            )
        self._head = head.lstrip().removeprefix(self._closing)
        self.end_id, self._ending = self._closing_id, ""
        eos = str(self.tokenizer.eos_token)
        if eos != self._closing and eos.endswith(
            self._closing
        ):  # the lean format: one token ends the call and the turn
            self.end_id, self._ending = self.tokenizer.eos_token_id, eos.removesuffix(self._closing)


def _agent(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _merged(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with neighbours of one role as one message."""
    merged: list[Message] = []
    for message in messages:
        if merged and merged[-1]["role"] == message["role"]:
            merged[-1] = {**merged[-1], "content": f"{merged[-1]['content']}\n{message['content']}"}
        else:
            merged.append(message)
    return merged
