"""Intervention during the rollout (TARL 5.2): a wrong step is interrupted before it is carried out, and tried again.

A verifier compares the step with the gold calls: by rule, a write that would succeed and is none of the open gold writes; or a
served model's word, which may object to what is said, too. The sentence comes back in place of what the call would have brought,
since a chat is not reopened in the middle of a message; TARL puts it into the reasoning trace. An interrupted reply is no turn of
its own: it counts against no horizon, and its tokens belong to the turn that follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel

from userrl_core.errors import JudgeError
from userrl_core.gyms.base import Grounds, parse_config
from userrl_core.gyms.registry import gym_class
from userrl_core.judging.config import InterventionConfig
from userrl_core.judging.served import case
from userrl_core.records import Message, ModelCall, Trajectory, Turn
from userrl_core.rewards.judge import RULE
from userrl_core.served.client import ChatServer, client_for
from userrl_core.served.quoting import DATA_RULE, quote


class StepVerifier:
    """Compares steps with gold calls (`episode.Verifier`). gym_config: options by gym, as the conversations are played with."""

    def __init__(self, config: InterventionConfig, gym_config: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.most, self.text = config.most, config.text
        self._server = verifier_server(config)
        self._gym_config = gym_config or {}

    async def objects(self, trajectory: Trajectory, step: Turn, ledger: list[ModelCall]) -> bool:
        """False for a gym without gold calls, and where a served verifier gives no usable answer after all retries."""
        gym = gym_class(trajectory.task.gym)
        config = parse_config(gym, self._gym_config.get(trajectory.task.gym, {}))
        grounds: Grounds | None = gym.grounds(trajectory.task, config)
        if grounds is None or step.choice is None:
            return False
        if self._server is None:
            return step.choice == "answer" and grounds.departs(trajectory.turns, step.content or "")
        try:
            answer = await client_for(self._server).complete(
                messages(trajectory, step, grounds), role="judge", ledger=ledger, schema=StepVerdict
            )
        except JudgeError:
            return False  # the ledger's row says why
        return isinstance(answer.parsed, StepVerdict) and answer.parsed.verdict == "wrong"


class StepVerdict(BaseModel):
    """The reply's schema."""

    thought: str = ""
    verdict: Literal["fine", "wrong"]


_RULES = """You watch a service agent that works with tools, and stop it before it goes wrong.

You get the agent's policy, the instruction that the customer was given (the agent never saw it), the gold calls, the conversation
so far in numbered turns, and the step that the agent is about to take.

The step is wrong when it changes data in another way than a gold call that has not been made yet, or tells the customer something
from which such a change would follow. Looking things up and asking questions is fine, in any order. When in doubt, it is fine.

First think in `thought`; then say in `verdict` whether the step is fine or wrong.
{rule}"""


def messages(trajectory: Trajectory, step: Turn, grounds: Grounds) -> list[Message]:
    """The verifier's prompt."""
    return [
        {"role": "system", "content": _RULES.format(rule=DATA_RULE)},
        {"role": "user", "content": f"{case(trajectory, grounds)}\n\n# The next step\n{quote(step.message)}"},
    ]


def verifier_server(config: InterventionConfig) -> ChatServer | None:
    """Where the verifier is served; None for the rule."""
    return None if config.model == RULE else ChatServer(model=config.model, **config.options)
