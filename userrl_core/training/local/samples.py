"""Conversations as token sequences for training, and their padding.

Shapes: B conversations, L tokens of the longest one, S agent tokens of a batch, conversations concatenated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

COLDEST = 1e-6
"""Temperatures below it are greedy: logits divided by them may leave the range of float32."""


@dataclass(slots=True)
class Sample:
    """One sampled conversation; four lists of the same length.

    turns: index of the agent turn that sampled the token, -1 for tokens of the opening, the environment and the
    template. logprobs: nats under the sampling distribution (its temperature included), 0 where turns is -1.
    entropies: entropy in nats of the distribution the token was drawn from.
    """

    ids: list[int] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)

    def append_environment(self, ids: Sequence[int]) -> None:
        """Append tokens of the opening, the environment or the template."""
        self.ids += ids
        # -1 keeps these tokens out of the loss.
        self.turns += [-1] * len(ids)
        self.logprobs += [0.0] * len(ids)
        self.entropies += [0.0] * len(ids)

    def append_reply(
        self, turn: int, ids: Sequence[int], logprobs: Sequence[float], entropies: Sequence[float]
    ) -> None:
        """Append a sampled reply."""
        self.ids += ids
        self.turns += [turn] * len(ids)
        self.logprobs += logprobs
        self.entropies += entropies

    @property
    def agent_tokens(self) -> int:
        """Return the number of sampled tokens."""
        return len(self.turns) - self.turns.count(-1)

    @property
    def opening(self) -> list[int]:
        """Return the tokens before the first sampled one."""
        return self.ids[: next((index for index, turn in enumerate(self.turns) if turn >= 0), len(self.ids))]

    def turn_tokens(self, turns: int) -> list[int]:
        """Return the number of sampled tokens per turn."""
        return [self.turns.count(turn) for turn in range(turns)]

    def of_agent(self, values: Sequence[float]) -> NDArray[np.float32]:
        """Return the entries of a per-token list that belong to agent tokens."""
        agent_values = [value for value, turn in zip(values, self.turns, strict=True) if turn >= 0]
        return np.asarray(agent_values, dtype=np.float32)


def pad(
    rows: Sequence[Sequence[int]], fill: int, *, left: bool = False, device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor]:
    """Return rows of ids as a matrix [B, L], and a mask of the real entries. Padded on the right unless left is set."""
    longest = max(map(len, rows), default=0)
    ids = np.full((len(rows), longest), fill, dtype=np.int64)
    real = np.zeros((len(rows), longest), dtype=np.bool_)
    for index, row in enumerate(rows):
        span = slice(longest - len(row), longest) if left else slice(0, len(row))
        ids[index, span] = row
        real[index, span] = True
    return torch.from_numpy(ids).to(device), torch.from_numpy(real).to(device)


def nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """Return probabilities [..., V] with those outside the nucleus set to 0.

    A token is kept while the more likely ones have not reached top_p. The most likely one is always kept.
    """
    if top_p >= 1.0:
        return probabilities
    ordered, index = probabilities.sort(descending=True)
    dropped = ordered.cumsum(-1) - ordered >= top_p
    dropped[..., 0] = False  # also where top_p is too small for float32
    return torch.zeros_like(probabilities).scatter(-1, index, ordered.masked_fill(dropped, 0.0))


LARGE_VOCABULARY = 8192
"""Above it, tokens are drawn from cumulative sums, since `torch.multinomial` needs a random number for every entry of every row:
42 ms for 48 rows of 49,152 entries, 3 ms from sums (`python -m lab.benchmarks.language_model`). Small models keep their bits.
"""
_BLOCK = 1024


def sample_tokens(
    logits_BV: Tensor, temperature: float, top_p: float, generator: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return a token per row, its log-probability, and the entropy of the row's distribution; each [B], in nats.

    Raises RuntimeError for a row that is not a distribution, unless sampling is greedy.
    """
    greedy = temperature < COLDEST
    if not greedy and temperature != 1.0:
        logits_BV = logits_BV / temperature
    if logits_BV.shape[1] <= LARGE_VOCABULARY:
        log_BV = torch.log_softmax(logits_BV, dim=-1)
        prob_BV = log_BV.exp()
        token = log_BV.argmax(-1) if greedy else draw_tokens(prob_BV, top_p, generator)
        return token, log_BV.gather(1, token[:, None])[:, 0], -(prob_BV * log_BV).sum(-1)
    # The same in two passes over the entries instead of five: logits less the log of their sum are log-probabilities.
    prob_BV = torch.softmax(logits_BV, dim=-1)
    token = logits_BV.argmax(-1) if greedy else draw_tokens(prob_BV, top_p, generator)
    logprob = prob_BV.gather(1, token[:, None])[:, 0].log()
    log_sum = logits_BV.gather(1, token[:, None])[:, 0] - logprob
    return token, logprob, log_sum - torch.linalg.vecdot(prob_BV, logits_BV)


def draw_tokens(probabilities_BV: Tensor, top_p: float, generator: torch.Generator | None) -> Tensor:
    """Draw one token per row from the nucleus, [B]. Raises RuntimeError for a row that is not a distribution."""
    kept_BV = nucleus(probabilities_BV, top_p)
    if kept_BV.shape[1] <= LARGE_VOCABULARY:
        return torch.multinomial(kept_BV, 1, generator=generator)[:, 0]
    blocks = torch.nn.functional.pad(kept_BV, (0, -kept_BV.shape[1] % _BLOCK)).view(len(kept_BV), -1, _BLOCK)
    up_to = blocks.sum(-1, dtype=torch.float64).cumsum(-1)
    total = up_to[:, -1:]
    if not bool((total.isfinite() & (total > 0)).all()):
        raise RuntimeError("a row of probabilities has no finite positive sum")
    point = total * torch.rand(len(total), 1, dtype=torch.float64, device=total.device, generator=generator)
    block = torch.searchsorted(up_to, point, right=True).clamp_max(up_to.shape[1] - 1)
    within = blocks.gather(1, block[..., None].expand(-1, 1, _BLOCK))[:, 0].double().cumsum(-1)
    rest = (point - (up_to.gather(1, block) - within[:, -1:])).clamp_min(0.0)
    # Sums of one block in two orders may differ in their last bit: a point beyond the block's end is its last token.
    rest = rest.minimum(torch.nextafter(within[:, -1:], torch.zeros_like(rest)))
    return (block * _BLOCK + torch.searchsorted(within, rest, right=True))[:, 0]
