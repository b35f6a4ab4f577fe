"""The entropy mask (Wang et al. 2025; TARL 5.2): only the tokens drawn at the highest entropy carry the policy loss.

Both backends use this threshold.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def entropy_threshold(entropies_S: NDArray[np.float32], share: float) -> float:
    """Return the entropy that this share of S tokens reaches, ties included; minus infinity without tokens."""
    if not entropies_S.size:
        return -np.inf
    rank = max(1, int(np.ceil(share * entropies_S.size)))
    return float(np.partition(entropies_S, -rank)[-rank])
