"""Messages to token ids, by appended increments; nothing is rendered twice.

A conversation starts with its opening: the template's rendering up to the agent's first message. The agent's ids, as
sampled, then alternate with the template's text between two agent messages. SFT examples and rollouts use the same
increments, so a model is trained on exactly the ids it sees in rollouts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from userrl_core.errors import TrainingError
from userrl_core.records import Message
from userrl_core.training.local.text.calls import style_of
from userrl_core.training.local.text.tokenizer import rendered

_REPLY = "reply-marker-7f3a"
_OBSERVATION = "answer-marker-7f3a"
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
        between = self._between(self._style.observed) or self._between("user")
        if between is None:
            raise TrainingError(
                "checkpoint.bad_tokenizer",
                "The chat template drops earlier replies or observations, so a conversation cannot be "
                "extended turn by turn. Use another checkpoint.",
            )
        self.end_id, self._ending, self._head, self._tail = self._split(between)

    @property
    def calls_are_lines(self) -> bool:
        """Return whether the model writes a call as one line."""
        return self._style.line

    def opening(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Return the ids up to the agent's first reply."""
        safe = [{**message, "content": harmless(str(message["content"]), self._control)} for message in messages]
        told, offered = self._style.opening(safe, tools)
        return self._encode(rendered(self.tokenizer, told, offered or None))

    def reply(self, text: str) -> list[int]:
        """Return the ids of a demonstrated (not sampled) reply with its end token, for supervised training."""
        text = harmless(self._style.written(text).removesuffix(self._ending), self._control)
        return [*self._encode(text), self.end_id]

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
        """Encode a whole conversation (`userrl_core.distill.to_chat`), cut after cutoff tokens."""
        messages: list[Message] = list(chat["messages"])
        first = next((i for i, m in enumerate(messages) if m["role"] == "assistant"), len(messages))
        ids = self.opening(messages[:first], chat.get("tools") or ())
        turns = [-1] * len(ids)
        turn = 0
        for message in messages[first:]:
            if message["role"] == "assistant":
                increment, owner = self.reply(message["content"]), turn
                turn += 1
            else:
                increment, owner = self.after_reply(message["content"]), -1
            ids += increment
            turns += [owner] * len(increment)
        return Encoded(ids[:cutoff], turns[:cutoff])

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

    def _split(self, between: str) -> tuple[int, str, str, str]:
        """Return the end token's id, the reply text it represents, and the texts before and after the observation."""
        head, _, tail = between.partition(_OBSERVATION)
        ids = self._encode(head.lstrip())
        end = ids[0] if ids else self.tokenizer.eos_token_id
        closing = str(self.tokenizer.decode([end], skip_special_tokens=False))
        if closing not in self._control:
            raise TrainingError(
                "checkpoint.bad_tokenizer",
                "The chat template does not close replies with a single end-of-turn token. Use a tokenizer "
                "whose template does.",
            )
        after = head.lstrip().removeprefix(closing)
        eos = str(self.tokenizer.eos_token)
        if eos != closing and eos.endswith(closing):  # the lean format: one token ends the call and the turn
            return self.tokenizer.eos_token_id, eos.removesuffix(closing), after, tail
        return end, "", after, tail
