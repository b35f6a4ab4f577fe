"""PersuadeGym's user with the texts and the message order of UserRL's released code (``prompts: released``).

Unlike there, a reply without a readable stance is requested again and then gives a null reward.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from userrl_core.gyms.persuade.gym import STANCES, ListenerResponse
from userrl_core.gyms.released_texts import Source, Template, published_root
from userrl_core.gyms.served_user import ServedUser
from userrl_core.records import Task
from userrl_core.served.plain import read_object, read_text, spoken

BUILD = "build_response_prompt"


@dataclass(frozen=True, slots=True)
class PersuadeTexts:
    """The released texts."""

    system: str
    user: str
    line: Template
    first: str


@lru_cache(maxsize=4)
def read_texts(root: Path) -> PersuadeTexts:
    """Read the texts from a folder of published data. Raises MissingFileError or ConfigError."""
    source = Source(root, "userrl", "gyms/PersuadeGym/persuadegym/env/prompts.py")
    return PersuadeTexts(
        source.constant("PERSUADEE_RESPONSE_SYS"),
        source.constant("PERSUADEE_RESPONSE_USER"),
        source.added(BUILD, "history_text")[0],
        source.assigned(BUILD, "history_text", 2)[1].text,
    )


class ReleasedPersuadeUser(ServedUser):
    """A served user with the released prompts. texts: the folder of published data; further options of `ChatServer`."""

    def __init__(self, task: Task, rng: random.Random, *, texts: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._texts = read_texts(published_root(texts))
        self._claim, self._argument = str(task.payload["claim"]), str(task.payload["argument"])
        self._said: list[tuple[str, str]] = []

    async def respond(self, argument: str, stance: str) -> ListenerResponse:
        """Return response and stance. Raises JudgeError."""
        # An argument may be called answer or action; the released code removes either name.
        argument_text = spoken(argument, "answer") if argument.strip().startswith("[answer]") else spoken(argument)
        lines = enumerate(self._said, 1)
        past = "".join(
            self._texts.line.fill(i=str(i), persuader_arg=arg, env_response=reply) for i, (arg, reply) in lines
        )
        prompt = self._texts.user.format(
            statement=self._claim,
            initial_argument=self._argument,
            current_stance=stance,
            conversation_history=past or self._texts.first,
            latest_argument=argument_text,
        )
        response = await self._ask_in_words(self._texts.system, prompt, "judge", _opinion)
        self._said.append((argument_text, response.response))
        return response


def _opinion(text: str) -> ListenerResponse:
    opinion = read_object(text, "response", "stance")
    stance = read_text(opinion["stance"]).strip().title()
    if stance not in STANCES:
        raise ValueError("the stance is not one of the seven")
    return ListenerResponse(read_text(opinion["response"]), stance)
