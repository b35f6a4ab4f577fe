"""Environments on OpenEnv servers. An action is checked against the server's JSON schema before it is sent.

The score is the sum of the rewards. A turn without a reward earns 0; an episode that ends without any is not scored. An error
of the server, a missing answer or a reward that is not a finite number gives a null reward.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, SchemaError, ValidationError
from jsonschema.exceptions import best_match
from referencing import Registry

from userrl_core.errors import UserError, first_line, in_one_line
from userrl_core.gyms import other_python
from userrl_core.gyms.base import Gym, GymConfig, Reply
from userrl_core.gyms.other_python import Program, is_number, result
from userrl_core.records import Task

PYTHON = "USERRL_OPENENV_PYTHON"
NOT_SHOWN = ("metadata", "done", "reward")
"""Fields of every OpenEnv action or observation that are no part of its content."""
_TURN = itertools.count()


class OpenEnvConfig(GymConfig):
    """Servers of the environment."""

    servers: tuple[str, ...] = ("http://127.0.0.1:8000",)
    """Addresses of replicas of one environment, which take turns."""

    text: str = ""
    """Field of the observation that the agent sees. "" shows the only field, or all of them as JSON."""

    timeout: float = 60.0
    """Seconds that the server may take for one answer."""

    solved: float = 1.0
    """Score from which a conversation is a success."""


class OpenEnvGym(Gym[OpenEnvConfig]):
    """One episode on a server."""

    name = "openenv"
    config_type = OpenEnvConfig
    reward_range = (-1.0, 1.0)
    metric = "Reward"
    success_rule = "a sum of rewards of `solved` or more"
    goal = "Reach what the first observation asks for."
    elsewhere = True
    irreproducible = "a server elsewhere keeps its episodes' state"
    blocking = True

    def __init__(self, task: Task, user: Any = None, config: OpenEnvConfig | None = None) -> None:
        super().__init__(task, user, config)
        self._program: Program | None = None
        self._session = 0
        self._schema: dict[str, Any] = {}
        self._is_rewarded = False

    @classmethod
    def unavailable(cls) -> str:
        """Return what is missing on this machine, in one sentence."""
        return other_python.missing("openenv", PYTHON, "openenv-core==0.3.0")

    def help_for(self, choice: str) -> str:
        """Return the form of an action."""
        if (field := self._only_text()) is not None:
            return str(self._schema["properties"][field].get("description") or "the action, in words")
        return f"the action as JSON by this schema: {json.dumps(self._schema, ensure_ascii=False)}"

    def opening(self) -> str:
        """Connect and return the first observation. Raises UserError if the server fails."""
        if sentence := self.unavailable():
            raise UserError("gym.not_installed", sentence)
        server = self.config.servers[next(_TURN) % len(self.config.servers)].rstrip("/")
        program = Path(__file__).with_name("client.py")
        self._program = other_python.running(f"OpenEnv's client of {server}", os.environ[PYTHON], program, server)
        self._schema = self._content(self._program.hello.get("action"))
        self._session, answer = self._program.open(reset=self.task.payload["reset"])
        first = result(self._program, answer, self.config.timeout)
        if first.get("done"):
            raise self._failed("ended the episode at its reset")
        self._opening = self._text(first.get("observation"))
        return self._opening

    def brief(self) -> str:
        """Return the opening, which the server gives once."""
        return self._opening

    async def action(self, content: str) -> Reply:
        """Do one step. What is no action by the server's schema is not sent."""
        field = self._only_text()
        try:
            action = {field: content} if field is not None else json.loads(content)
            # An empty registry: jsonschema would otherwise fetch a schema from wherever the server says.
            if wrong := best_match(Draft202012Validator(self._schema, registry=Registry()).iter_errors(action)):
                raise wrong
        except (ValueError, RecursionError, OverflowError, ValidationError) as error:
            return Reply(f"Error: no action ({first_line(error)}).")
        except Exception as error:  # noqa: BLE001  of the server's schema, such as a reference to nothing
            raise self._failed(f"has a JSON schema of an action that cannot be used ({in_one_line(error)})") from None
        assert self._program is not None
        got = await self._program.answered(self._session, self.config.timeout, step=action)
        reward, done = got.get("reward"), got.get("done")
        if not isinstance(done, bool):
            raise self._failed(f"said done: {str(done)[:40]!r}, which is not true or false")
        if reward is not None and not is_number(reward):
            raise self._failed(f"gave the reward {str(reward)[:40]!r}, which is not a finite number")
        self._is_rewarded |= reward is not None
        if done and not self._is_rewarded:
            raise self._failed("ended the episode without any reward")
        earned = float(reward or 0.0)
        total = sum(before or 0.0 for before in self.rewards) + earned
        return Reply(
            self._text(got.get("observation")), earned, done, success=total >= self.config.solved if done else None
        )

    def _only_text(self) -> str | None:
        """Return the only field of an action if it is a text."""
        fields = self._schema.get("properties", {})
        (only,) = fields if len(fields) == 1 else (None,)
        is_text = only is not None and isinstance(fields[only], dict) and fields[only].get("type") == "string"
        return only if is_text else None

    def _text(self, observation: object) -> str:
        if not isinstance(observation, dict):
            raise self._failed("sent an observation that is not an object")
        visible = {name: value for name, value in observation.items() if name not in NOT_SHOWN}
        if self.config.text:
            visible = {name: value for name, value in visible.items() if name == self.config.text}
        values = list(visible.values())
        if len(values) == 1 and isinstance(values[0], str):
            return values[0]
        if self.config.text:
            raise self._failed(f"sent an observation whose field '{self.config.text}' is not a text")
        return json.dumps(visible, ensure_ascii=False)

    def _content(self, schema: object) -> dict[str, Any]:
        """Return an action's schema without the fields that every action has."""
        fields = schema.get("properties") if isinstance(schema, dict) else None
        if not isinstance(schema, dict) or not isinstance(fields, dict):
            raise self._failed("has no JSON schema of an action")
        content = {**schema, "type": "object", "properties": {n: f for n, f in fields.items() if n not in NOT_SHOWN}}
        if isinstance(required := schema.get("required"), list):
            content["required"] = [name for name in required if name not in NOT_SHOWN]
        try:
            Draft202012Validator.check_schema(content)
            references = list(_references(content))
        except (SchemaError, RecursionError) as error:
            raise self._failed(f"has a wrong JSON schema of an action ({first_line(error)})") from None
        for name in references:
            if not name.startswith("#"):
                raise self._failed(f"has a JSON schema of an action that refers to another file ({name[:200]!r})")
        return content

    def _failed(self, reason: str) -> UserError:
        return UserError("gym.server_failed", f"OpenEnv's server {reason}.")

    async def aclose(self) -> None:
        """End the connection."""
        await super().aclose()
        if self._program is not None:
            self._program.close(self._session)


def _references(schema: object) -> Iterator[str]:
    """Yield the names of the schemas that a schema refers to."""
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    for value in inner:
        yield from _references(value)
    if isinstance(schema, dict):
        yield from (schema[key] for key in ("$ref", "$dynamicRef") if isinstance(schema.get(key), str))
