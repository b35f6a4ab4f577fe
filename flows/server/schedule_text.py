"""A schedule of Prefect's in words, for commands that list schedules."""

from __future__ import annotations

from typing import Any


def when(schedule: Any) -> str:
    """Format a schedule as ``0 1 * * * UTC``, or in its own words."""
    cron = getattr(schedule, "cron", None)
    return f"{cron} {schedule.timezone or 'UTC'}" if cron else str(schedule)
