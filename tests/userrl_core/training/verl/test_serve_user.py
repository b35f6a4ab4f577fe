"""A served model is waited for, brought back when it dies, and stopped with whoever asked for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.makers import raises
from tests.ports import free_port
from userrl_core.served.model_server import ServeOptions, Supervisor, answers, serving

SERVER = Path(__file__).parent / "stand_in.py"


def options(**more: object) -> ServeOptions:
    values = {"command": f"{sys.executable} {SERVER} {{port}}", "every": 0.05, "start_timeout": 120.0, "misses": 2}
    return ServeOptions("some-model", port=free_port(), **{**values, **more})  # type: ignore[arg-type]


def ask(served: ServeOptions, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{served.port}{path}", timeout=30) as reply:
        return str(reply.read().decode())


def until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


def test_a_server_answers_within_the_block_and_is_gone_after_it(tmp_path: Path) -> None:
    served = options()
    with serving(served, tmp_path) as url:
        assert url == f"http://127.0.0.1:{served.port}/v1"
        assert answers(served)
    assert not answers(served)


@pytest.mark.parametrize("how", ["/die", "/fall-ill"])
def test_a_server_that_dies_or_falls_silent_is_brought_back(tmp_path: Path, how: str) -> None:
    served = options()
    said: list[str] = []
    with serving(served, tmp_path, said.append):
        before = ask(served, "/pid")
        try:
            ask(served, how)
        except OSError:
            assert how == "/die"

        def new() -> bool:
            try:
                return ask(served, "/pid") != before
            except OSError:
                return False

        until(new)
    assert any("started again" in text for text in said)


def test_a_server_that_never_answers_is_given_up_with_its_last_lines(tmp_path: Path) -> None:
    served = options(command=f"{sys.executable} -c \"raise SystemExit('no such card')\"", give_up=3)
    supervisor = Supervisor(served, tmp_path, pauses=(0.01, 0.02))
    with raises("model.not_started"):
        supervisor.start()


def test_a_taken_port_and_a_missing_interpreter_are_refused_in_words(tmp_path: Path) -> None:
    served = options()
    with serving(served, tmp_path), raises("server.port_taken"):
        Supervisor(served, tmp_path / "second").start()
    with raises("model.not_started", "--python"):
        Supervisor(options(command="/no/such/python"), tmp_path / "third").start()
    with raises("argument.malformed"):
        options(command="python 'unclosed").argv()


def test_vllms_command_line_names_model_port_sizes_and_the_reader_of_tool_calls() -> None:
    given = ServeOptions("Qwen/Qwen3-32B", port=8001, python="/v/bin/python", tensor_parallel=2, max_model_len=16384)
    argv = given.argv()
    assert argv[:3] == ["/v/bin/python", "-m", "vllm.entrypoints.openai.api_server"]
    assert "--enable-auto-tool-choice" not in argv
    with_tools = replace(given, tool_parser="hermes", extra=("--enforce-eager",)).argv()
    assert with_tools == [*argv, "--tool-call-parser", "hermes", "--enable-auto-tool-choice", "--enforce-eager"]
    pairs = dict(zip(argv[3::2], argv[4::2], strict=True))
    assert pairs["--model"] == pairs["--served-model-name"] == "Qwen/Qwen3-32B"
    assert (pairs["--port"], pairs["--tensor-parallel-size"], pairs["--max-model-len"]) == ("8001", "2", "16384")
    assert replace(given, copies=4).argv()[-4:] == ["--data-parallel-size", "4", "--max-model-len", "16384"]


def test_what_a_killed_supervisor_left_is_cleared_by_the_next(tmp_path: Path) -> None:
    served = options()
    first = Supervisor(served, tmp_path)
    first.start()  # as if its process had been killed: nobody stops it
    left = int(ask(served, "/pid"))
    second = Supervisor(served, tmp_path)
    try:
        second.start()
        assert int(ask(served, "/pid")) != left
    finally:
        second.stop()
        first.stop()


def test_the_command_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    port = free_port()
    command = ["serve-user", "--model", "m", "--port", str(port), "--command", f"{sys.executable} {SERVER} {{port}}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "flows.cli.main", *command],
        env={**os.environ, "USERRL_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    lines: list[str] = []
    assert process.stdout is not None
    out = process.stdout
    reader = threading.Thread(target=lambda: lines.extend(out))
    reader.start()
    served = ServeOptions("m", port=port)
    until(lambda: answers(served))
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0
    reader.join()
    assert not answers(served)
    assert any("base_url" in line for line in lines)
