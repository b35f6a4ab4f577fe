"""A curve as one line of text."""

from __future__ import annotations

from collections.abc import Sequence

BARS = " ▁▂▃▄▅▆▇█"


def spark(values: Sequence[float]) -> str:
    """Return a curve as one line of text, with at most 60 marks, scaled to the range of its values."""
    step = max(1, -(-len(values) // 60))
    shown = values[::step]
    low, high = min(shown), max(shown)
    scale = (len(BARS) - 2) / (high - low) if high > low else 0.0
    return "".join(BARS[1 + round((value - low) * scale)] for value in shown)
