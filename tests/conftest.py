"""What holds for every test: properties are tried on the same examples everywhere, however long one takes.

So a verdict is about the change, not about the draw or the machine. `HYPOTHESIS_PROFILE=explore pytest` looks for new
examples; what it finds goes into the test as an `@example`.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("same", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("explore", settings.get_profile("same"), derandomize=False, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
