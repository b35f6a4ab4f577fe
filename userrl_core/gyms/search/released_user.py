"""SearchGym's judge with the texts and the message order of UserRL's released code (``prompts: released``).

As there, the model is asked only if the rule does not accept the answer. Unlike there, an unreadable judgement is requested
again and then gives a null reward.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from userrl_core.gyms.released_texts import Source, Template, published_root
from userrl_core.gyms.search.llm_user import MAX_TOKENS
from userrl_core.gyms.search.rule_user import RuleSearchUser
from userrl_core.gyms.served_user import ServedUser
from userrl_core.records import Task
from userrl_core.served.plain import read_object, spoken
from userrl_core.served.verdict import read_answer


@dataclass(frozen=True, slots=True)
class SearchTexts:
    """The released texts. right, wrong: the agent's feedback."""

    system: str
    user: str
    right: Template
    wrong: Template


@lru_cache(maxsize=4)
def read_texts(root: Path) -> SearchTexts:
    """Read the texts from a folder of published data. Raises MissingFileError or ConfigError."""
    folder = "gyms/SearchGym/searchgym/env"
    judge, gym = Source(root, "userrl", f"{folder}/prompts.py"), Source(root, "userrl", f"{folder}/search_env.py")
    right, wrong = gym.assigned("SearchEnv._handle_answer_action_async", "feedback", 2)
    return SearchTexts(judge.constant("ANSWER_SYS"), judge.constant("ANSWER_USER"), right, wrong)


class ReleasedSearchUser(ServedUser):
    """A served judge with the released prompts. texts: the folder of published data; further options of `ChatServer`."""

    def __init__(self, task: Task, rng: random.Random, *, texts: str | None = None, **options: Any) -> None:
        super().__init__(**{"max_tokens": MAX_TOKENS, **options})
        self._texts = read_texts(published_root(texts))
        self._rule = RuleSearchUser(task, rng)
        self._question, self._truth = str(task.payload["question"]), str(task.payload["answer"])
        self.feedback = ""
        """What the agent reads about its last answer."""

    async def matches(self, answer: str) -> bool:
        """Return whether the answer is right. Raises JudgeError."""
        said = spoken(answer, "answer")
        is_right = await self._rule.matches(said) or await self._judge(said)
        self.feedback = (self._texts.right if is_right else self._texts.wrong).fill(answer=said)
        return is_right

    async def _judge(self, answer: str) -> bool:
        prompt = self._texts.user.replace("<question>", self._question).replace("<correct_answer>", self._truth)
        prompt = prompt.replace("<model_answer>", answer)  # last: an answer "<correct_answer>" must stay as it is
        return await self._ask_in_words(self._texts.system, prompt, "judge", _judgement)


def _judgement(text: str) -> bool:
    verdict = read_answer(read_object(text, "judgment")["judgment"])
    if verdict == "Maybe":
        raise ValueError("the judgement is neither Yes nor No")
    return verdict == "Yes"
