"""TurtleGym's user with the texts and the message order of UserRL's released code (``prompts: released``).

As there, the agent reads the statement of every criterion that it covers in full. Unlike there, a judgement without one score
of 0, 0.5 or 1 per criterion is requested again and then gives a null reward.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from userrl_core.gyms.released_texts import Source, Template, published_root
from userrl_core.gyms.served_user import ServedUser
from userrl_core.records import Task
from userrl_core.served.plain import read_object, spoken
from userrl_core.served.verdict import Answer, read_answer

GRADES = (0.0, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class TurtleTexts:
    """The released texts. nothing, covered, around: the agent's feedback."""

    question_system: str
    question: str
    answer_system: str
    answer: str
    nothing: str
    covered: Template
    around: Template


@lru_cache(maxsize=4)
def read_texts(root: Path) -> TurtleTexts:
    """Read the texts from a folder of published data. Raises MissingFileError or ConfigError."""
    source = Source(root, "userrl", "gyms/TurtleGym/turtlegym/env/prompts.py")
    _, nothing, around = source.assigned("parse_llm_response", "feedback", 3)
    return TurtleTexts(
        question_system=source.constant("ACTION_SYS"),
        question=source.constant("ACTION_USER"),
        answer_system=source.constant("ANSWER_SYS"),
        answer=source.constant("ANSWER_USER"),
        nothing=nothing.text,
        covered=source.added("parse_llm_response", "feedback")[0],
        around=around,
    )


class ReleasedTurtleUser(ServedUser):
    """A served user with the released prompts. texts: the folder of published data; further options of `ChatServer`."""

    def __init__(self, task: Task, rng: random.Random, *, texts: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._texts = read_texts(published_root(texts))
        self._surface, self._bottom = str(task.payload["surface"]), str(task.payload["bottom"])
        self._statements = [str(criterion["statement"]) for criterion in task.payload["criteria"]]
        self.feedback = ""
        """What the agent reads about its last explanation."""

    async def reply(self, question: str) -> Answer:
        """Return Yes, No or Maybe. Raises UserError."""
        prompt = self._filled(self._texts.question).replace("<query>", spoken(question))
        return await self._ask_in_words(self._texts.question_system, prompt, "user", _answer)

    async def grade(self, explanation: str) -> list[float]:
        """Return 0, 0.5 or 1 for each criterion. Raises JudgeError."""
        protocol = json.dumps([{"statement": statement} for statement in self._statements], indent=4)
        prompt = self._filled(self._texts.answer.replace("<protocol>", protocol))
        prompt = prompt.replace("<user>", spoken(explanation, "answer"))
        grades = await self._ask_in_words(self._texts.answer_system, prompt, "judge", self._grades)
        full = [statement for statement, grade in zip(self._statements, grades, strict=True) if grade == 1.0]
        covered = "".join(self._texts.covered.fill(statement=statement) for statement in full).strip()
        self.feedback = self._texts.around.fill(feedback=covered) if covered else self._texts.nothing
        return grades

    def _grades(self, text: str) -> list[float]:
        rows = read_object(text, "scores")["scores"]
        grades = [row.get("score") if isinstance(row, dict) else None for row in rows] if isinstance(rows, list) else []
        if len(grades) != len(self._statements) or any(grade not in GRADES for grade in grades):
            raise ValueError("there is not one score of 0, 0.5 or 1 per criterion")
        return [float(grade) for grade in grades if grade is not None]

    def _filled(self, prompt: str) -> str:
        return prompt.replace("<surface>", self._surface).replace("<bottom>", self._bottom)


def _answer(text: str) -> Answer:
    return read_answer(read_object(text, "response")["response"])
