"""Where `userrl view` shows what: other commands and the run's artifact name it, whether or not it is being served just now."""

from __future__ import annotations

PORT = 4312
"""Unless --port says otherwise."""


def run_address(run_id: str) -> str:
    """The page of a run."""
    return f"http://127.0.0.1:{PORT}/run/{run_id}"


def trajectory_address(traj_id: int) -> str:
    """The page of a conversation."""
    return f"http://127.0.0.1:{PORT}/trajectory/{traj_id}"
