"""Addresses of `userrl view`, named by other commands and the run's artifact, whether or not the page is being served."""

from __future__ import annotations

PORT = 4312
"""The default of --port."""


def run_address(run_id: str) -> str:
    """Return the page of a run."""
    return f"http://127.0.0.1:{PORT}/run/{run_id}"


def trajectory_address(traj_id: int) -> str:
    """Return the page of a conversation."""
    return f"http://127.0.0.1:{PORT}/trajectory/{traj_id}"
