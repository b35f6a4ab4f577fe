"""The served judge: a language model reads policy, instruction, gold calls and the numbered turns, and marks each turn.

The prompt is ours and follows TARL appendix C. Schema and prompt are sent to the model: they are part of the
experiment. The agent's messages and the observations are quoted as data.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, create_model, model_validator

from userrl_core.gyms.solution import ReferenceSolution
from userrl_core.records import Message, ModelCall, Trajectory, Turn
from userrl_core.served.client import ChatServer, client_for
from userrl_core.served.quoting import DATA_RULE, quote

_RULES = """You audit conversations between a customer and a service agent that works with tools.

You get the agent's policy, the instruction that the customer was given (the agent never saw it), the gold calls, and the
conversation in numbered turns. A turn is one message or tool call of the agent, and what came back.

How to compare with the gold calls:
- Only calls that change data must agree: each gold write has to be made once, with exactly these arguments, in any order, and no
  other write may be made.
- Calls that only read may be made in any order and as often as the agent likes.

Mark every turn:
- 1: the turn is right.
- 0: the turn has a flaw that did not cause the failure, such as a malformed or refused call, a mistake that was put right
  later, or a slip against the policy; or it only follows from the turn marked -1.
- -1: this turn is the main cause of a difference from the gold writes: it made a wrong or needless write, told or concluded
  something wrong from which the wrong write followed, or let the last chance of a missing write pass. At most one turn gets -1,
  the first that caused the difference; none gets it when all writes agree.

First think the conversation through in `thought`; then give each turn its mark.
{rule}"""

_CASE = """# Policy
{policy}

# The customer's instruction
{instruction}

# Gold calls
{gold}

# Conversation
Before turn 1: {opening}

{turns}"""


class ServedJudge:
    """A model that marks turns. It shares the client, its limits and its retries with all other callers of the server."""

    def __init__(self, server: ChatServer) -> None:
        self.server = server

    async def scores(self, trajectory: Trajectory, reference: ReferenceSolution, ledger: list[ModelCall]) -> list[int]:
        """Return a mark per turn, [T]. Raises JudgeError when the model gives no fitting marks after all retries."""
        schema = turn_marks(len(trajectory.turns))
        answer = await client_for(self.server).complete(
            messages(trajectory, reference), role="judge", ledger=ledger, schema=schema
        )
        return [int(getattr(answer.parsed, _field(turn.number))) for turn in trajectory.turns]


def messages(trajectory: Trajectory, reference: ReferenceSolution) -> list[Message]:
    """Return the judge's prompt."""
    return [
        {"role": "system", "content": _RULES.format(rule=DATA_RULE)},
        {"role": "user", "content": case(trajectory, reference)},
    ]


def case(trajectory: Trajectory, reference: ReferenceSolution, *, as_data: bool = True) -> str:
    """Return the judge's view of a conversation: policy, instruction, gold calls, and its numbered turns.

    as_data: whether texts of others are quoted as data, as our prompts explain. Other prompts do not.
    """
    quoted = quote if as_data else str
    gold = "\n".join(json.dumps({"name": n, "arguments": a}, ensure_ascii=False) for n, a in reference.gold)
    opening_texts = [str(message["content"]) for message in trajectory.messages if message["role"] != "system"]
    # The opening may hold the whole policy, which stands above.
    opening = "\n".join(opening_texts).replace(reference.policy, "(the policy)")
    return _CASE.format(
        policy=reference.policy,
        instruction=quoted(reference.instruction),
        gold=gold or "(none: no data may be changed)",
        opening=quoted(opening),
        turns="\n\n".join(_shown(turn, quoted) for turn in trajectory.turns),
    )


def _shown(turn: Turn, quoted: Callable[[str], str]) -> str:
    return f"[Turn {turn.number}]\nAgent: {quoted(turn.message)}\nWhat came back: {quoted(turn.observation)}"


def _as_integer(value: Any) -> Any:
    """Accept ``"1"`` and 1.0 as marks, too."""
    try:
        return int(value) if isinstance(value, (str, float)) and float(value).is_integer() else value
    except ValueError:
        return value


Mark = Annotated[Literal[-1, 0, 1], BeforeValidator(_as_integer)]


def _field(number: int) -> str:
    return f"turn_{number}"


@lru_cache(maxsize=64)
def turn_marks(turns: int) -> type[BaseModel]:
    """Return the reply's schema, with one named mark per turn: a list could come back too short or shifted."""

    def at_most_one_deviation(self: BaseModel) -> BaseModel:
        if list(self.model_dump(exclude={"thought"}).values()).count(-1) > 1:
            raise ValueError("more than one turn is marked -1")
        return self

    fields: dict[str, Any] = {_field(number): (Mark, Field()) for number in range(1, turns + 1)}
    checks: dict[str, Any] = {"at_most_one_deviation": model_validator(mode="after")(at_most_one_deviation)}
    return create_model("TurnMarks", __validators__=checks, thought=(str, ""), **fields)
