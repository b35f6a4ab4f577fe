"""Instructions written by a model (TARL appendix A): inferred from a conversation, rewritten to withhold something,
or simplified.

The prompts are ours; their content follows the paper's. An instruction counts only if the gold calls still solve the task
under it. Otherwise the model gets the reason and is asked again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, Field

from userrl_core.errors import JudgeError
from userrl_core.gyms.tau.variants import Variant, with_instruction
from userrl_core.records import ModelCall, Task
from userrl_core.served.client import ChatServer, client_for
from userrl_core.served.quoting import DATA_RULE, quote
from userrl_synthesis.solvable import why_not

TRIES = 3
"""Attempts before a task is given up."""

_WORK: Mapping[Variant, str] = {
    "inferred": """You read a conversation between a customer and a service agent. Write the instruction that the customer must
have been given, so that somebody who follows it would have the same conversation.

It addresses the customer as "you". It says who they are (user id, e-mail address, or name and zip code, as the conversation shows),
what they want to reach and why, and every choice and limit that they hold to. It is short and direct. It says nothing of what the
agent did, and nothing that only the agent's tools showed, unless the customer chose it.""",
    "withheld": """You read a conversation between a customer and a service agent, and the instruction that the customer was given.
Rewrite the instruction, so that the customer keeps one or two things back and the agent has to find them out.

The task must stay possible: hold back only what the agent's tools can show. Ways to do so: the customer does not remember an order
number, and the agent has to look it up in the account; does not name a payment method, and only confirms one that the agent names;
says what is wanted only after the agent has listed what there is; forgets one way to be identified, and gives another.

The new instruction still holds all that the old one says, so that the customer can confirm it: say what the customer knows, and
what they do not say by themselves. Do not make it harder than one or two such things.""",
    "simplified": """You read a conversation between a customer and a service agent, and the instruction that the customer was
given. Rewrite the instruction, so that it is as detailed and specific as can be.

It holds all that the agent asks the customer for: who they are, every number of an order, item and payment method, every
choice, and every answer to a question. Take care that every argument of every gold call that changes something is in it.""",
}

_FORM = """Think first, in `thought`; then give the whole new instruction in `instruction`.
{rule}"""

_CASE = """# The conversation
{conversation}

# The gold calls
{gold}
"""


class NewInstruction(BaseModel):
    """The reply's schema."""

    thought: str = ""
    instruction: str = Field(min_length=20)


class Writer:
    """A served model that writes instructions. Its calls are in `ledger`."""

    def __init__(self, server: ChatServer) -> None:
        self._server = server
        self.ledger: list[ModelCall] = []

    async def write(self, task: Task, conversation: str, variant: Variant) -> tuple[Task | None, str]:
        """Return the task under a new instruction; None and the reason if no attempt was good."""
        case = _CASE.format(conversation=quote(conversation), gold=_calls(task.payload["actions"]))
        if variant != "inferred":
            case += f"\n# The instruction\n{quote(str(task.payload['instruction']))}\n"
        why = ""
        for _ in range(TRIES):
            again = f"\nYour last instruction cannot be used: {why}. Write another.\n" if why else ""
            try:
                answer = await client_for(self._server).complete(
                    [
                        {"role": "system", "content": f"{_WORK[variant]}\n\n{_FORM.format(rule=DATA_RULE)}"},
                        {"role": "user", "content": case + again},
                    ],
                    role="judge",
                    ledger=self.ledger,
                    schema=NewInstruction,
                )
            except JudgeError as error:
                return None, str(error)
            new_task = with_instruction(task, str(answer.parsed.instruction).strip(), variant)
            if not (why := why_not(new_task)):
                return new_task, ""
        return None, why


def _calls(actions: Sequence[Mapping[str, object]]) -> str:
    return "\n".join(json.dumps({"name": a["name"], "arguments": a["kwargs"]}, ensure_ascii=False) for a in actions)
