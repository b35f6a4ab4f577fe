"""TauGym's scripted demonstrator: the gold conversation, with useless turns at probability 1 - skill."""

from __future__ import annotations

import json
import random

from userrl_core.gyms.tau.gym import TauConfig, conversation
from userrl_core.gyms.tau.outfitter import tiny
from userrl_core.interact import InteractCall
from userrl_core.records import Task


class TauDemonstrator:
    """A player of one episode. With probability 1 - skill a turn is small talk, a list of tools, or a call with wrong
    arguments.
    """

    def __init__(self, task: Task, rng: random.Random, skill: float, config: TauConfig) -> None:
        self._script, self._rng, self._skill = conversation(task), rng, skill
        self._payload = task.payload
        self._tools = [action["name"] for action in task.payload["actions"]] or ["think"]

    def act(self, observation: str) -> InteractCall:
        """Return the next call of the gold conversation, or a useless one."""
        if self._rng.random() < self._skill:
            # After the end of the script only a goodbye is left.
            return self._script.pop(0) if self._script else InteractCall("action", "Goodbye.")
        if self._payload["domain"] == tiny.DOMAIN:
            return tiny.useless(self._payload, self._rng)
        kind = self._rng.randrange(3)
        if kind == 0:
            return InteractCall("action", self._rng.choice(["Hello.", "One moment, please.", "Thank you for waiting."]))
        if kind == 1:
            return InteractCall("search", self._rng.choice(["tools", "help"]))
        call = {"name": self._rng.choice(self._tools), "arguments": {"id": str(self._rng.randint(1, 999))}}
        return InteractCall("answer", json.dumps(call))
