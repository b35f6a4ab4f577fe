"""Small matrix products are quickest on one thread that sleeps when it is idle."""

from __future__ import annotations

import sys

from userrl_core.training.local.threads import fix_threads, quiet_threads

if "torch" not in sys.modules:
    quiet_threads()
fix_threads(1)
