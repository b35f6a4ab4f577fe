"""TelepathyGym's user with the texts and the message order of UserRL's released code (``prompts: released``).

Every guess is judged by the model, and its feedback is what the agent reads. Unlike in the released code, a judgement in
another case ("yes") counts, and an unreadable one is requested again and then gives a null reward.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from userrl_core.gyms.released_texts import Source, published_root
from userrl_core.gyms.served_user import ServedUser
from userrl_core.records import Task
from userrl_core.served.plain import read_object, read_text, spoken
from userrl_core.served.verdict import Answer, read_answer


@dataclass(frozen=True, slots=True)
class TelepathyTexts:
    """The released texts."""

    question_system: str
    question: str
    guess_system: str
    guess: str


@lru_cache(maxsize=4)
def read_texts(root: Path) -> TelepathyTexts:
    """Read the texts from a folder of published data. Raises MissingFileError or ConfigError."""
    source = Source(root, "userrl", "gyms/TelepathyGym/telepathygym/env/prompts.py")
    return TelepathyTexts(*map(source.constant, ("ACTION_SYS", "ACTION_USER", "ANSWER_SYS", "ANSWER_USER")))


class ReleasedTelepathyUser(ServedUser):
    """A served user with the released prompts. texts: the folder of published data; further options of `ChatServer`."""

    def __init__(self, task: Task, rng: random.Random, *, texts: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._texts = read_texts(published_root(texts))
        self._entity = str(task.payload["description"] or task.payload["title"])
        self.feedback = ""
        """What the agent reads about its last guess."""

    async def reply(self, question: str) -> Answer:
        """Return Yes, No or Maybe. Raises UserError."""
        prompt = self._filled(self._texts.question, "<user_question>", spoken(question))
        return await self._ask_in_words(self._texts.question_system, prompt, "user", _answer)

    async def matches(self, guess: str) -> bool:
        """Return whether a guess names the entity. Raises JudgeError."""
        prompt = self._filled(self._texts.guess, "<user_guess>", spoken(guess, "answer"))
        right, self.feedback = await self._ask_in_words(self._texts.guess_system, prompt, "judge", _judgement)
        return right

    def _filled(self, prompt: str, mark: str, text: str) -> str:
        return prompt.replace("<target_entity>", self._entity).replace(mark, text)


def _answer(text: str) -> Answer:
    return read_answer(read_object(text, "response")["response"])


def _judgement(text: str) -> tuple[bool, str]:
    judgement = read_object(text, "judgment", "feedback")
    verdict = read_answer(judgement["judgment"])
    if verdict == "Maybe":
        raise ValueError("the judgement is neither Yes nor No")
    return verdict == "Yes", read_text(judgement["feedback"])
