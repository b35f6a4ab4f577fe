"""Tests of the verl backend."""

import os

if os.environ.get("VERL_PLATFORM") == "cpu":
    # In verl's own processes: whatever of these tests a worker imports first, the platform below is registered before anything
    # else that verl loads from outside asks for it.
    import verl  # noqa: F401
