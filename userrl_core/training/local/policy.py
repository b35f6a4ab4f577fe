"""A model in this process as the agent: many conversations in lock-step over one key-value cache.

Sampled ids are kept and never re-tokenised; with each goes the exact log-probability it was drawn with. Draws come from
the policy's own generator. Conversations that outgrow the model's context end with the score reached so far.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from userrl_core.distill import tools_for
from userrl_core.episode import Episode
from userrl_core.errors import ConfigError
from userrl_core.records import PolicyReply
from userrl_core.training.local.chat import ChatFormat
from userrl_core.training.local.decode import Decoder, make_decoder
from userrl_core.training.local.model import context_limit
from userrl_core.training.local.samples import Sample, pad


class LocalPolicy:
    """A torch model that plays episodes (`BatchPolicy`).

    temperature: 0 is greedy. top_p: nucleus; log-probabilities stay those of the whole distribution. max_tokens: of one
    reply. max_response_tokens: of a conversation after its opening. max_batch: conversations in one lock-step batch.
    generator: on the model's device; made from seed when not given. keep_samples: remember every conversation's tokens
    until `take_samples`, for training.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        temperature: float = 0.0,
        top_p: float = 1.0,
        max_tokens: int = 1024,
        max_response_tokens: int | None = None,
        max_batch: int = 256,
        seed: int = 0,
        generator: torch.Generator | None = None,
        keep_samples: bool = False,
        name: str = "local",
    ) -> None:
        if temperature < 0 or not 0 < top_p <= 1:
            raise ConfigError(f"Sampling needs temperature >= 0 and 0 < top_p <= 1, not {temperature} and {top_p}.")
        if max_tokens < 1 or max_batch < 1:
            raise ConfigError("max_tokens and max_batch must be 1 or more.")
        self.name = name
        self.decode_tokens = 0
        """Tokens sampled since the policy was made."""
        self._model = model
        self._format = ChatFormat(tokenizer)
        self._temperature, self._top_p = temperature, top_p
        self._max_tokens, self._max_response = max_tokens, max_response_tokens
        self._max_batch = max_batch
        self._limit = context_limit(model)
        self._device = next(model.parameters()).device
        self._generator = generator or torch.Generator(self._device).manual_seed(seed)
        self._pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        self._keep_samples = keep_samples
        self._samples: list[Sample] = []

    async def play(self, episodes: Sequence[Episode]) -> None:
        """Drive every episode until it is finished, max_batch at a time."""
        self._model.eval()
        for start in range(0, len(episodes), self._max_batch):
            rows = [_Row(episode) for episode in episodes[start : start + self._max_batch]]
            await self._play_batch(rows)
            if self._keep_samples:
                self._samples += [row.sample for row in rows]

    def take_samples(self) -> list[Sample]:
        """The tokens of every conversation since the last call, in the order of the episodes."""
        taken, self._samples = self._samples, []
        return taken

    async def _play_batch(self, rows: list[_Row]) -> None:
        active = [row for row in rows if self._open(row)]
        if not active:
            return
        longest = max(len(row.pending) for row in active)
        decoder = make_decoder(self._model, len(active), longest + 4 * min(self._max_tokens, 256))
        while active:
            began = time.perf_counter()
            replies = self._reply(decoder, active)
            seconds = time.perf_counter() - began
            try:
                async with asyncio.TaskGroup() as group:
                    running = [
                        group.create_task(row.episode.submit(reply, seconds))
                        for row, reply in zip(active, replies, strict=True)
                    ]
            except BaseExceptionGroup as failed:
                raise failed.exceptions[0] from None
            going = []
            for index, (row, reply, task) in enumerate(zip(active, replies, running, strict=True)):
                answer = task.result()
                if answer and self._extend(row, reply, str(answer[0]["content"])):
                    going.append(index)
            if going and len(going) < len(active):
                decoder.keep(torch.tensor(going, device=self._device))
            active = [active[index] for index in going]

    def _open(self, row: _Row) -> bool:
        """Start the episode; False when the gym broke, or the opening already fills the context."""
        messages = row.episode.start()
        if row.episode.finished:
            return False
        ids = self._format.opening(messages, tools_for(row.episode.gym.name, messages))
        row.pending = ids
        row.sample.given(ids)
        row.limit = self._limit if self._max_response is None else min(self._limit, len(ids) + self._max_response)
        if len(ids) < self._limit:
            return True
        row.episode.out_of_tokens()
        return False

    def _extend(self, row: _Row, reply: PolicyReply, answer: str) -> bool:
        """Append the answer; False when no token of a next reply would fit after it."""
        ids = self._format.after_reply(answer)
        if reply.truncated:
            ids = [self._format.end_id, *ids]
        if len(row.sample.ids) + len(ids) >= row.limit:
            row.episode.out_of_tokens()
            return False
        row.pending += ids
        row.sample.given(ids)
        return True

    @torch.inference_mode()
    def _reply(self, decoder: Decoder, rows: list[_Row]) -> list[PolicyReply]:
        """One reply per row. Feeds what is pending, samples, and leaves in pending what was not fed yet."""
        ids, real = pad([row.pending for row in rows], self._pad, left=True, device=self._device)
        logits = decoder.feed(ids, real)
        budget = torch.tensor([self._budget(row) for row in rows], device=self._device)
        done = torch.zeros(len(rows), dtype=torch.bool, device=self._device)
        tokens: list[Tensor] = []
        logprobs: list[Tensor] = []
        entropies: list[Tensor] = []
        while True:
            token, logprob, entropy = self._draw(logits)
            tokens.append(torch.where(done, -1, token))
            logprobs.append(logprob)
            entropies.append(entropy)
            speaking = ~done
            done = done | (token == self._format.end_id) | (len(tokens) >= budget)
            if bool(done.all()):
                break
            logits = decoder.feed(token[:, None], speaking[:, None])
        steps = len(tokens)
        table = [torch.stack(column, 1).tolist() for column in (tokens, logprobs, entropies)]
        return [
            self._take(row, [t for t in drawn if t >= 0], lps, ents, steps)
            for row, drawn, lps, ents in zip(rows, *table, strict=True)
        ]

    def _take(
        self, row: _Row, ids: list[int], logprobs: list[float], entropies: list[float], steps: int
    ) -> PolicyReply:
        """Record one row's reply; steps: tokens drawn in this turn, of which all but the last were fed."""
        count = len(ids)
        before = len(row.sample.ids)
        row.sample.sampled(len(row.episode.trajectory.turns), ids, logprobs[:count], entropies[:count])
        row.pending = ids[steps - 1 :]
        self.decode_tokens += count
        return PolicyReply(
            text=self._format.text(ids),
            prompt_tokens=before,
            completion_tokens=count,
            token_ids=ids,
            logprobs=logprobs[:count],
            truncated=ids[-1] != self._format.end_id,
        )

    def _budget(self, row: _Row) -> int:
        return min(self._max_tokens, row.limit - len(row.sample.ids))

    def _draw(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Token, log-probability and entropy per row."""
        greedy = self._temperature == 0.0
        log_BV = torch.log_softmax(logits if greedy else logits / self._temperature, dim=-1)
        prob_BV = log_BV.exp()
        token = log_BV.argmax(-1) if greedy else self._sample(prob_BV)
        return token, log_BV.gather(1, token[:, None])[:, 0], -(prob_BV * log_BV).sum(-1)

    def _sample(self, prob_BV: Tensor) -> Tensor:
        if self._top_p < 1.0:
            ordered, index = prob_BV.sort(descending=True)
            # A token stays while those before it have not yet reached top_p; the likeliest always stays.
            dropped = ordered.cumsum(-1) - ordered >= self._top_p
            prob_BV = torch.zeros_like(prob_BV).scatter(-1, index, ordered.masked_fill(dropped, 0.0))
        return torch.multinomial(prob_BV, 1, generator=self._generator)[:, 0]


@dataclass(slots=True)
class _Row:
    """One conversation in play. pending: ids that the cache has not seen. limit: most tokens of the whole conversation."""

    episode: Episode
    sample: Sample = field(default_factory=Sample)
    pending: list[int] = field(default_factory=list)
    limit: int = 0
