"""Chat completions from a model in this process: many requests in lock-step over one key-value cache."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from userrl_core.chats.message import model_messages
from userrl_core.chats.values import BrokenFile
from userrl_core.errors import ConfigError
from userrl_core.interact import TOOL_NAME, parse_text
from userrl_core.training.local.decode import make_decoder
from userrl_core.training.local.model import context_limit, logits_not_finite
from userrl_core.training.local.samples import COLDEST, draw_tokens, nucleus, pad
from userrl_core.training.local.text.chat import ChatFormat
from userrl_core.training.local.text.constrained import CallRule, required_call

SHORTEST_SHARED = 32
"""Tokens of a common beginning from which it is computed once."""
_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One conversation to continue. temperature: 0 is greedy. seed: of this reply alone, whatever it is batched with.

    top_logprobs: number of alternatives per token that are returned with their log-probabilities. stop: texts before the
    first of which the reply ends; a required call is not ended by them. tool_choice: whether the reply may, must or must
    not be a call. tool: name of the only tool that a required call may use.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 256
    seed: int = 0
    top_logprobs: int = 0
    stop: Sequence[str] = ()
    tool_choice: Literal["auto", "none", "required"] = "auto"
    tool: str | None = None

    @property
    def shown_tools(self) -> list[Mapping[str, Any]]:
        """The tools that the model is told of: none where it may not call them."""
        return [] if self.tool_choice == "none" else list(self.tools)


@dataclass(slots=True)
class Completion:
    """A reply. calls: name and arguments (JSON text) of its tool calls. logprobs: of each token, with the alternatives."""

    text: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    alternatives: list[list[tuple[str, float]]] = field(default_factory=list)
    prompt_tokens: int = 0
    finish_reason: str = "stop"


class Completer:
    """A model and its tokenizer that answer requests."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._model, self._tokenizer = model.eval(), tokenizer
        self._format = ChatFormat(tokenizer)
        self._limit = context_limit(model)
        self._pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id

    def prompt(self, request: CompletionRequest) -> list[int]:
        """Return the ids of a request's conversation. Raises ConfigError where it is empty, ends with a reply or is too long,
        and for a message that is not text.
        """
        try:
            messages = model_messages(request.messages, "the request")
        except BrokenFile as error:
            raise ConfigError("argument.malformed", error.fact) from None
        if not messages or messages[-1]["role"] == "assistant":
            raise ConfigError(
                "argument.malformed", "messages must end with a message of the user, or with the result of a tool."
            )
        ids = self._format.prompt(messages, request.shown_tools)
        if len(ids) >= self._limit:
            raise ConfigError(
                "argument.out_of_range",
                f"The conversation has {len(ids)} tokens, too many for this model's context length of {self._limit}.",
            )
        return ids

    @torch.inference_mode()
    def complete(
        self, requests: Sequence[CompletionRequest], waits: Callable[[int], bool] = lambda index: True
    ) -> list[Completion]:
        """Return one reply per request. waits: whether anybody still waits for the reply at this index; else it is cut."""
        prompts = [self.prompt(request) for request in requests]
        replies = [Completion(prompt_tokens=len(ids)) for ids in prompts]
        budgets = [min(r.max_tokens, self._limit - len(ids)) for r, ids in zip(requests, prompts, strict=True)]
        generators = [torch.Generator().manual_seed(request.seed) for request in requests]
        rules = [self._rule(request) for request in requests]
        rows = list(range(len(requests)))
        columns = max(map(len, prompts)) + min(max(budgets), 256)
        device = next(self._model.parameters()).device
        if shared := shared_tokens(prompts):  # such as a judge's rules: computed once for all rows
            decoder = make_decoder(self._model, 1, columns)
            opening = torch.tensor([prompts[0][:shared]], device=device)
            decoder.feed(opening, torch.ones_like(opening, dtype=torch.bool))
            decoder.keep(torch.zeros(len(rows), dtype=torch.long, device=device))
        else:
            decoder = make_decoder(self._model, len(rows), columns)
        ids, real = pad([prompt[shared:] for prompt in prompts], self._pad, left=True, device=device)
        logits = decoder.feed(ids, real)
        while True:
            for index, row in enumerate(rows):
                self._extend(replies[row], requests[row], logits[index], generators[row], rules[row])
            open_rows = [
                index
                for index, row in enumerate(rows)
                if len(replies[row].ids) < budgets[row]
                and waits(row)
                and not self._ended(replies[row], requests[row], rules[row])
            ]
            if not open_rows:
                break
            if len(open_rows) < len(rows):
                decoder.keep(torch.tensor(open_rows, device=ids.device))
                rows = [rows[index] for index in open_rows]
            last = torch.tensor([[replies[row].ids[-1]] for row in rows], device=ids.device)
            logits = decoder.feed(last, torch.ones_like(last, dtype=torch.bool))
        for request, reply in zip(requests, replies, strict=True):
            self._finish(request, reply)
        return replies

    def _rule(self, request: CompletionRequest) -> CallRule | None:
        """Return the rule that a reply's text has to follow; None for a free reply."""
        line = self._format.calls_are_lines
        if request.tool_choice == "required":
            callable_tools = [t for t in request.tools if request.tool in (None, t.get("function", t).get("name"))]
            return required_call(callable_tools, line=line)
        return CallRule(line=line) if request.tool_choice == "none" else None

    def _extend(
        self,
        reply: Completion,
        request: CompletionRequest,
        logits: Tensor,
        generator: torch.Generator,
        rule: CallRule | None,
    ) -> None:
        """Sample one token. Log-probabilities are from the whole distribution at the request's temperature."""
        greedy = request.temperature < COLDEST
        logprobs = torch.log_softmax(logits.cpu() if greedy else logits.cpu() / request.temperature, dim=-1)
        if bool(logprobs.isnan().any()):
            raise logits_not_finite("this model")
        if rule is not None:
            token = self._allowed(reply, rule, _in_order(logprobs, greedy, request.top_p, generator))
        else:
            token = int(logprobs.argmax()) if greedy else _sample(logprobs.exp(), request.top_p, generator)
        reply.ids.append(token)
        reply.tokens.append(str(self._tokenizer.decode([token])))
        reply.logprobs.append(float(logprobs[token]))
        if request.top_logprobs:
            best = logprobs.topk(min(request.top_logprobs, len(logprobs)))
            pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            reply.alternatives.append([(str(self._tokenizer.decode([one])), value) for one, value in pairs])

    def _allowed(self, reply: Completion, rule: CallRule, candidates: Iterator[int]) -> int:
        """Return the first token that the rule allows; the end token where it allows none."""
        heads = [self._tokenizer.encode(head, add_special_tokens=False) for head in rule.heads]
        at = len(reply.ids)
        next_of_heads = {head[at] for head in heads if head[:at] == reply.ids and len(head) > at}
        for token in candidates:
            if next_of_heads:
                if token in next_of_heads:
                    return token
            elif rule.allows(self._format.text([*reply.ids, token]), token == self._format.end_id):
                return token
        return self._format.end_id

    def _ended(self, reply: Completion, request: CompletionRequest, rule: CallRule | None) -> bool:
        if reply.ids[-1] == self._format.end_id:
            return True
        if rule is None and not request.stop:
            return False
        text = self._format.text(reply.ids)
        return _cut(text, request) is not None or (rule is not None and rule.complete(text))

    def _finish(self, request: CompletionRequest, reply: Completion) -> None:
        ended = self._ended(reply, request, self._rule(request))
        reply.text = self._format.text(reply.ids)
        reply.text = reply.text[: _cut(reply.text, request)]
        reply.finish_reason = "stop" if ended else "length"
        if request.shown_tools:
            reply.calls = calls_of(reply.text, request.tools)
        if reply.calls:
            reply.text, reply.finish_reason = reply.text[: reply.text.find("<tool_call>")].strip(), "tool_calls"


def calls_of(text: str, tools: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return the readable calls of these tools in a text; the interact tool is read as rollouts read it."""
    names = {str(tool.get("function", tool).get("name")) for tool in tools}
    if names == {TOOL_NAME}:
        call = parse_text(text).call
        if call is None:
            return []
        return [(TOOL_NAME, json.dumps({"choice": str(call.choice), "content": call.content}, ensure_ascii=False))]
    calls = []
    for block in _CALL.findall(text):
        try:
            value, _ = json.JSONDecoder().raw_decode(block.strip())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and value.get("name") in names and isinstance(value.get("arguments"), dict):
            calls.append((str(value["name"]), json.dumps(value["arguments"], ensure_ascii=False)))
    return calls


def _sample(probabilities: Tensor, top_p: float, generator: torch.Generator) -> int:
    return int(draw_tokens(probabilities[None], top_p, generator))


def _in_order(logprobs: Tensor, greedy: bool, top_p: float, generator: torch.Generator) -> Iterator[int]:
    """Yield all tokens: first those of the nucleus as drawn one by one without replacement, then by probability."""
    if not greedy:
        nucleus_V = nucleus(logprobs.exp(), top_p)
        drawn = nucleus_V / torch.empty_like(nucleus_V).exponential_(generator=generator)
        yield from drawn.argsort(descending=True)[: int(nucleus_V.count_nonzero())].tolist()
    yield from logprobs.argsort(descending=True).tolist()


def _cut(text: str, request: CompletionRequest) -> int | None:
    """Return where the first stop text begins; None where there is none."""
    stops = () if request.tool_choice == "required" else request.stop
    return min((text.index(stop) for stop in stops if stop in text), default=None)


def shared_tokens(prompts: Sequence[list[int]]) -> int:
    """Return how many tokens all prompts begin with, less than any of them has; 0 for one prompt or a short beginning."""
    if len(prompts) < 2:
        return 0
    first, last = min(prompts), max(prompts)  # in order of tokens: what these two share, all share
    limit = min(map(len, prompts)) - 1
    shared = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), limit)
    return min(shared, limit) if shared >= SHORTEST_SHARED else 0
