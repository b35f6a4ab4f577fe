"""The process of `PlayerProcess`. ``python -m userrl_people.process`` loads a checkpoint and plays conversations in JSON lines."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from userrl.machine.piped import answering
from userrl_core.errors import UserRLError
from userrl_core.records import Message, PolicyReply
from userrl_people.apart import AgentPrompt, Player, PlayerAnswer

if TYPE_CHECKING:
    from userrl_core.episode import Episode
    from userrl_core.training.local.policy import LocalPolicy


def main() -> None:
    """Play conversations until the input ends."""
    with answering() as answer:
        try:
            policy = _load(Player.model_validate_json(sys.stdin.readline()))
        except UserRLError as error:
            answer(PlayerAnswer(refused=error.told))
            return
        answer(PlayerAnswer())
        while line := sys.stdin.readline():
            conversation = FarEpisode(AgentPrompt.model_validate_json(line), answer)
            asyncio.run(policy.play([cast("Episode", conversation)]))


class FarEpisode:
    """A conversation held by the caller, with the part of `Episode` that `LocalPolicy` needs. answer: sends a line to
    the caller.
    """

    finished = False

    def __init__(self, prompt: AgentPrompt, answer: Callable[[PlayerAnswer], None]) -> None:
        self.gym = SimpleNamespace(name=prompt.gym)
        self.trajectory = SimpleNamespace(messages=list(prompt.messages), turns=[])
        self._answer = answer

    async def submit(self, reply: PolicyReply, policy_seconds: float = 0.0) -> list[Message]:
        """Send the reply and return the next messages for the agent. Empty at the end."""
        self._answer(PlayerAnswer(reply=reply))
        line = sys.stdin.readline()
        return list(AgentPrompt.model_validate_json(line).messages) if line else []

    def out_of_tokens(self) -> None:
        """Report that no further token fits."""
        self._answer(PlayerAnswer())


def _load(player: Player) -> LocalPolicy:
    """Return the checkpoint as a greedy agent, so that equal messages get equal replies."""
    from userrl.worker.device import local_policy

    return local_policy(
        player.path,
        player.model,
        player.threads,
        max_tokens=player.max_tokens,
        max_response_tokens=player.max_response_tokens,
        name=player.name,
    )


if __name__ == "__main__":
    main()
