"""A torch model in this process as the policy: many conversations in lock-step over one key-value cache.

Sampled ids are kept with their exact log-probabilities and never re-tokenised. The policy has its own random
generator. Conversations that reach the model's context limit end with the score so far.
"""

from __future__ import annotations

import asyncio
import math
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
from userrl_core.training.local.decode import Decoder, column_bytes, make_decoder
from userrl_core.training.local.model import context_limit, logits_not_finite
from userrl_core.training.local.samples import Sample, pad, sample_tokens
from userrl_core.training.local.text.chat import ChatFormat
from userrl_core.training.one_gpu import rows_that_fit


class LocalPolicy:
    """A torch model that plays episodes (`BatchPolicy`).

    temperature: 0 is greedy. top_p: nucleus sampling; log-probabilities refer to the whole distribution. max_tokens:
    limit of one reply. max_response_tokens: limit of a conversation after its opening. max_batch: conversations in
    one lock-step batch. A GPU plays fewer where the free memory does not hold their keys and values at full length.
    generator: on the model's device; created from seed when not given. keep_samples: keep every conversation's tokens
    until `take_samples`, for training. share_openings: read the same opening of several conversations of a batch
    once, for many continuations of one beginning.

    An episode that already has turns continues after its last turn.
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
        share_openings: bool = False,
        name: str = "local",
    ) -> None:
        if temperature < 0 or not 0 < top_p <= 1:
            raise ConfigError(
                "argument.out_of_range",
                f"Sampling needs temperature >= 0 and 0 < top_p <= 1, not {temperature} and {top_p}.",
            )
        if max_tokens < 1 or max_batch < 1:
            raise ConfigError("argument.out_of_range", "max_tokens and max_batch must be 1 or more.")
        self.name = name
        self.decode_tokens = 0
        """Number of tokens sampled by this policy so far."""
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
        self._share_openings = share_openings
        self._samples: list[Sample] = []

    async def play(self, episodes: Sequence[Episode]) -> None:
        """Play every episode to its end, max_batch at a time."""
        self._model.eval()
        for start in range(0, len(episodes), self._max_batch):
            rows = [_Row(episode) for episode in episodes[start : start + self._max_batch]]
            # Gyms that wait for other processes open at the same time.
            opened = await asyncio.gather(*(self._open(row) for row in rows))
            active = [row for row, ready in zip(rows, opened, strict=True) if ready]
            size = self._rows_at_once(active)
            for first in range(0, len(active), size):
                await self._play_batch(active[first : first + size])
            if self._keep_samples:
                self._samples += [row.sample for row in rows]

    def take_samples(self) -> list[Sample]:
        """Return the tokens of every conversation since the last call, in the order of the episodes."""
        taken, self._samples = self._samples, []
        return taken

    def _rows_at_once(self, rows: list[_Row]) -> int:
        """Return the number of rows to play at once: max_batch on a CPU, as many as fit into the free memory on a GPU."""
        if self._device.type != "cuda" or not rows:
            return self._max_batch
        torch.cuda.empty_cache()  # what torch keeps for itself would not count as free
        free, _ = torch.cuda.mem_get_info(self._device)
        return max(rows_that_fit(free, column_bytes(self._model), max(row.limit for row in rows)), 1)

    async def _play_batch(self, active: list[_Row]) -> None:
        longest = max(len(row.pending) for row in active)
        openings: dict[tuple[int, ...], int] = {}
        opening = [openings.setdefault(tuple(row.pending), len(openings)) for row in active]
        shared = self._share_openings and len(openings) < len(active)
        rows_read = len(openings) if shared else len(active)
        # With room for some replies, so that the cache need not grow in each of the first turns.
        decoder = make_decoder(self._model, rows_read, longest + 4 * min(self._max_tokens, 256))
        while active:
            started = time.perf_counter()
            replies = self._reply(decoder, active, opening if shared else None)
            shared = False
            seconds = time.perf_counter() - started
            # Users and gyms of all rows answer at the same time. The next round waits for the slowest of them.
            try:
                async with asyncio.TaskGroup() as group:
                    submissions = [
                        group.create_task(row.episode.submit(reply, seconds))
                        for row, reply in zip(active, replies, strict=True)
                    ]
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None
            continuing = []
            for index, (row, reply, submission) in enumerate(zip(active, replies, submissions, strict=True)):
                messages = submission.result()
                if messages and self._extend(row, reply, str(messages[0]["content"])):
                    continuing.append(index)
            # Rows whose episode has ended leave the cache, and the others move up.
            if continuing and len(continuing) < len(active):
                decoder.keep(torch.tensor(continuing, device=self._device))
            active = [active[index] for index in continuing]

    async def _open(self, row: _Row) -> bool:
        """Start the episode. Return False when the gym failed or the opening already fills the context."""
        messages = row.episode.trajectory.messages or await row.episode.begin()
        if row.episode.finished:
            return False
        ids = self._format.opening(messages, tools_for(row.episode.gym.name, messages))
        # Counted after the opening, whose length differs from gym to gym.
        row.limit = self._limit if self._max_response is None else min(self._limit, len(ids) + self._max_response)
        for turn in row.episode.trajectory.turns:
            said = self._format.stored(turn.token_ids, turn.message)
            # A reply that was cut off lacks the end that the template needs.
            cut = [] if said[-1] == self._format.end_id else [self._format.end_id]
            ids = [*ids, *said, *cut, *self._format.after_reply(row.episode.shown(turn))]
        row.pending = ids
        row.sample.append_environment(ids)
        if len(ids) < row.limit:
            return True
        row.episode.out_of_tokens()
        return False

    def _extend(self, row: _Row, reply: PolicyReply, observation: str) -> bool:
        """Append the observation. Return False when no token of another reply would fit after it."""
        ids = self._format.after_reply(observation)
        if reply.truncated:
            # The template needs the end of the message. As a token of the environment it carries no loss.
            ids = [self._format.end_id, *ids]
        if len(row.sample.ids) + len(ids) >= row.limit:
            row.episode.out_of_tokens()
            return False
        row.pending += ids
        row.sample.append_environment(ids)
        return True

    @torch.inference_mode()
    def _reply(self, decoder: Decoder, rows: list[_Row], opening: list[int] | None = None) -> list[PolicyReply]:
        """Return one reply per row. Feeds the pending ids and samples; ids that were not fed stay pending.

        opening: the index of each row's opening among the distinct ones, when each is to be fed once.
        """
        pending = [row.pending for row in rows]
        if opening is not None:
            pending = [pending[opening.index(number)] for number in range(max(opening) + 1)]
        # Padded on the left: the next token of every row is at the same position.
        ids, real = pad(pending, self._pad, left=True, device=self._device)
        logits = decoder.feed(ids, real)
        if opening is not None:
            index = torch.tensor(opening, device=self._device)
            decoder.keep(index)
            logits = logits[index]
        budget = torch.tensor([self._budget(row) for row in rows], device=self._device)
        done = torch.zeros(len(rows), dtype=torch.bool, device=self._device)
        tokens: list[Tensor] = []
        logprobs: list[Tensor] = []
        entropies: list[Tensor] = []
        while True:
            token, logprob, entropy = self._sample(logits)
            # A row that has ended is sampled along until the longest ends; -1 marks what is thrown away.
            tokens.append(torch.where(done, -1, token))
            logprobs.append(logprob)
            entropies.append(entropy)
            # As of before this token, so that the token that ends a reply is still fed.
            unfinished = ~done
            done = done | (token == self._format.end_id) | (len(tokens) >= budget)
            if bool(done.all()):
                break
            logits = decoder.feed(token[:, None], unfinished[:, None])
        steps = len(tokens)
        columns = [torch.stack(column, 1).tolist() for column in (tokens, logprobs, entropies)]
        return [
            self._record(row, [t for t in row_tokens if t >= 0], row_logprobs, row_entropies, steps)
            for row, row_tokens, row_logprobs, row_entropies in zip(rows, *columns, strict=True)
        ]

    def _record(
        self, row: _Row, ids: list[int], logprobs: list[float], entropies: list[float], steps: int
    ) -> PolicyReply:
        """Record one row's reply. steps: tokens sampled in this turn; all but the last were fed."""
        count = len(ids)
        if any(map(math.isnan, logprobs[:count])):
            raise logits_not_finite(self.name)
        prompt_tokens = len(row.sample.ids)
        row.sample.append_reply(len(row.episode.trajectory.turns), ids, logprobs[:count], entropies[:count])
        # A row that ended before the longest was fed all its ids, as the others went on. Of the longest the last id is not fed.
        row.pending = ids[steps - 1 :]
        self.decode_tokens += count
        return PolicyReply(
            text=self._format.text(ids),
            prompt_tokens=prompt_tokens,
            completion_tokens=count,
            token_ids=ids,
            logprobs=logprobs[:count],
            truncated=ids[-1] != self._format.end_id,
        )

    def _budget(self, row: _Row) -> int:
        return min(self._max_tokens, row.limit - len(row.sample.ids))

    def _sample(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        try:
            return sample_tokens(logits, self._temperature, self._top_p, self._generator)
        except RuntimeError as error:
            if bool((logits.isnan() | logits.isposinf()).any()):
                raise logits_not_finite(self.name) from error
            raise


@dataclass(slots=True)
class _Row:
    """One conversation in progress. pending: ids not yet in the cache. limit: maximum tokens of the whole conversation."""

    episode: Episode
    sample: Sample = field(default_factory=Sample)
    pending: list[int] = field(default_factory=list)
    limit: int = 0
