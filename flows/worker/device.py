"""What the slot of this process offers torch."""

from __future__ import annotations

import os


def device() -> str:
    """``cuda`` when the slot is a GPU that torch can use, else ``cpu``."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def threads() -> int:
    """Threads of one operation: ``$USERRL_THREADS``, 2 by default. A resume is exact only with the same number."""
    return max(1, int(os.environ.get("USERRL_THREADS", "2")))
