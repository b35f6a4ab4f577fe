"""Where state lies, and the environment in which every process of ours runs.

Imported before Prefect, so that a flow called as a plain Python function finds a server or makes a temporary one.
"""

from __future__ import annotations

import logging
import os
import socket
import tomllib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

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


def warehouse_dir() -> Path:
    """The warehouse of this home."""
    return home() / "warehouse"


def runs_dir() -> Path:
    """One folder per run: its stages, checkpoints, log and report."""
    return home() / "runs"


def imported_tasks(gym: str) -> Path:
    """The file of a gym's published tasks that `userrl tasks import` brought into this home."""
    return home() / "tasks" / gym / "published.jsonl"


def quiet(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment with the quiet settings filled in; what the caller set stays."""
    return {**QUIET, **(os.environ if environment is None else environment)}


def settle() -> None:
    """Apply the quiet settings to this process, and let Prefect use a temporary server where none listens.

    Call before Prefect is imported. A worker and `prefect deploy` set PREFECT_API_URL themselves; then nothing changes.
    """
    for key, value in QUIET.items():
        os.environ.setdefault(key, value)
    os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
    url = configured_url()
    if "PREFECT_API_URL" not in os.environ and url is not None and not _listens(url):
        os.environ["PREFECT_API_URL"] = ""  # an empty URL means a temporary server
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


def _listens(url: str) -> bool:
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 80), timeout=1.0):
            return True
    except OSError:
        return False


def _silent(record: logging.LogRecord) -> bool:
    """A filter, since Prefect resets levels when it sets up its logging."""
    return False
