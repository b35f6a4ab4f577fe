"""A stop at the first step with numbers that are not finite. Later steps would be noise, with scores of zero."""

from __future__ import annotations

import math
from collections.abc import Mapping

from userrl_core.errors import TrainingError


def check_losses(losses: Mapping[str, float | None], stage: str, step: int) -> None:
    """Raise TrainingError where a loss of the step is not finite; verl's log writes such a number as None."""
    for name, loss in losses.items():
        if loss is None or not math.isfinite(loss):
            raise strayed(f"{name} is {'not finite' if loss is None else loss}", stage, step)


def strayed(what: str, stage: str, step: int) -> TrainingError:
    """Return the error of a step that is not finite. what: a clause that describes it."""
    return TrainingError(
        "training.diverged",
        f"Training stopped at step {step} of {stage}: {what}. Nothing of this step was saved. Start a new run with a lower "
        f"learning rate ({'cold_start' if stage.startswith('sft') else 'algorithm'}.lr).",
    )
