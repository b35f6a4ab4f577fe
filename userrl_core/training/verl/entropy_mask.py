"""The entropy mask over verl's matrices. A token without advantage adds nothing to the clipped surrogate, and counts in the
averages as before: the same loss as the local backend's.

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
    """Advantages that are zero below the batch's threshold, and the share of tokens that carry the loss.

    groups: [N]. compared: only tokens of groups with an advantage somewhere are in the update, and count in the threshold.
    """
    trained_NL = mask_NL > 0
    if compared:
        signal = {group for group, row in zip(groups, advantages_NL, strict=True) if bool((row != 0).any())}
        trained_NL = trained_NL & torch.tensor([group in signal for group in groups], device=mask_NL.device)[:, None]
    threshold = entropy_threshold(entropy_NL[trained_NL].float().cpu().numpy(), share)
    kept_NL = entropy_NL >= threshold
    return advantages_NL * kept_NL, float((kept_NL & trained_NL).sum() / trained_NL.sum().clamp(min=1))
