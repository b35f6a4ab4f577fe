"""VoiceGym's scripted demonstrator, which is TauGym's."""

from __future__ import annotations

from userrl_core.gyms.tau.demonstrator import TauDemonstrator


class VoiceDemonstrator(TauDemonstrator):
    """A player of one episode."""
