"""A supervised model server: vLLM's OpenAI server in its own interpreter, for users, evaluation and distillation.

vLLM and Prefect cannot share an environment, so the server is a separate process reached only over HTTP. The
supervisor waits until it is healthy, restarts it with growing pauses when it dies or stops answering, and stops it
with the caller. Conversations during a pause wait (see `userrl_core.served.health`) or are not scored.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from userrl_core import processes
from userrl_core.errors import ConfigError, UserError

OUTPUT = "server.txt"
"""File of the server's output, in its folder."""

VLLM_PYTHON = "USERRL_VLLM_PYTHON"
"""Environment variable that names vLLM's interpreter."""

PAUSES = (1.0, 60.0)
"""Seconds before the first restart, and the maximum. Each failure in a row doubles the pause."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The model to serve and the server's options.

    command: another server instead of vLLM; ``{port}`` in it becomes the port. python: vLLM's interpreter.
    start_timeout: seconds until the first healthy answer. give_up: failed starts in a row before the supervisor gives
    up. tool_parser: vLLM's parser for tool calls in the model's text, such as hermes (the Qwen models). Without it
    vLLM answers requests with tools by 400. extra: more arguments for vLLM. gpus: CUDA_VISIBLE_DEVICES of the server.
    tensor_parallel: GPUs per copy. copies: number of copies behind the one address.
    """

    model: str
    port: int = 8000
    host: str = "127.0.0.1"
    python: str = "python3"
    tensor_parallel: int = 1
    copies: int = 1
    max_model_len: int | None = None
    memory: float = 0.9
    gpus: str | None = None
    tool_parser: str | None = None
    extra: tuple[str, ...] = ()
    command: str | None = None
    health: str = "/health"
    start_timeout: float = 900.0
    give_up: int = 5
    every: float = 5.0
    misses: int = 3

    @property
    def base_url(self) -> str:
        """Return the URL for clients."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host
        return f"http://{host}:{self.port}/v1"

    def argv(self) -> list[str]:
        """Return the server's command line. Raises ConfigError for a command that cannot be read."""
        if self.command is not None:
            try:
                return [part.replace("{port}", str(self.port)) for part in shlex.split(self.command)]
            except ValueError as error:
                raise ConfigError(
                    "argument.malformed", f"The command '{self.command}' cannot be read: {error}."
                ) from error
        flags = [part for flag, value, _ in self.flags() for part in (flag, value) if part is not None]
        return [self.python, "-m", "vllm.entrypoints.openai.api_server", *flags, *self.extra]

    def flags(self) -> list[tuple[str, str | None, str]]:
        """Return vLLM's arguments: flag, value, and reason."""
        flags: list[tuple[str, str | None, str]] = [
            ("--model", self.model, "hardware.user_model, or --model"),
            ("--served-model-name", self.model, "clients use the recipe's name for the model"),
            ("--host", self.host, "loopback only: our own server is in front of it where others have access"),
            ("--port", str(self.port), "hardware.user_port, or --port"),
            ("--allowed-origins", "[]", "otherwise any page open in a browser here could send requests"),
            ("--tensor-parallel-size", str(self.tensor_parallel), "GPUs per copy: as few as hold model and cache"),
            ("--gpu-memory-utilization", str(self.memory), "nothing else runs on these GPUs"),
        ]
        if self.copies > 1:
            flags.append(("--data-parallel-size", str(self.copies), "copies do not wait for each other"))
        if self.max_model_len is not None:
            flags.append(
                ("--max-model-len", str(self.max_model_len), "--max-model-len: a shorter limit leaves more cache")
            )
        if self.tool_parser is not None:
            flags.append(("--tool-call-parser", self.tool_parser, "--tool-parser: the model's format of calls"))
            flags.append(("--enable-auto-tool-choice", None, "the model may call tools, as in training"))
        return flags


@dataclass(slots=True)
class Supervisor:
    """A supervisor that keeps one server alive. `start`, then `watch` (blocking) or `serving`; `stop` from any thread."""

    options: ServeOptions
    folder: Path
    say: Callable[[str], None] = field(default=lambda text: None)
    pauses: tuple[float, float] = PAUSES
    restarts: int = 0
    _child: processes.Child | None = None
    _stopped: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Start the server and wait until it answers, retrying as `options` allow.

        Raises ConfigError when the port is taken or the command does not exist, UserError when no start succeeds.
        """
        processes.reap(self.folder)
        if answers(self.options):
            raise ConfigError(
                "server.port_taken",
                f"Another server answers on port {self.options.port}. Use it by its address, or give another --port.",
            )
        self._until_healthy()

    def watch(self) -> None:
        """Keep the server alive until `stop`. Raises UserError when it cannot be restarted."""
        missed = 0
        while not self._stopped.wait(self.options.every):
            status = self._child.process.poll() if self._child is not None else None
            dead = self._child is None or status is not None
            missed = 0 if not dead and answers(self.options) else missed + 1
            if not dead and missed < self.options.misses:
                continue
            why = f"ended with status {status}" if dead else "stopped answering"
            self.say(f"the server {why}; it is started again")
            self._end_child()
            missed = 0
            self.restarts += 1
            self._until_healthy()

    def stop(self) -> None:
        """Stop the server and the watch; safe to call twice."""
        self._stopped.set()
        self._end_child()

    def _until_healthy(self) -> None:
        pause = self.pauses[0]
        for start in range(1, self.options.give_up + 1):
            if self._launch():
                return
            self._end_child()  # also when told to stop: it was started after `stop` looked for it
            if self._stopped.is_set():
                return
            if start < self.options.give_up:
                self.say(f"start {start} of {self.options.give_up} failed; next one in {pause:g} s")
                self._stopped.wait(pause)
                pause = min(2 * pause, self.pauses[1])
        raise UserError(
            "model.not_started",
            f"The server for {self.options.model} did not become healthy in {self.options.give_up} starts. "
            f"{processes.last_words(self.folder / OUTPUT, count=5)}",
        )

    def _launch(self) -> bool:
        argv, gpus = self.options.argv(), self.options.gpus
        env = {} if gpus is None else {"CUDA_VISIBLE_DEVICES": gpus}
        try:
            # Whoever serves here next finds this server by its tag, even if this supervisor is killed.
            child = self._child = processes.start(argv, self.folder, output=OUTPUT, env=env)
        except OSError as error:
            raise ConfigError(
                "model.not_started",
                f"The server cannot be started ({argv[0]}: {error.strerror}). Give vLLM's interpreter with --python.",
            ) from error
        deadline = time.monotonic() + self.options.start_timeout
        while time.monotonic() < deadline and child.process.poll() is None and not self._stopped.is_set():
            if answers(self.options):
                self.say(f"{self.options.model} answers at {self.options.base_url}")
                return True
            self._stopped.wait(min(self.options.every, 0.2))
        return False

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.stop(grace=10.0)


def answers(options: ServeOptions, timeout: float = 5.0) -> bool:
    """Return True if a server on that port reports that it is healthy."""
    url = options.base_url.removesuffix("/v1") + options.health
    try:
        return bool(httpx2.get(url, timeout=timeout, trust_env=False, follow_redirects=True).is_success)
    except (httpx2.HTTPError, httpx2.InvalidURL):
        return False


@contextlib.contextmanager
def serving(options: ServeOptions, folder: Path, say: Callable[[str], None] = lambda text: None) -> Iterator[str]:
    """Serve a model while the block runs; yields its base URL. A thread watches the server.

    A server that cannot be restarted does not end the block. Its clients see that it is down and report it.
    """
    supervisor = Supervisor(options, folder, say)
    supervisor.start()

    def watch() -> None:
        try:
            supervisor.watch()
        except UserError as error:
            say(str(error))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield options.base_url
    finally:
        supervisor.stop()
        thread.join(timeout=30.0)


def default_python() -> str:
    """Return vLLM's interpreter: ``$USERRL_VLLM_PYTHON``, else this one."""
    return os.environ.get(VLLM_PYTHON) or sys.executable


def free_port() -> int:
    """Return a port of the loopback address that nothing uses now."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return int(unused.getsockname()[1])
