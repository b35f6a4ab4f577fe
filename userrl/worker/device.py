"""What the slot of this process offers torch."""

from __future__ import annotations


def device() -> str:
    """``cuda`` when the slot is a GPU that torch can use, else ``cpu``."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
