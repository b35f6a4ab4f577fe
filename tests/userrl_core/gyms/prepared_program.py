"""A program with prepared answers in the place of another Python, and an agent that says the same in every turn."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from userrl_core.gyms import other_python
from userrl_core.interact import InteractCall, render_call
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import PolicyReply

PROGRAM = """#!{python}
import json, os, sys, time
prepared = json.loads({prepared!r})
answer = lambda number, sent: print(json.dumps({{"session": number, **sent}}), flush=True)
answer(0, prepared.get("ready", {{"ready": True}}))
given = {{}}
for line in sys.stdin:
    request = json.loads(line)
    number = request["session"]
    if "rows" in request:
        split, first, count = request["rows"]
        answer(0, {{"rows": prepared[split][first : first + count]}})
    elif len(request) > 1:
        with open({log!r}, "a") as log:
            log.write(json.dumps(request) + chr(10))
        sent = prepared["answers"][given.get(number, 0)]
        given[number] = given.get(number, 0) + 1
        if sent == "exit":
            print("Killed: out of memory", file=sys.stderr, flush=True)
            os._exit(9)
        if isinstance(sent, str):
            sys.stdout.write(eval(sent) + chr(10))
            sys.stdout.flush()
        elif sent is not None:
            answer(number, sent)
"""
Answers = Callable[..., Path]


class Says(ScriptedPolicy):
    """An agent that says the same in every turn. timeout: of the answers to it, where not the gym's."""

    def __init__(self, text: str, timeout: float | None = None) -> None:
        super().__init__(1.0)
        self._text, self._timeout = text, timeout

    def session(self, gym: Any, seed: int) -> Any:
        self._gym = gym
        return self

    async def act(self, new: Any) -> PolicyReply:
        if self._timeout is not None:  # the opening had the gym's
            self._gym.config = self._gym.config.model_copy(update={"timeout": self._timeout})
        return PolicyReply(text=render_call(InteractCall("action", self._text)))


def prepared_program(variable: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    """Give a function that makes the program with these answers, and returns the file of its requests."""

    def install(*sent: Any, **prepared: Any) -> Path:
        program, log = folder / "python", folder / "requests"
        answers = json.dumps({"answers": sent, **prepared})  # JSON, which has NaN and Infinity in Python
        program.write_text(PROGRAM.format(python=sys.executable, prepared=answers, log=str(log)))
        program.chmod(0o755)
        monkeypatch.setenv(variable, str(program))
        return log

    monkeypatch.setattr(other_python, "_RUNNING", running := {})
    yield install
    for started in running.values():
        started._process.kill()
