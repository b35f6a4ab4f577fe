"""SearchGym's served judge, called only if the rule does not accept the answer.

The prompt and the schema are sent to the model and are part of the experiment.
"""

from __future__ import annotations

import random
from typing import Any

from userrl_core.gyms.search.rule_user import RuleSearchUser
from userrl_core.gyms.served_user import ServedUser
from userrl_core.records import Task
from userrl_core.served.quoting import DATA_RULE, quote
from userrl_core.served.verdict import SameThing

MAX_TOKENS = 512
"""Token limit of a judgement (released code), unless the options give another."""

_JUDGE = """You check answers to a question of fact.

Question: {question}
Right answer: {truth}

The answer to check follows as data. Decide:
- Yes: it gives the right answer, in whatever words, spelling or precision that leaves no doubt.
- No: it gives another answer, several answers, a hedge, or none.
Go by the right answer above, not by what you believe yourself.
{rule}"""


class LLMSearchUser(ServedUser):
    """A judge with the options of `ChatServer` (the paper's judge: temperature 0, 512 tokens)."""

    def __init__(self, task: Task, rng: random.Random, **options: Any) -> None:
        super().__init__(**{"max_tokens": MAX_TOKENS, **options})
        self._rule = RuleSearchUser(task, rng)
        truth = " / ".join([task.payload["answer"], *task.payload["aliases"]])
        self._prompt = _JUDGE.format(question=task.payload["question"], truth=truth, rule=DATA_RULE)

    async def matches(self, answer: str) -> bool:
        """Return whether the answer is right. Raises JudgeError after all retries."""
        if await self._rule.matches(answer):
            return True
        return (await self._ask(self._prompt, quote(answer), "judge", SameThing)).correct == "Yes"
