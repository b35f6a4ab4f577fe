"""A tree of processes that cannot be lost: verl's driver, Ray's daemons and all their workers carry one random token.

Ray starts daemons in sessions of their own, so a process group does not hold them. The token lies in the environment that
they all inherit; whoever comes next finds every leftover by it, and a recycled process id never carries it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from userrl_core.bearers import bearers_of
from userrl_core.errors import TrainingError

TOKEN = "USERRL_VERL_TOKEN"
STAGE_ENV = "USERRL_STAGE_ENV"
"""Names, as a JSON list, of the environment variables that every process of the tree must have, wherever it runs."""

LAST_BYTES = 16384
_RAISED = re.compile(r"\b(?:\w+\.)*\w*(?:Error|Exception): \S.*$")


def run_tree(
    command: Sequence[str],
    *,
    folder: Path,
    env: Mapping[str, str],
    stall: float,
    on_tick: Callable[[], None] = lambda: None,
    poll: float = 0.5,
    ray_dir: bool = True,
) -> None:
    """Run a command to its end; every process that it leaves behind is killed, also when this call is interrupted.

    Output is appended to ``folder/output.txt``. on_tick: called every ``poll`` seconds; an exception from it ends the tree.
    stall: seconds without any output after which the tree counts as stuck.
    Raises TrainingError with the last lines when the command fails, is killed, or is stuck.
    """
    folder.mkdir(parents=True, exist_ok=True)
    reap(folder)
    token = secrets.token_hex(8)
    # Sockets lie in it, and their paths may have 107 bytes at most: a short name in the temporary folder.
    temporary = Path(tempfile.gettempdir()) / f"userrl-ray-{token}" if ray_dir else None
    record = folder / "tree.json"
    record.write_text(json.dumps({"token": token, "ray_dir": str(temporary) if temporary else None}))
    environment = {**os.environ, **env, TOKEN: token, STAGE_ENV: json.dumps(sorted([*env, TOKEN]))}
    if temporary is not None:
        environment["USERRL_RAY_DIR"] = str(temporary)
    output = folder / "output.txt"
    with output.open("ab") as file:
        began = file.tell()
        child = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    quiet_since, size = time.monotonic(), began
    try:
        while (status := _wait(child, poll)) is None:
            on_tick()
            now = output.stat().st_size
            if now != size:
                quiet_since, size = time.monotonic(), now
            elif time.monotonic() - quiet_since > stall:
                raise TrainingError(f"verl said nothing for {stall:g} s and was stopped. {last_words(output, began)}")
        on_tick()
    finally:
        reap(folder)
        child.wait()
    if status:
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        raise TrainingError(f"verl {how}. {last_words(output, began)}")


def reap(folder: Path) -> int:
    """Kill what an earlier tree of this folder left behind, and remove its Ray folder; returns how many processes."""
    record = folder / "tree.json"
    try:
        found = json.loads(record.read_text())
        token = str(found["token"])
    except (FileNotFoundError, json.JSONDecodeError, KeyError):
        return 0
    killed = kill_bearers(token)
    if found.get("ray_dir"):
        shutil.rmtree(found["ray_dir"], ignore_errors=True)
    record.unlink(missing_ok=True)
    return killed


def bearers(token: str) -> list[psutil.Process]:
    """Living processes of this user that carry the token; never this one."""
    return bearers_of(TOKEN, token)


def kill_bearers(token: str) -> int:
    """Kill every bearer, and what they start while being killed."""
    killed = 0
    for _ in range(5):
        found = bearers(token)
        if not found:
            break
        killed += len(found)
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, timeout=5.0)
    return killed


def last_words(output: Path, began: int = 0, lines: int = 12) -> str:
    """The sentence that the driver gave, or the last lines that mean something, and where the whole output is."""
    with output.open("rb") as file:
        file.seek(max(began, output.stat().st_size - LAST_BYTES))
        said = [line.rstrip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    sentence = next((line for line in reversed(said) if line.startswith("error: ")), None)
    if sentence is not None:
        return f"{sentence.removeprefix('error: ')} (output: {output})"
    tail = "\n".join(said[-lines:])
    # The exception first: a flow shows one line, and what follows a traceback is often some other process's chatter.
    raised = next((found[0] for line in reversed(said) if (found := _RAISED.search(line))), None)
    where = f"{raised[:300]} (output: {output})." if raised else f"Output: {output}."
    return f"{where} Its last lines:\n{tail}"


def _wait(child: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return child.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
