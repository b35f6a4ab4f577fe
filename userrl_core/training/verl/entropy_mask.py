"""The entropy mask on verl's matrices. The loss is the same as the local backend's.

A token without advantage adds nothing to the clipped surrogate, and still counts in the averages.

Shape suffixes: N rows, L response tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from userrl_core.training.entropy_mask import entropy_threshold


def masked_advantages(
    advantages_NL: torch.Tensor,
    entropy_NL: torch.Tensor,
    mask_NL: torch.Tensor,
    groups: Sequence[str],
    *,
    share: float,
    compared: bool,
) -> tuple[torch.Tensor, float]:
    """Return advantages that are zero below the batch's threshold, and the share of tokens that carry the loss.

    groups: [N]. compared: only groups with a nonzero advantage are in the update, so only their tokens set the threshold.
    """
    trained_NL = mask_NL > 0
    if compared:
        signal = {group for group, row in zip(groups, advantages_NL, strict=True) if bool((row != 0).any())}
        trained_NL = trained_NL & torch.tensor([group in signal for group in groups], device=mask_NL.device)[:, None]
    threshold = entropy_threshold(entropy_NL[trained_NL].float().cpu().numpy(), share)
    kept_NL = entropy_NL >= threshold
    return advantages_NL * kept_NL, float((kept_NL & trained_NL).sum() / trained_NL.sum().clamp(min=1))
