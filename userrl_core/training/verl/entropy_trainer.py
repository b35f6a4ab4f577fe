"""A trainer for verl: its synchronous one with the entropy mask.

verl's policy losses never see entropies (`verl.workers.utils.losses.ppo_loss`), but its trainer measures the
entropies of all sampled tokens before the update. Trainers are registered by name. This one sets the advantage of
low-entropy tokens to zero before the losses see it. KL term, entropy bonus and critic use all tokens.

Only the processes of a stage that uses it load it (``VERL_USE_EXTERNAL_MODULES``).
"""

from __future__ import annotations

from typing import Any

import transfer_queue
from tensordict import TensorDict
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.workers.utils.padding import response_to_nested

from userrl_core.training.verl.entropy_mask import masked_advantages
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
