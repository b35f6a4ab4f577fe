"""The deployments of prefect.yaml, and the command that starts one."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

DEPLOYMENT = "train/horizon-fork"
"""The deployment that `make run` starts by default. Its stages are for profile laptop alone."""
ANY_PROFILE = "train/equalized-r2g"
"""The deployment that `make run` starts by default with another profile."""


def default_deployment(parameters: Mapping[str, Any]) -> str:
    """Return the deployment that `make run` starts if none is named."""
    return DEPLOYMENT if parameters.get("profile") in (None, "laptop") else ANY_PROFILE


def deployments() -> dict[str, dict[str, Any]]:
    """Return the parameters of every deployment of prefect.yaml by ``flow/name``. Empty in a folder without prefect.yaml."""
    file = Path("prefect.yaml")
    rows = yaml.safe_load(file.read_text())["deployments"] if file.is_file() else []
    return {f"{row['entrypoint'].rpartition(':')[2]}/{row['name']}": row.get("parameters") or {} for row in rows}


def again(deployment: str, parameters: Mapping[str, Any]) -> str:
    """Return the shell command that starts a deployment with these parameters."""
    other = [] if deployment == default_deployment(parameters) else [f"ARGS='--deployment {deployment}'"]
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in parameters.items()}
    return " ".join(["make run", *other, *(f"{key}={shlex.quote(text)}" for key, text in texts.items())])
