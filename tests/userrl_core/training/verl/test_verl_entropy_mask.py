"""Which tokens keep their advantage on verl: those that the local backend trains on."""

from __future__ import annotations

import pytest
import torch

from userrl_core.training.verl.entropy_trainer import masked_advantages

ENTROPY = torch.tensor([[0.1, 0.9, 5.0, 0.8], [0.2, 0.3, 0.4, 0.5], [3.0, 4.0, 0.0, 0.0]])
MASK = torch.tensor([[1, 1, 0, 1], [1, 1, 1, 1], [1, 1, 0, 0]])
ADVANTAGES = torch.tensor([[2.0, 2.0, 0.0, 2.0], [-1.0, -1.0, -1.0, -1.0], [0.0, 0.0, 0.0, 0.0]])


def test_only_the_share_of_highest_entropy_among_what_is_trained_on_keeps_its_advantage() -> None:
    masked, share = masked_advantages(ADVANTAGES, ENTROPY, MASK, ["a", "a", "b"], share=2 / 7, compared=True)
    assert masked.tolist() == [[0.0, 2.0, 0.0, 2.0], [0.0] * 4, [0.0] * 4]
    assert share == pytest.approx(2 / 7), "the environment's token and the group without a signal do not count"


def test_groups_without_a_signal_count_where_they_are_kept() -> None:
    masked, share = masked_advantages(ADVANTAGES, ENTROPY, MASK, ["a", "a", "b"], share=3 / 9, compared=False)
    assert masked.tolist() == [[0.0, 2.0, 0.0, 0.0], [0.0] * 4, [0.0] * 4]
    assert share == pytest.approx(3 / 9)


def test_a_batch_without_any_signal_stays_without_one() -> None:
    nothing = torch.zeros(1, 2)
    masked, share = masked_advantages(nothing, torch.ones(1, 2), torch.ones(1, 2), ["a"], share=0.2, compared=True)
    assert masked.tolist() == [[0.0, 0.0]]
    assert share == 0.0
