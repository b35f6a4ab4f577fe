"""VoiceGym's scripted demonstrator: TauGym's."""

from __future__ import annotations

from userrl_core.gyms.tau.demonstrator import TauDemonstrator


class VoiceDemonstrator(TauDemonstrator):
    """Plays one episode."""
