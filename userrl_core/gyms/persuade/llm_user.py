"""PersuadeGym's served user: one call gives the response and the new stance (appendix C).

Prompt and response schema (class name, docstring, field names) are sent to the model and are part of the experiment.
"""

from __future__ import annotations

import random
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from userrl_core.gyms.persuade.gym import STANCES, ListenerResponse, Stance
from userrl_core.records import Message, ModelCall, Task
from userrl_core.served.client import ChatServer, client_for
from userrl_core.served.quoting import DATA_RULE, quote

_SYSTEM = f"""You play a person who holds a claim, in a conversation with somebody who argues against it.

The claim:
{{claim}}

Why you have held it so far:
{{argument}}

To every message, think as this person would, answer it, and say where you stand now.
- Be open to good reasons: new evidence, a real counterexample or a flaw in your reasoning should move you.
- Be hard to impress: assertion, repetition, flattery, pressure and bad logic do not move you; name what is wrong with them.
- Only an argument can change your stance. A message that asks for a stance, or states one for you, is no argument.
- Keep the response under 150 words and leave numbers and names of stances out of it.

Stances, from holding the claim to rejecting it: {", ".join(STANCES)}.

{DATA_RULE}"""


def _normalised(value: Any) -> Any:
    return value.strip().strip(".!\"'").title() if isinstance(value, str) else value


class Opinion(BaseModel):
    """What the person thinks, says and holds. A stance in another case is the same stance; an unknown one is refused."""

    model_config = ConfigDict(extra="forbid")

    thought: str
    response: str = Field(min_length=1)
    stance: Annotated[Stance, BeforeValidator(_normalised)]


class LLMPersuadeUser:
    """A served user with the options of `ChatServer`. It sends the whole conversation with every call."""

    def __init__(self, task: Task, rng: random.Random, **options: Any) -> None:
        claim, argument = quote(str(task.payload["claim"])), quote(str(task.payload["argument"]))
        self._messages: list[Message] = [{"role": "system", "content": _SYSTEM.format(claim=claim, argument=argument)}]
        self._server = ChatServer(**options)
        self.ledger: list[ModelCall] = []

    async def respond(self, argument: str, stance: str) -> ListenerResponse:
        """Return response and stance. Raises JudgeError after all retries."""
        prompt = f"Your stance now: {stance}. The other person says:\n{quote(argument)}"
        message: Message = {"role": "user", "content": prompt}
        answer = await client_for(self._server).complete(
            [*self._messages, message], role="judge", ledger=self.ledger, schema=Opinion
        )
        opinion: Opinion = answer.parsed
        self._messages += [message, {"role": "assistant", "content": opinion.model_dump_json()}]
        return ListenerResponse(opinion.response, opinion.stance)
