"""From messages to token ids, by increments that are appended and never re-rendered.

A conversation is its opening (the template's rendering up to where the agent speaks), then in turn the agent's ids, as
sampled, and what the template puts between two agent messages. The same increments make SFT examples and rollouts, so a
model is trained on exactly the ids it sees when it acts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from userrl_core.errors import TrainingError
from userrl_core.records import Message

_REPLY = "reply-marker-7f3a"
_ANSWER = "answer-marker-7f3a"


@dataclass(frozen=True, slots=True)
class Encoded:
    """One conversation of L tokens. turns: [L], index of the agent turn a token was written in, -1 for everyone else's."""

    ids: list[int]
    turns: list[int]

    @property
    def agent_tokens(self) -> int:
        """Number of tokens that the agent wrote."""
        return len(self.turns) - self.turns.count(-1)


def control_tokens(tokenizer: Any) -> tuple[str, ...]:
    """Every token that structures a conversation.

    Not `all_special_tokens` alone: it lists those with a role (end, padding), and a turn's start need not have one.
    """
    added = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    return tuple(sorted(added | set(tokenizer.all_special_tokens)))


def harmless(text: str, control: Sequence[str]) -> str:
    """Foreign text without control tokens: a user who writes an end-of-turn token must not end a turn with it."""
    for token in control:
        if token in text:
            text = text.replace(token, f"{token[0]} {token[1:]}")
    return text


class ChatFormat:
    """How one tokenizer writes conversations. Raises TrainingError for a template that cannot be extended by increments."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._control = control_tokens(tokenizer)
        if tokenizer.eos_token_id is None:
            raise TrainingError("This tokenizer has no end-of-turn token; set its eos_token.")
        between = self._between("tool")
        self._answer_role = "tool" if between is not None else "user"
        between = between or self._between("user")
        if between is None:
            raise TrainingError(
                "The chat template drops earlier replies or answers; it cannot be extended turn by turn."
            )
        self.end_id, self._head, self._tail = self._split(between)

    def opening(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Ids up to where the agent's first reply begins."""
        safe = [{**message, "content": harmless(str(message["content"]), self._control)} for message in messages]
        text = self.tokenizer.apply_chat_template(
            safe, tools=list(tools) or None, add_generation_prompt=True, tokenize=False
        )
        return self._encode(text)

    def reply(self, text: str) -> list[int]:
        """A written (not sampled) reply with its end token, for supervised training."""
        return [*self._encode(harmless(text, self._control)), self.end_id]

    def after_reply(self, answer: str) -> list[int]:
        """What follows the end token of a reply: the environment's answer, up to where the next reply begins."""
        return self._encode(f"{self._head}{harmless(answer, self._control)}{self._tail}")

    def text(self, ids: Sequence[int]) -> str:
        """A sampled reply as text, without its end token."""
        body = ids[:-1] if ids and ids[-1] == self.end_id else ids
        return str(self.tokenizer.decode(body, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def chat(self, chat: Mapping[str, Any], cutoff: int | None = None) -> Encoded:
        """A whole conversation (`userrl_core.distill.to_chat`) as ids, cut at cutoff tokens."""
        messages: list[Message] = list(chat["messages"])
        first = next((i for i, m in enumerate(messages) if m["role"] == "assistant"), len(messages))
        ids = self.opening(messages[:first], chat.get("tools") or ())
        turns = [-1] * len(ids)
        turn = 0
        for message in messages[first:]:
            if message["role"] == "assistant":
                piece, mark = self.reply(message["content"]), turn
                turn += 1
            else:
                piece, mark = self.after_reply(message["content"]), -1
            ids += piece
            turns += [mark] * len(piece)
        return Encoded(ids[:cutoff], turns[:cutoff])

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def _between(self, role: str) -> str | None:
        """The template's text from a reply to the next, or None when it refuses or drops one of the two."""
        messages = [
            {"role": "user", "content": "."},
            {"role": "assistant", "content": _REPLY},
            {"role": role, "content": _ANSWER},
        ]
        try:
            text = str(self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
        except Exception:  # noqa: BLE001  a template may raise anything to say that it does not know this role
            return None
        _, found, after = text.partition(_REPLY)
        return after if found and after.count(_ANSWER) == 1 else None

    def _split(self, between: str) -> tuple[int, str, str]:
        """End-of-turn id, and the texts before and after the answer that follow it."""
        head, _, tail = between.partition(_ANSWER)
        ids = self._encode(head.lstrip())
        end = ids[0] if ids else self.tokenizer.eos_token_id
        if end not in self.tokenizer.all_special_ids and end != self.tokenizer.eos_token_id:
            raise TrainingError(
                "The chat template closes replies with no single end-of-turn token; it cannot be used here."
            )
        closing = self.tokenizer.decode([end], skip_special_tokens=False)
        return end, head.lstrip().removeprefix(closing), tail
