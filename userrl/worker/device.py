"""The torch device of this process's slot."""

from __future__ import annotations


def device() -> str:
    """Return ``cuda`` if torch can use a GPU in this slot, else ``cpu``."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
