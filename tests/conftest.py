"""What holds for every test: an example of a property may take its time, which says how busy the machine is and no more."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")
