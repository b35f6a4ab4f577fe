"""Kill -9 at a chosen moment: a child process that kills itself as it is about to rename, open or remove a file."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.places import ROOT

_HOOK = """
import os, signal, sys
event, ending, left, argument = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
def kill(name, values):
    global left
    if name == event and any(str(value).endswith(ending) for value in values):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(kill)
"""

COMPACT = "from pathlib import Path; from warehouse.upkeep.compact import compact; compact(Path(argument))"


def kill_at(event: str, ending: str, root: Path, *, nth: int = 1, code: str = COMPACT) -> None:
    """Run `code` (the folder is its `argument`) until it is about to do `event`, for the nth time, with a value so ending.

    event: one of Python's audit events: os.rename, os.remove, open.
    """
    command = [sys.executable, "-c", _HOOK + code, event, ending, str(nth), str(root)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
