"""A checkpoint that plays the agent in a separate process, so that the holder of the conversation loads no model.

The conversation, its gym and its log stay with the caller. If the process dies, the conversation loses its score but no
turn. Messages are lines of JSON. The process plays one conversation after another until its input ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from userrl.machine.piped import PipedProcess
from userrl_core.episode import Episode
from userrl_core.errors import ConfigError, ErrorReport, PolicyError
from userrl_core.records import PolicyReply
from userrl_core.training.config import ModelConfig

PROGRAM = "userrl_people.process"
"""The module that the process runs."""

LONGEST = 120
"""Maximum characters of a dead process's reason. The sentence is stored in a column."""


class Player(BaseModel):
    """The checkpoint to play, sent as the first line. name: the policy's name in the warehouse."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    path: Path
    model: ModelConfig
    max_tokens: int
    max_response_tokens: int | None = None
    threads: int | None = None


class AgentPrompt(BaseModel):
    """The messages for a gym's agent: the opening messages, then each observation, and nothing at the end."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gym: str
    messages: tuple[dict[str, Any], ...] = ()


class PlayerAnswer(BaseModel):
    """The answer of the process. reply is None if it has loaded the checkpoint, or if no further token fits.

    refused: why the checkpoint cannot be loaded.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    reply: PolicyReply | None = None
    refused: ErrorReport | None = None


class PlayerProcess:
    """A checkpoint in a separate process as a policy (`BatchPolicy`). The process ends with `close`, or with this process.

    The constructor waits until the checkpoint is loaded. Raises ConfigError with the sentence of a refusal, and PolicyError
    for a process that died.
    """

    def __init__(self, player: Player) -> None:
        self.name = player.name
        self._stopped = ""
        self._process = PipedProcess(PROGRAM)
        try:
            loaded = self._ask(player)
            if loaded.refused is not None:
                raise ConfigError(loaded.refused.code, loaded.refused.sentence)
        except BaseException:
            self.close()
            raise

    async def play(self, episodes: Sequence[Episode]) -> None:
        """Play every episode to its end. If the process dies, an episode ends without a score and keeps its turns."""
        for episode in episodes:
            try:
                await self._play(episode)
            except PolicyError as error:
                episode.fail(error)
            except BaseException:
                self.stop("the conversation was stopped")  # or a thread would wait for its reply
                raise

    def stop(self, reason: str) -> None:
        """End the process. reason: the reason for its conversation, as a sentence without its full stop."""
        self._stopped = self._stopped or reason
        self._process.kill()

    def close(self) -> None:
        """End the process and free its resources. No conversation may be in progress."""
        self.stop("the player was closed")
        self._process.close()

    async def _play(self, episode: Episode) -> None:
        messages = await episode.begin()
        while messages:
            prompt = AgentPrompt(gym=episode.gym.name, messages=tuple(messages))
            began = time.perf_counter()
            answer = await asyncio.to_thread(self._ask, prompt)
            if answer.reply is None:
                episode.out_of_tokens()
                return
            messages = await episode.submit(answer.reply, time.perf_counter() - began)
        if episode.trajectory.turns:
            self._process.tell(AgentPrompt(gym=episode.gym.name))

    def _ask(self, line: Player | AgentPrompt) -> PlayerAnswer:
        answered = self._process.ask(line)
        if not answered:
            raise PolicyError("process.died", self._end())
        return PlayerAnswer.model_validate_json(answered)

    def _end(self) -> str:
        status, lines = self._process.ended()
        if self._stopped:
            return f"{self._stopped[0].upper()}{self._stopped[1:]}."
        reason = f": {lines[-1][:LONGEST]}" if lines else ""
        return f"The process that plays the agent ended with status {status}{reason}"
