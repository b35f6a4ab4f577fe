"""What a sweep asks of the place where its trials run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Status = Literal["running", "completed", "failed", "cancelled"]
"""cancelled: a person stopped it, or the driver did."""


@dataclass(frozen=True, slots=True)
class StartedTrial:
    """A run on its way. handle: what the launcher needs to find it again after a restart of the driver."""

    handle: str
    run_id: str


class Launcher(Protocol):
    """Starts runs of a recipe somewhere: child processes of this machine, or flow runs that any worker may take."""

    def start(self, overrides: Mapping[str, Any], *, seed: int, label: str, shown: str) -> StartedTrial:
        """Start (or continue) the run of this configuration and return at once.

        label: names this start of this trial of this sweep for ever; starting one label twice is starting it once.
        shown: the name that people see, after the trial's parameters.
        Raises ConfigError when the recipe refuses the overrides.
        """
        ...

    def status(self, handle: str) -> Status:
        """Where it stands; an unknown handle has failed. A server that is away for a while changes nothing: running."""
        ...

    def cancel(self, handle: str) -> None:
        """Stop it within its grace; it leaves a checkpoint. Harmless when it has ended."""
        ...

    def gpu_hours(self, run_id: str) -> float:
        """Trainer hours times accelerators that the run has used so far, killed starts and the running stage included."""
        ...
