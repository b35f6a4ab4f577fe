"""Settings of all tests: properties are tried on the same examples on every machine, without a deadline.

A failure is then due to a change, not to the draw or the machine. `HYPOTHESIS_PROFILE=explore pytest` searches for new
examples; add a failing one to the test as an `@example`.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("same", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("explore", settings.get_profile("same"), derandomize=False, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
