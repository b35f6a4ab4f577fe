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

    A token is kept while the more likely ones have not reached top_p. The most likely one always is, also where top_p is
    too small for float32.
    """
    if top_p >= 1.0:
        return probabilities
    ordered, index = probabilities.sort(descending=True)
    dropped = ordered.cumsum(-1) - ordered >= top_p
    dropped[..., 0] = False
    return torch.zeros_like(probabilities).scatter(-1, index, ordered.masked_fill(dropped, 0.0))
