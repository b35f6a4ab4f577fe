"""The deployments of prefect.yaml, and the command that starts one."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from curricula.yaml_files import read
from userrl_core.errors import ConfigError

DEFAULT_DEPLOYMENTS = {"laptop": "train/horizon-fork", "laptop-lm": "train/scaling-inter"}
"""The deployment that `make run` starts by default, by profile. Its stages are made for that profile."""
ANY_PROFILE = "train/equalized-r2g"
"""The deployment that `make run` starts by default with another profile."""


def default_deployment(parameters: Mapping[str, Any]) -> str:
    """Return the deployment that `make run` starts if none is named."""
    return DEFAULT_DEPLOYMENTS.get(str(parameters.get("profile") or "laptop"), ANY_PROFILE)


def deployments() -> dict[str, dict[str, Any]]:
    """Return the parameters of every deployment of prefect.yaml by ``flow/name``. Empty in a folder without prefect.yaml.

    Raises ConfigError for a file that is not readable.
    """
    file = Path("prefect.yaml")
    rows = read(file).get("deployments") if file.is_file() else []
    if not isinstance(rows, list) or not all(
        isinstance(row, Mapping) and {"name", "entrypoint"} <= {*row} for row in rows
    ):
        raise ConfigError("file.unreadable", f"{file} has no list of deployments with name and entrypoint.")
    return {f"{str(row['entrypoint']).rpartition(':')[2]}/{row['name']}": row.get("parameters") or {} for row in rows}


def again(deployment: str, parameters: Mapping[str, Any]) -> str:
    """Return the shell command that starts a deployment with these parameters."""
    other = (
        []
        if deployment == default_deployment(parameters)
        else [f"ARGS={shlex.quote(f'--deployment {shlex.quote(deployment)}')}"]
    )
    return " ".join(["make run", *other, *(f"{key}={shlex.quote(_word(value))}" for key, value in parameters.items())])


def _word(value: Any) -> str:
    """Return a value as make hands it to `make run`, which reads JSON, and other words as text."""
    text = json.dumps(value)
    if isinstance(value, str) and value.isprintable() and value == value.strip() and value[:1] not in ("{", "["):
        try:
            json.loads(value)
        except ValueError:
            text = value
    return text.replace("$", "$$")  # make expands a single one


def next_call(ctx: typer.Context, **changed: int | None) -> str:
    """Return the running command with the options that were passed, for a shell. changed: other values; None: left out."""
    words = ["userrl", str(ctx.info_name)]
    for option in ctx.command.params:
        name = str(option.name)
        source = ctx.get_parameter_source(name)
        is_passed = source is not None and source.name == "COMMANDLINE"
        value = changed.get(name, ctx.params.get(name) if is_passed else None)
        if value is not None:
            words += [*option.opts[: option.param_type_name == "option"], str(value)]
    return shlex.join(words)
