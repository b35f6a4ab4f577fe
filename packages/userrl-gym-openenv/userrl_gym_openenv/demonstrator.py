"""OpenEnv servers have no scripted demonstrator."""

from __future__ import annotations

from userrl_core.gyms.other_python import UnscriptedDemonstrator


class OpenEnvDemonstrator(UnscriptedDemonstrator):
    """A player that says what to use in its place."""
