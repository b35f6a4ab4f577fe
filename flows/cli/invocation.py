"""Which deployments there are, and the command by which a person starts one."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

DEPLOYMENT = "train/horizon-fork"
"""What `make run` runs unless told otherwise."""


def deployments() -> list[str]:
    """``flow/name`` of everything in prefect.yaml; nothing in a folder without one."""
    file = Path("prefect.yaml")
    rows = yaml.safe_load(file.read_text())["deployments"] if file.is_file() else []
    return [f"{row['entrypoint'].rpartition(':')[2]}/{row['name']}" for row in rows]


def again(deployment: str, parameters: Mapping[str, Any]) -> str:
    """The command that starts a deployment with these parameters, quoted for a shell."""
    other = [] if deployment == DEPLOYMENT else [f"ARGS='--deployment {deployment}'"]
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in parameters.items()}
    return " ".join(["make run", *other, *(f"{key}={shlex.quote(text)}" for key, text in texts.items())])
