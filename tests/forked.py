"""An interpreter whose processes are forked from one that has imported verl: a start of verl has eight, of 11 CPU-seconds each.

`interpreter` gives the path of a program that takes Python's place, as a recipe's ``hardware.python``. What it is asked to run, it
has run by a fork of the prepared process, with its own arguments, environment, folder and open files. Ray and torchrun start
their processes with the interpreter that they run in, so theirs are forked too. The program waits for its fork: each ends when
the other does. `test_verl_algorithms.py` and `test_doctor_trainer.py` start everything in the ordinary way.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import importlib
import json
import os
import runpy
import secrets
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from tests.fork_end import end_after
from tests.places import ROOT
from userrl_core.fork_server import ROOM, write_tag
from userrl_core.processes import TAGS

PREPARED = (
    "tensordict",
    "transformers.models.auto.modeling_auto",
    "transformers.models.qwen3.modeling_qwen3",
    "torch.distributed.fsdp",
    "torch.distributed.run",
    "accelerate",
    "datasets",
    "peft",
    "torchdata.stateful_dataloader",
    "fastapi",
    "hydra",
)
"""What verl imports. It is imported in each process itself, with our plugin, as Ray is: Ray's library reads the environment."""

HIDDEN = ("boto3", "scipy", "sklearn")
"""What `cpu.py` hides from transformers."""

WORKER = "setup_worker.py"
"""Ray's program that settles a worker's environment before it starts the worker."""

OURS = ("userrl_core.training.verl.main", "torch.distributed.run", "verl.trainer.sft_trainer", WORKER)
"""The ends of what is forked."""

HARMLESS = "jemalloc_bg_thd"
"""A thread of pyarrow's allocator, which frees memory and prepares itself for forks."""

MOST = 1 << 20
STATUS = struct.Struct("i")
PROGRAM = """#!{python} -IS
import json, os, signal, socket, struct, sys
if not any(word.endswith({ours!r}) for word in sys.argv[1:4]):  # Ray's agents look for their parent
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
places = [int(name) for name in os.listdir("/proc/self/fd")]
places = [place for place in places if os.path.exists(f"/proc/self/fd/{{place}}")]
link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
link.connect({address!r})
asked = {{"words": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd(), "places": places}}
socket.send_fds(link, [json.dumps(asked).encode()], places)
for place in places:
    if place > 2:
        os.close(place)
status = link.recv(4)
if not status:
    os.kill(os.getpid(), signal.SIGKILL)
os._exit(struct.unpack("i", status)[0])
"""
"""Python without site-packages starts in a fiftieth of a second."""


@contextlib.contextmanager
def interpreter(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """The path of the program. environment: what the imports of verl read."""
    address = f"\0userrl-{secrets.token_hex(8)}"  # in no folder: a path may have 107 bytes
    program = folder / "python"
    program.write_text(PROGRAM.format(python=sys.executable, address=address, ours=OURS))
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(address)
        listening.listen(64)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked", str(listening.fileno()), str(program)],
            cwd=ROOT,
            env={**os.environ, **environment, TAGS: ROOM, "OPENBLAS_NUM_THREADS": "1"},
            pass_fds=[listening.fileno()],
            stdin=subprocess.DEVNULL,
        )
    try:
        yield str(program)
    finally:
        process.kill()
        process.wait()


def serve(listening: socket.socket, program: str) -> None:
    """Fork for everyone who asks."""
    sys.executable = program
    sys.modules.update(dict.fromkeys(HIDDEN))  # type: ignore[arg-type]
    for module in PREPARED:
        importlib.import_module(module)
    for name in HIDDEN:
        del sys.modules[name]
    assert not any(name in sys.modules for name in ("ray", "verl"))
    names = [(thread / "comm").read_text().strip() for thread in Path("/proc/self/task").iterdir()]
    if len([name for name in names if name != HARMLESS]) > 1:
        raise RuntimeError(f"the prepared process has the threads {names}, which its forks would lack")
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        link, _ = listening.accept()
        data, descriptors, _, _ = socket.recv_fds(link, MOST, 64)
        if data and os.fork() == 0:
            listening.close()
            _become(link, json.loads(data), descriptors)
        link.close()
        for descriptor in descriptors:
            os.close(descriptor)


def _become(link: socket.socket, asked: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """Be the process that was asked for, to its end."""

    def work() -> None:
        nonlocal link
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        link = _place(link, descriptors, asked["places"])
        os.chdir(asked["folder"])
        os.environ.clear()
        os.environ.update(asked["environment"])
        if (tag := os.environ.get(TAGS, ROOM).split()[-1]) != ROOM:
            write_tag(tag)
        threading.Thread(target=_end_with, args=(link,), daemon=True).start()
        _run(asked["words"])

    end_after(work, lambda code: link.send(STATUS.pack(code)) and None)


def _end_with(link: socket.socket) -> None:
    """End this process with the one that asked for it."""
    with contextlib.suppress(OSError):
        link.recv(1)
    os.kill(os.getpid(), signal.SIGKILL)


def _place(link: socket.socket, descriptors: list[int], places: list[int]) -> socket.socket:
    """Give each descriptor its number, by way of numbers that none of them has. Return the link, which has moved too."""
    free = max([*places, 2]) + 1
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, free) for descriptor in descriptors]
    own = socket.socket(fileno=fcntl.fcntl(link.fileno(), fcntl.F_DUPFD_CLOEXEC, free))
    link.close()
    for descriptor in descriptors:
        os.close(descriptor)
    for descriptor, place in zip(moved, places, strict=True):
        os.dup2(descriptor, place)
        os.close(descriptor)
    return own


def _run(words: list[str]) -> None:
    """Run what Python's command line names."""
    while words[0] in ("-u", "-B"):
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(write_through=True)  # type: ignore[union-attr]
        words = words[1:]
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102  the program of ``python -c``
    else:
        words = _worker(words) if words[0].endswith(WORKER) else words
        sys.argv = words
        sys.path[0] = str(Path(words[0]).resolve().parent)
        runpy.run_path(words[0], run_name="__main__")


def _worker(words: list[str]) -> list[str]:
    """Take over the environment of a Ray worker, and return the words that start it. Ray would start one more process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--serialized-runtime-env-context", default="{}")
    parser.add_argument("--language")
    given, rest = parser.parse_known_args(words[1:])
    os.environ.update(json.loads(given.serialized_runtime_env_context).get("env_vars", {}))
    return rest


if __name__ == "__main__":
    from tests import forked

    forked.serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
