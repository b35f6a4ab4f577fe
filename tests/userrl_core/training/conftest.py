"""One thread that sleeps when idle: the fastest setting for the small matrix products of these tests."""

from __future__ import annotations

import sys

from userrl_core.training.local.threads import fix_threads, quiet_threads

if "torch" not in sys.modules:
    quiet_threads()
fix_threads(1)
