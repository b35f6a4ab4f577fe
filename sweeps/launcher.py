"""The sweep's interface to the place where its trials run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Status = Literal["running", "completed", "failed", "cancelled"]
"""cancelled: by a person or by the driver."""


@dataclass(frozen=True, slots=True)
class StartedTrial:
    """A started run. handle: the launcher's key to find it again after a restart of the driver."""

    handle: str
    run_id: str


class StartedRuns(Protocol):
    """The runs that were started somewhere, by their handles."""

    def status(self, handle: str) -> Status:
        """Return the status. An unknown handle has failed. A run on a temporarily unreachable server counts as running."""

    def cancel(self, handle: str) -> None:
        """Stop the run within its grace period; it leaves a checkpoint. Harmless after its end."""


class Launcher(StartedRuns, Protocol):
    """Starts runs of a recipe somewhere: child processes of this machine, or flow runs for any worker."""

    def start(self, overrides: Mapping[str, Any], *, seed: int, label: str, display_name: str) -> StartedTrial:
        """Start (or continue) the run of this configuration and return at once.

        label: permanent name of this start of this trial of this sweep; a repeated label starts nothing new.
        display_name: the displayed name, after the trial's parameters.
        Raises ConfigError if the recipe refuses the overrides.
        """

    def gpu_hours(self, run_id: str) -> float:
        """Return the run's trainer hours times accelerators so far, with killed starts and the running stage."""
