"""An environment's process: ``USERRL_VERIFIERS_PYTHON`` is the Python that has verifiers and the environment,
``USERRL_VERIFIERS_FOLDER`` a folder with environments that are not installed. Both belong to the machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from userrl_core.errors import UserError
from userrl_core.gyms import other_python
from userrl_core.gyms.other_python import Program

PYTHON, FOLDER = "USERRL_VERIFIERS_PYTHON", "USERRL_VERIFIERS_FOLDER"


def missing() -> str:
    """Return what this machine lacks, in one sentence; "" if an environment can be started."""
    return other_python.missing("verifiers", PYTHON, "verifiers<0.4")


def running(identifier: str, arguments: Mapping[str, Any]) -> Program:
    """Return the process of an environment, started if necessary. Raises UserError if the environment does not load."""
    if sentence := missing():
        raise UserError("gym.not_installed", sentence)
    folder = os.environ.get(FOLDER, "")
    return other_python.running(
        f"environment '{identifier}'",
        os.environ[PYTHON],
        Path(__file__).with_name("rollouts.py"),
        identifier,
        json.dumps(arguments, sort_keys=True),
        folder and str(Path(folder).resolve()),
    )
