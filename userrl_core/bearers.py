"""Finding processes by a random token in their environment, which no recycled process id can carry."""

from __future__ import annotations

import os

import psutil


def bearers_of(variable: str, token: str) -> list[psutil.Process]:
    """Living processes of this user whose environment variable holds the token; never this one, and none that has ended."""
    found = []
    for process in psutil.process_iter():
        try:
            carries = process.pid != os.getpid() and process.environ().get(variable) == token
            if carries and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue  # gone meanwhile, or another user's
    return found
