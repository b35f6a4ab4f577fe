"""Addresses of `userrl view`, named by other commands and the run's artifact, whether or not the page is being served."""

from __future__ import annotations

import importlib.util

INSTALL_PAGE = "pip install -c constraints.txt -e '.[view]'"
"""The command that installs the page in a checkout. `make run` does not need the page, and leaves it out."""
PORT = 4312
"""The default of --port."""


def run_address(run_id: str) -> str:
    """Return the page of a run."""
    return f"http://127.0.0.1:{PORT}/run/{run_id}"


def trajectory_address(traj_id: int) -> str:
    """Return the page of a conversation."""
    return f"http://127.0.0.1:{PORT}/trajectory/{traj_id}"


def page_installed() -> bool:
    """Return whether this environment has the packages of the page."""
    return importlib.util.find_spec("nicegui") is not None
