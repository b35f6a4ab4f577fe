"""WishGym's user as a language model. The rule user decides the content and time of each answer; the model words it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from userrl_core.errors import UserError
from userrl_core.gyms.population import direction
from userrl_core.gyms.wish.rule_user import HESITATES, Manner, RuleWishUser
from userrl_core.gyms.wish.tasks import COLOURS
from userrl_core.records import ModelCall, Task
from userrl_core.served.client import ChatServer, client_for

_PROMPT = """You are choosing an outfit, and somebody who helps you has asked about this part of it: {garment}.

{truth}

Answer in one short sentence, as people talk."""

_COLOUR = "You want it in {colour}. Say so, and name no other colour."
_HESITATES = "You have a colour in mind but do not want to say it yet. Hesitate or digress, and name no colour."
_ANYTHING = "You need none. Say that anything will do, and name no colour."


class LLMWishUser:
    """A served user with the options of `ChatServer`, and ``manner`` and ``population`` as in `RuleWishUser`.

    It volunteers nothing: each reply words one answer.
    """

    def __init__(
        self,
        task: Task,
        rng: random.Random,
        *,
        manner: Manner | Sequence[Manner] = "plain",
        population: str | Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.ledger: list[ModelCall] = []
        self._server = ChatServer(**options)
        self._rule = RuleWishUser(task, rng, manner=manner, population=population)
        self.persona = self._rule.persona
        if self.persona is not None:
            self.persona.traits["volunteering"] = 0.0

    async def colour(self, garment: str, colour: str | None, repeated: bool) -> tuple[str, bool]:
        """Return one sentence. Raises UserError if the model names wrong colours, or none where one is due."""
        told_text, out = await self._rule.colour(garment, colour, repeated)
        due_colour = told_text if told_text in COLOURS else None
        truth = _COLOUR.format(colour=due_colour) if due_colour else _ANYTHING if colour is None else _HESITATES
        if self.persona is not None and due_colour is None and colour is not None and told_text != HESITATES:
            truth = f"Name no colour.{direction(self.persona.due)}"
        messages = [{"role": "user", "content": _PROMPT.format(garment=garment, truth=truth)}]
        answer = await client_for(self._server).complete(messages, role="user", ledger=self.ledger)
        named_colours = [colour_name for colour_name in COLOURS if colour_name in answer.text.lower()]
        if named_colours != ([due_colour] if due_colour else []):
            raise UserError("user.no_reply", f"The user model did not say what it was told to say about {garment}.")
        if self.persona is not None:
            self.persona.said(answer.text)
        return answer.text, out
