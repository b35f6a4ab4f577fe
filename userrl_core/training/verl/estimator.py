"""verl's advantage estimator ``userrl``: the same function of turn rewards that the local trainer and the SQL views use.

verl passes two matrices, rewards and response mask, and one group id per row. Turns are recovered as runs of ones in
the mask, because context always separates two agent messages. A turn's raw reward is the sum over its tokens, because
the agent loop places it on the last one. A row without any turn lacks a score: a null-reward trajectory, whose mask
the agent loop sets to zero, or padding. It counts in no mean and carries no gradient.

Shape suffixes: N rows, L response tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from userrl_core.errors import ConfigError
from userrl_core.rewards import CreditConfig, Credits, assign_credit, measure_bias
from userrl_core.training.verl.credit_actor import record_credits

NAME = "userrl"


def estimate(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    config: Any = None,
    index: Sequence[Any] | None = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return advantages and returns (identical), shape [N, L], float32, zero outside the agent's tokens.

    token_level_rewards, response_mask: [N, L]. config: verl's algorithm block; its ``userrl`` entry holds
    `CreditConfig` fields and ``stage_file``, the path of the stage's settings. index: group id per row (verl's uid).
    """
    batch = read_batch(token_level_rewards, response_mask, config, index)
    return batch.answer([row.tolist() for row in batch.credits.advantages])


@dataclass(frozen=True, slots=True)
class TurnBatch:
    """The trajectories in verl's matrices. Lists are per trajectory, M of them; verl's padding rows are left out.

    rows: row of each trajectory in the matrices. spans, rewards, tokens: ragged, per turn; empty without a score.
    """

    shape: tuple[int, ...]
    rows: list[int]
    groups: list[str]
    spans: list[list[tuple[int, int]]]
    rewards: list[list[float]]
    tokens: list[list[int]]
    credits: Credits
    stage_file: str | None
    device: torch.device

    def answer(
        self, turns: Sequence[Sequence[float]], numbers: Mapping[str, float] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Record these advantages per turn, and return them as verl's advantages and returns, [N, L] each."""
        self.record(turns, numbers)
        advantages = self.spread(turns).to(self.device)
        return advantages, advantages.clone()

    def spread(self, turns: Sequence[Sequence[float]]) -> torch.Tensor:
        """Spread one number per turn over its tokens, [N, L] in float32, zero outside the agent's tokens."""
        spread_NL = torch.zeros(self.shape, dtype=torch.float32)
        for row, spans, values in zip(self.rows, self.spans, turns, strict=True):
            for (begin, end), value in zip(spans, values, strict=True):
                spread_NL[row, begin:end] = value
        return spread_NL

    def turn_means(self, tokens_NL: torch.Tensor) -> list[list[float]]:
        """Return the mean over each turn's tokens, ragged."""
        return [
            [float(tokens_NL[row, begin:end].mean()) for begin, end in spans]
            for row, spans in zip(self.rows, self.spans, strict=True)
        ]

    def record(self, turns: Sequence[Sequence[float]], numbers: Mapping[str, float] | None = None) -> None:
        """Log shaped credit, these advantages per turn, and the step's numbers, if the stage is known."""
        if self.stage_file is None:
            return
        record_credits(
            self.stage_file,
            self.groups,
            [signature(*attempt) for attempt in zip(self.rewards, self.tokens, strict=True)],
            [row.tolist() for row in self.credits.shaped],
            turns,
            self.credits.diagnostics.metrics()
            | measure_bias(turns, self.groups, self.credits, self.tokens).metrics()
            | dict(numbers or {}),
        )


def read_batch(rewards_NL: torch.Tensor, mask_NL: torch.Tensor, config: Any, index: Sequence[Any] | None) -> TurnBatch:
    """Return the trajectories in an estimator's arguments. Raises ConfigError without group ids."""
    if index is None:
        raise ConfigError(
            "training.bad_call",
            "Estimator userrl compares trajectories of one task and needs group ids. Keep verl's uid column.",
        )
    settings, stage_file = read_config(config)
    spans, rewards, tokens = recover_turns(rewards_NL, mask_NL)
    if settings.rounding == "released":
        rewards = [[as_paid(reward) for reward in row] for row in rewards]
    # verl fills up a batch with rows whose uid begins with pad. They are no trajectories.
    rows = [i for i, uid in enumerate(index) if spans[i] or not str(uid).startswith("pad")]
    groups, rewards, tokens = [str(index[i]) for i in rows], [rewards[i] for i in rows], [tokens[i] for i in rows]
    return TurnBatch(
        shape=tuple(rewards_NL.shape),
        rows=rows,
        groups=groups,
        spans=[spans[i] for i in rows],
        rewards=rewards,
        tokens=tokens,
        credits=assign_credit(rewards, groups, settings, turn_tokens=tokens),
        stage_file=stage_file,
        device=rewards_NL.device,
    )


def read_config(config: Any) -> tuple[CreditConfig, str | None]:
    """Return credit settings and the stage file's path from verl's algorithm block; defaults without a ``userrl`` entry."""
    block = config.get(NAME) if config is not None else None
    values: dict[str, Any] = {str(key): block[key] for key in block} if isinstance(block, Mapping) or block else {}
    stage_file = values.pop("stage_file", None)
    return CreditConfig(**values), stage_file


def recover_turns(
    rewards_NL: torch.Tensor, mask_NL: torch.Tensor
) -> tuple[list[list[tuple[int, int]]], list[list[float]], list[list[int]]]:
    """Return, ragged per row: the spans of its turns, their raw rewards in float64, and the number of tokens of each."""
    rewards = rewards_NL.detach().to("cpu", torch.float64).numpy()
    mask = mask_NL.detach().to("cpu").numpy() > 0
    spans = [turn_spans(row) for row in mask]
    sums = [
        [float(row[begin:end].sum()) for begin, end in row_spans] for row, row_spans in zip(rewards, spans, strict=True)
    ]
    return spans, sums, [[end - begin for begin, end in row_spans] for row_spans in spans]


def as_paid(reward: float) -> float:
    """Return the gym's original reward: the shortest decimal that float32 cannot tell from this number.

    verl carries rewards in float32, where 0.15 becomes 0.15000000596. A mean that is a tie at the fifth digit would
    then be rounded differently from the gym's own rewards. A number that is not a float32, such as a reward minus a
    penalty per token, is returned unchanged.
    """
    carried = np.float32(reward)
    return float(str(carried)) if float(carried) == reward else reward


def turn_spans(mask_L: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return runs of ones as half-open ranges, from left to right."""
    # 1 where a run of ones begins, -1 after its end. The zeros close runs at both edges.
    edges = np.diff(np.concatenate(([0], mask_L.astype(np.int8), [0])))
    return list(zip(np.flatnonzero(edges == 1).tolist(), np.flatnonzero(edges == -1).tolist(), strict=True))


def signature(rewards: Sequence[float], tokens: Sequence[int]) -> tuple[tuple[float, int], ...]:
    """Return a key that distinguishes trajectories of one group: turn rewards in float32, and tokens per turn.

    Two trajectories with the same signature have the same credits, so they may be exchanged.
    """
    return tuple((float(np.float32(r)), int(n)) for r, n in zip(rewards, tokens, strict=True))
