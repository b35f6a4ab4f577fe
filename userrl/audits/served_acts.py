"""A served model as reader of dialogue acts: a request for each utterance, answered under a JSON schema.

Prompt, examples and schema are ours and part of what `analysis/users/measured.json` measures.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from userrl_core.judging.acts import Act, Utterance
from userrl_core.records import Message
from userrl_core.served.client import ChatServer, client_for, close_clients
from userrl_core.served.quoting import DATA_RULE, quote


class ReadActs(BaseModel):
    """The reply's schema."""

    acts: list[Act]


_RULES = f"""Name the dialogue acts of the last words of a customer conversation: all that fit, or none.
- confirms: agrees to what was proposed.
- refuses: does not agree, or says that something is not possible.
- asks: wants an answer, with or without a question mark.
- states: tells a fact.
- leaves: takes leave, or says that nothing more is needed.
- announces: says what the speaker does next.
- coaches: tells the agent which tool or rule to use.
- hands_over: passes the customer on to a person.
- hesitates: does not know, or does not say.
{DATA_RULE}"""
EXAMPLES: tuple[tuple[Utterance, list[Act]], ...] = (
    (Utterance("user", "Shall I move it to May 5?", "Yes, please do."), ["confirms"]),
    (Utterance("agent", "When can I have it?", "I will look that up now."), ["announces"]),
    (Utterance("user", "Where did you buy it?", "In Rome, I think. Which shop is it then?"), ["states", "asks"]),
    (Utterance("user", "It is done.", "Great, that is all. Bye!"), ["leaves"]),
    (Utterance("user", "I would put you on the later flight.", "No, that is too late."), ["refuses"]),
    (Utterance("agent", "This is the third time!", "A colleague of mine takes over here."), ["hands_over"]),
    (Utterance("user", "Your order number, please.", "I can't remember it."), ["hesitates"]),
    (Utterance("user", "How can I help?", "Open my profile first, your rules say so."), ["coaches"]),
    (Utterance("agent", "I want to return a lamp.", "Please tell me your order number."), ["asks"]),
    (Utterance("user", "One moment.", "Lovely weather here."), []),
    (Utterance("user", "I can send a new one instead.", "fine by me"), ["confirms"]),
    (Utterance("user", "Which colour is it?", "the red one"), ["states"]),
    (Utterance("agent", "Can I pay in June?", "We are not able to do that, sorry."), ["refuses"]),
    (Utterance("user", "Would Tuesday do?", "works for me, and my name is Eve Lind"), ["confirms", "states"]),
    (Utterance("user", "What is your e-mail?", "why would you need that"), ["hesitates", "asks"]),
    (Utterance("agent", "Yes, go ahead.", "One moment, cancelling the order."), ["announces"]),
    (Utterance("user", "I cannot see it.", "try the search by phone number, you have a tool for it"), ["coaches"]),
    (Utterance("agent", "Thanks for your help.", "Have a nice evening, goodbye."), ["leaves"]),
    (Utterance("user", "I'd book the early train then.", "hmm let me think"), ["hesitates"]),
    (Utterance("user", "Is there anything else?", "nope, cheers"), ["leaves"]),
    (Utterance("agent", "I need a refund for this.", "You are passed on to our refund team."), ["hands_over"]),
    (Utterance("user", "I'd cancel both of them, all right?", "go for it"), ["confirms"]),
    (Utterance("user", "So I will charge your card.", "hold on, not that card"), ["refuses"]),
    (Utterance("user", "I see.", "ok and what about the fee"), ["asks"]),
)


@dataclass(frozen=True, slots=True)
class ServedActs:
    """The reader of acts by a served model. server: its address and settings."""

    server: ChatServer

    @property
    def name(self) -> str:
        """Return the model's name."""
        return self.server.model

    def read(self, utterances: Sequence[Utterance]) -> list[frozenset[Act]]:
        """Return the acts of each utterance. Raises JudgeError where the model gives no fitting reply after all retries."""
        return asyncio.run(self._read(utterances))

    async def _read(self, utterances: Sequence[Utterance]) -> list[frozenset[Act]]:
        client = client_for(self.server)
        requests = [client.complete(messages(u), role="judge", ledger=[], schema=ReadActs) for u in utterances]
        try:
            answers = await asyncio.gather(*requests)
        finally:
            await close_clients()
        return [frozenset(answer.parsed.acts) for answer in answers]


def messages(utterance: Utterance) -> list[Message]:
    """Return the prompt for one utterance. All but the last message is the same for all."""
    prompt: list[Message] = [{"role": "system", "content": _RULES}]
    for example, acts in EXAMPLES:
        prompt.append({"role": "user", "content": _shown(example)})
        prompt.append({"role": "assistant", "content": json.dumps({"acts": acts})})
    return [*prompt, {"role": "user", "content": _shown(utterance)}]


def _shown(utterance: Utterance) -> str:
    other = "agent" if utterance.speaker == "user" else "user"
    before = f"The {other} said: {utterance.before}\n" if utterance.before else ""
    return quote(f"{before}The {utterance.speaker} says: {utterance.text}")
