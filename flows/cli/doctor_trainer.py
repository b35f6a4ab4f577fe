"""``userrl doctor --trainer``: check what verl needs on this machine. Nothing is changed.

The trainer's own interpreter is asked. A check is a row: name, ok, the finding or the remedy, and whether it is fatal.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from curricula import Recipe
from userrl.machine.home import disk, home
from userrl.run.readiness import findings, here, resolve
from userrl.run.request import TrainRequest
from userrl.run.tasks import own_user_url, users_of
from userrl_core.errors import ConfigError, UserRLError
from userrl_core.served.client import ChatServer, shown_address
from userrl_core.served.health import check_server, served_users
from userrl_core.training.shapes import shape_of

DRIVER = 580
"""The first driver that supports CUDA 13, as the torch build of constraints-gpu.txt requires."""
PATIENCE = 900.0
"""Seconds the trainer's interpreter may take. It imports from a cold disk and starts Ray."""
CHECKPOINT_BYTES = 16
"""Bytes per weight: shards of weights and both moments in float32, and the Hugging Face folder in float32."""

Row = tuple[str, bool, str, bool]


def trainer_rows(name: str, profile: str, changes: dict[str, Any]) -> Iterator[Row]:
    """Yield all checks for a recipe under a profile."""
    recipe = resolve(name, profile, changes, check=False)
    hardware = recipe.hardware
    python = hardware.python or sys.executable
    for check, refusal in findings(recipe, here(), backend="verl"):
        yield f"preflight: {check}", refusal is None, "passed" if refusal is None else refusal.sentence, True
    yield _driver(hardware.device)
    yield from _interpreter(recipe, python)
    yield from _users(recipe)
    yield _disk(recipe)


def _driver(device: str) -> Row:
    if device == "cpu":
        return "driver", True, "none needed (hardware.device is cpu)", True
    program = shutil.which("nvidia-smi")
    if program is None:
        text = f"this machine has no GPU, or no NVIDIA driver; on a GPU host install driver {DRIVER} or newer"
        return "driver", False, text, True
    command = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        driver_version = done.stdout.split()[0]
    except (OSError, IndexError, subprocess.SubprocessError) as error:
        return "driver", False, f"nvidia-smi does not answer ({type(error).__name__}); restart the machine", True
    ok = int(driver_version.partition(".")[0]) >= DRIVER
    return (
        "driver",
        ok,
        driver_version + ("" if ok else f"; torch for CUDA 13 needs {DRIVER} or newer, update it"),
        True,
    )


def _interpreter(recipe: Recipe, python: str) -> Iterator[Row]:
    """Check the trainer's interpreter and the packages in it."""
    hardware = recipe.hardware
    request = {
        "model": recipe.model.path,
        "engine": hardware.engine,
        "device": hardware.device,
        "gpus": hardware.gpus,
        "memory": hardware.memory_gb,
        "attention": hardware.attention,
        "sequence_parallel": hardware.sequence_parallel,
        "ray_address": hardware.ray_address,
    }
    command = [python, "-m", "userrl_core.training.verl.machine.probe", json.dumps(request)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except OSError as error:
        text = f"{python} cannot be started ({error.strerror}); correct hardware.python"
        yield "trainer's interpreter", False, text, True
        return
    except subprocess.TimeoutExpired:
        yield "trainer's interpreter", False, f"{python} did not answer within {PATIENCE:g} s; check its disk", True
        return
    if done.returncode:
        last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "no output")
        text = f"{python} cannot import our code ({last.strip()[:160]}); run 'pip install --no-deps -e .' there"
        yield "trainer's interpreter", False, text, True
        return
    yield "trainer's interpreter", True, python, True
    for line in done.stdout.splitlines():
        finding = json.loads(line)
        yield finding["what"], bool(finding["ok"]), str(finding["said"]), True


def _users(recipe: Recipe) -> Iterator[Row]:
    """Check each model that simulates users during training."""
    servers = served_users(users_of(recipe, recipe.training_gyms, role="train"))
    if not servers:
        yield "user server", True, "none needed: all users are rule users", False
    for server in sorted(servers, key=lambda server: (server.model, server.base_url or "")):
        ok, text = _user(recipe, server)
        yield "user server", ok, text, True


def _user(recipe: Recipe, server: ChatServer) -> tuple[bool, str]:
    hardware = recipe.hardware
    if server.base_url is not None and server.base_url == own_user_url(recipe):
        return True, f"{server.model}: the run serves it itself at {server.base_url}, on GPUs {hardware.user_gpus}"
    if server.base_url is None and "OPENAI_BASE_URL" not in os.environ:
        if server.model == hardware.user_model:
            remedy = "set hardware.user_gpus, hardware.user_url or OPENAI_BASE_URL"
            return False, f"{server.model}: its address is not known; {remedy}"
        key = server.api_key_env in os.environ
        return key, f"{server.model}: " + (
            "not called, because a call costs money" if key else f"set {server.api_key_env}"
        )
    try:
        check_server(server, "user model", tries=1)
    except UserRLError as error:
        return False, str(error)
    return True, f"{server.model} answers at {shown_address(server.base_url or os.environ['OPENAI_BASE_URL'])}"


def _disk(recipe: Recipe) -> Row:
    name, weights = "disk for checkpoints", _weights(recipe)
    _, free = disk()
    if weights is None:
        return name, True, f"{free:.0f} GB free at {home()}; the needs of the model are not known", False
    checkpoint_gb = CHECKPOINT_BYTES * weights / 1e9
    count = TrainRequest.model_fields["keep_checkpoints"].default + 2  # the best one, and the one that is being written
    ok = free >= count * checkpoint_gb
    do = "" if ok else "; free some, set USERRL_HOME to a larger disk, or lower keep_checkpoints"
    return (
        name,
        ok,
        f"{free:.0f} of {count * checkpoint_gb:.0f} GB ({count} x {checkpoint_gb:.0f}) free at {home()}{do}",
        False,
    )


def _weights(recipe: Recipe) -> int | None:
    try:
        return shape_of(recipe.model.path).parameters if recipe.model.path else recipe.model.weights
    except ConfigError:
        return None
