"""Where state lies, and the environment in which every process of ours runs.

Imported before Prefect, so that a flow called as a plain Python function finds a server or makes a temporary one.
"""

from __future__ import annotations

import logging
import os
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

from flows.machine.password import (
    CLIENT,
    SERVER,
    dotenv_url,
    is_loopback,
    listens,
    locked,
    made,
    own_password,
    password,
    password_file,
)
from userrl_core.errors import ConfigError, UserRLError

QUIET: Mapping[str, str] = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
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
"""Nothing phones home, and OpenMP threads sleep when idle (spinning ones make two-thread decoding erratic)."""


def home() -> Path:
    """``$USERRL_HOME``, or ``.userrl`` in the working directory; absolute."""
    return Path(os.environ.get("USERRL_HOME") or ".userrl").resolve()


def in_this_home(run_folder: Path, written: Path) -> Path:
    """A path below a run's folder, as it was written: in a home that was moved or copied it lies below the folder that is open."""
    _, found, below = str(written).partition(f"/runs/{run_folder.name}/")
    here = run_folder / below
    return here if found and here.exists() else written


def check_writable(*folders: Path) -> None:
    """Make the folders. Raises ConfigError where nothing can be written to one of them."""
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise ConfigError(
                f"Nothing can be written to {folder} ({error.strerror}); make it writable, or set USERRL_HOME to another folder."
            ) from None


def warehouse_dir() -> Path:
    """The warehouse of this home."""
    return home() / "warehouse"


def runs_dir() -> Path:
    """One folder per run: its stages, checkpoints, log and report."""
    return home() / "runs"


def imported_tasks(gym: str) -> Path:
    """The file of a gym's published tasks that `userrl tasks import` brought into this home."""
    return home() / "tasks" / gym / "published.jsonl"


def published_data() -> Path:
    """The folder of published data: ``$USERRL_PUBLISHED_DATA``, or ``data`` in this home, there or not; absolute."""
    variable = os.environ.get("USERRL_PUBLISHED_DATA")
    return Path(variable).expanduser().resolve() if variable else home() / "data"


def quiet(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment with the quiet settings filled in; what the caller set stays."""
    return {**QUIET, **(os.environ if environment is None else environment)}


def settle() -> None:
    """Apply the quiet settings to this process, and let Prefect use a temporary server where none listens.

    Call before Prefect is imported. A worker and `prefect deploy` set PREFECT_API_URL themselves; it stays. A server of this
    machine is spoken to with this home's password unless another was chosen, a temporary one has a password of its own.
    """
    for key, value in QUIET.items():
        os.environ.setdefault(key, value)
    os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
    noted, configured = dotenv_url(home()), configured_url()
    places = [place for place in (noted, configured) if place]
    url = next((place for place in places if listens(place)), None)
    if "PREFECT_API_URL" not in os.environ and places and (url is None or url != (noted or configured)):
        os.environ["PREFECT_API_URL"] = url or ""  # an empty URL means a temporary server
    _log_in(os.environ.get("PREFECT_API_URL", url))
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        logging.getLogger(name).addFilter(_one_sentence)
    if temporary_server():
        # With an empty URL Prefect finds no place to send events to, and says so with a traceback each time.
        for name in ("prefect.events.utilities", "prefect._internal.concurrency"):
            logging.getLogger(name).addFilter(_silent)


def temporary_server() -> bool:
    """Whether flows of this process run on a server of their own that ends with them."""
    return os.environ.get("PREFECT_API_URL") == ""


def configured_url() -> str | None:
    """The server that prefect.toml in the working directory names."""
    file = Path("prefect.toml")
    if not file.is_file():
        return None
    value = tomllib.loads(file.read_text()).get("api", {}).get("url")
    return str(value) if value else None


def _log_in(url: str | None) -> None:
    if temporary_server():
        if not {CLIENT, SERVER} <= os.environ.keys():
            os.environ.update(locked(made()))
    elif url and is_loopback(url) and not own_password() and password_file(home()).is_file():
        os.environ[CLIENT] = password(home())


def _one_sentence(record: logging.LogRecord) -> bool:
    """An error that is a sentence for a person needs no stack beside it."""
    if record.exc_info and isinstance(record.exc_info[1], UserRLError):
        record.exc_info = None
    return True


def _silent(record: logging.LogRecord) -> bool:
    """A filter, since Prefect resets levels when it sets up its logging."""
    return False
