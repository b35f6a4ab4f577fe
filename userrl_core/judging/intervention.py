"""Intervention during the rollout (TARL 5.2): a wrong step is interrupted before it is executed, and tried again.

A verifier compares the step with the gold calls. The rule objects to a write that would succeed but is not an open
gold write. A served model may also object to the agent's words. TARL puts the sentence into the reasoning trace. Here
it replaces the observation, because a chat is not reopened in the middle of a message. An interrupted reply is not a
turn: it does not count against the horizon, and its tokens belong to the next turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel

from userrl_core.errors import JudgeError
from userrl_core.gyms.solution import ReferenceSolution
from userrl_core.judging.config import InterventionConfig
from userrl_core.judging.judge import judge_server, reference_of
from userrl_core.judging.served import case
from userrl_core.records import Message, ModelCall, Trajectory, Turn
from userrl_core.served.client import client_for
from userrl_core.served.quoting import DATA_RULE, quote


class StepVerifier:
    """A comparison of steps with gold calls (`episode.Verifier`). gym_config: options by gym, as in the conversations."""

    def __init__(self, config: InterventionConfig, gym_config: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.most, self.text = config.most, config.text
        self._server = judge_server(config)
        self._gym_config = gym_config or {}

    async def objects(self, trajectory: Trajectory, step: Turn, ledger: list[ModelCall]) -> bool:
        """Return True for a wrong step. False for a gym without gold calls, or a served verifier without a usable
        answer after all retries.
        """
        reference = reference_of(trajectory, self._gym_config)
        if reference is None or step.choice is None:
            return False
        if self._server is None:
            return step.choice == "answer" and reference.deviates(trajectory.turns, step.content or "")
        try:
            answer = await client_for(self._server).complete(
                messages(trajectory, step, reference), role="judge", ledger=ledger, schema=StepVerdict
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


def messages(trajectory: Trajectory, step: Turn, reference: ReferenceSolution) -> list[Message]:
    """Return the verifier's prompt."""
    return [
        {"role": "system", "content": _RULES.format(rule=DATA_RULE)},
        {"role": "user", "content": f"{case(trajectory, reference)}\n\n# The next step\n{quote(step.message)}"},
    ]
