"""Environments of verifiers have no scripted demonstrator."""

from __future__ import annotations

from userrl_core.gyms.other_python import UnscriptedDemonstrator


class VerifiersDemonstrator(UnscriptedDemonstrator):
    """A player that says what to use in its place."""
