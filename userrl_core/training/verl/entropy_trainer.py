"""A trainer for verl: its synchronous one with the entropy mask.

verl's policy losses never see entropies (`verl.workers.utils.losses.ppo_loss`), but its trainer measures the
entropies of all sampled tokens before the update. Trainers are registered by name. This one sets the advantage of
low-entropy tokens to zero before the losses see it. KL term, entropy bonus and critic use all tokens.

Only the processes of a stage that uses it load it (``VERL_USE_EXTERNAL_MODULES``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transfer_queue
from tensordict import TensorDict
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.workers.utils.padding import response_to_nested

from userrl_core.training.entropy_mask import entropy_threshold
from userrl_core.training.verl.flags import MASKING_TRAINER

FIELDS = ["uid", "response_mask", "entropy", "advantages"]


@register_trainer(MASKING_TRAINER)
class EntropyMaskTrainer(PPOTrainerSync):  # type: ignore[misc]  # verl has no types
    """verl's synchronous trainer, configured by ``algorithm.entropy_mask`` (share, compared)."""

    # verl asks for its mode by this name wherever the modes differ.
    trainer_mode = property(lambda self: "sync", lambda self, value: None)

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_advantage(batch, metrics)
        data = transfer_queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=FIELDS)
        nested_mask = data["response_mask"]
        rows = data.to_padded_tensor()
        advantages, metrics["actor/entropy_mask"] = masked_advantages(
            rows["advantages"],
            rows["entropy"],
            rows["response_mask"],
            [str(uid) for uid in rows["uid"]],
            **self.config.algorithm.entropy_mask,
        )
        fields = TensorDict({"advantages": response_to_nested(advantages, nested_mask)}, batch_size=len(batch))
        return transfer_queue.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)


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

    The loss is that of the local backend: a token without advantage adds nothing to the clipped surrogate, and still counts
    in the averages.

    Shape suffixes: N rows, L response tokens. groups: [N]. compared: only groups with a nonzero advantage are in the update, so
    only their tokens set the threshold.
    """
    trained_NL = mask_NL > 0
    if compared:
        signal = {group for group, row in zip(groups, advantages_NL, strict=True) if bool((row != 0).any())}
        trained_NL = trained_NL & torch.tensor([group in signal for group in groups], device=mask_NL.device)[:, None]
    threshold = entropy_threshold(entropy_NL[trained_NL].float().cpu().numpy(), share)
    kept_NL = entropy_NL >= threshold
    return advantages_NL * kept_NL, float((kept_NL & trained_NL).sum() / trained_NL.sum().clamp(min=1))
