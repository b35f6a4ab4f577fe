"""The folders of our state, and the environment of all our processes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from userrl_core.errors import ConfigError
from userrl_core.user_path import user_path

QUIET: Mapping[str, str] = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PYDANTIC_DISABLE_PLUGINS": "__all__",
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "0",
}
"""Settings that prevent network reports and make idle OpenMP threads sleep. Spinning ones make two-thread decoding erratic.
Pydantic's plugins report to a service, and looking for them among all installed packages takes longer than a model's class.
"""


def home() -> Path:
    """Return ``$USERRL_HOME``, or ``.userrl`` in the working directory, as an absolute path.

    Raises ConfigError if something other than a folder is there.
    """
    named = Path(os.environ.get("USERRL_HOME") or ".userrl")
    try:
        path = named.resolve()
    except RuntimeError:
        raise ConfigError(
            "file.unreadable",
            f"The home {named} is not a folder but a loop of links. Set USERRL_HOME to a folder, or to a new path.",
        ) from None
    if not path.is_dir() and os.path.lexists(path):
        raise ConfigError(
            "file.unreadable", f"The home {path} is not a folder. Set USERRL_HOME to a folder, or to a new path."
        )
    return path


def in_this_home(run_folder: Path, written: Path) -> Path:
    """Return a stored path below a run's folder, as it is in the open home. The home may have been moved or copied since."""
    _, marker, below = str(written).partition(f"/runs/{run_folder.name}/")
    moved = run_folder / below
    return moved if marker and moved.exists() else written


def relocated(values: Any, run_folder: Path) -> Any:
    """Return a run's JSON with all paths below the run's folder as they are in the open home."""
    if isinstance(values, dict):
        return {relocated(key, run_folder): relocated(value, run_folder) for key, value in values.items()}
    if isinstance(values, list):
        return [relocated(value, run_folder) for value in values]
    if not isinstance(values, str) or not values.startswith("/"):
        return values
    _, marker, below = values.partition(f"/runs/{run_folder.name}/")
    return str(run_folder / below) if marker else values


def in_home_of(runs: Path, written: str) -> str:
    """Return a stored path below any run's folder. In a home that was moved since, it is below ``runs``."""
    _, marker, below = written.rpartition("/runs/")
    return str(runs / below) if marker and (runs / below.partition("/")[0]).is_dir() else written


def check_writable(*folders: Path) -> None:
    """Create the folders. Raises ConfigError if one of them is not writable."""
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise ConfigError(
                "file.not_writable",
                f"Nothing can be written to {folder} ({error.strerror}). Make it writable, or set USERRL_HOME "
                "to another folder.",
            ) from None


def disk() -> tuple[Path, float]:
    """Return the nearest folder of the home that exists, and the GB free there."""
    folder = next(folder for folder in (home(), *home().parents) if folder.exists())
    return folder, shutil.disk_usage(folder).free / 1e9


def warehouse_dir() -> Path:
    """Return the warehouse of this home."""
    return home() / "warehouse"


def runs_dir() -> Path:
    """Return the folder with one folder per run: its stages, checkpoints, log and report."""
    return home() / "runs"


def imported_tasks(gym: str) -> Path:
    """Return the file of a gym's published tasks that `userrl tasks import` wrote in this home."""
    return home() / "tasks" / gym / "published.jsonl"


def published_data() -> Path:
    """Return the absolute path of published data: ``$USERRL_PUBLISHED_DATA``, or ``data`` in this home. It may not exist."""
    variable = os.environ.get("USERRL_PUBLISHED_DATA")
    return user_path(variable).resolve() if variable else home() / "data"


def number_in_environment(variable: str, default: int, least: int, most: int) -> int:
    """Return the whole number in an environment variable, or the default where it is unset or empty. Raises ConfigError."""
    text = os.environ.get(variable)
    if not text:
        return default
    if not text.strip().isdecimal() or len(text) > 9 or not least <= int(text) <= most:
        raise ConfigError(
            "argument.out_of_range", f"{variable} must be a whole number from {least} to {most}, not {text[:80]!a}."
        )
    return int(text)


def quiet(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment with the quiet settings. Values of the caller are kept."""
    return {**QUIET, **(os.environ if environment is None else environment)}


def quiet_process() -> None:
    """Apply the quiet settings to this process. Values of the caller are kept."""
    for key, value in QUIET.items():
        os.environ.setdefault(key, value)
