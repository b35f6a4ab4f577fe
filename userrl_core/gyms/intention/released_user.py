"""IntentionGym's user with the texts and the message order of UserRL's released code (``prompts: released``).

The released reply prompt contains the whole task, its missing details included. Unlike there, a reply without a readable
judgement is requested again and then gives a null reward. Indices outside the list are ignored, as there.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from userrl_core.gyms.intention.gym import Detail, Exchange
from userrl_core.gyms.intention.tasks import FOLDER
from userrl_core.gyms.released_texts import Source, Template, published_root, rows_by_id
from userrl_core.gyms.served_user import ServedUser
from userrl_core.records import Task
from userrl_core.served.plain import read_object, read_text, spoken

EXCHANGES = 3
"""Latest exchanges that a prompt repeats (released code)."""
LEVELS = {1: "LOW", 2: "MEDIUM", 3: "HIGH"}
REPLY, JUDGE = "build_response_generation_prompt", "build_evaluation_prompt"


@dataclass(frozen=True, slots=True)
class IntentionTexts:
    """The released texts, by role."""

    reply_system: str
    reply: str
    reply_before: str
    reply_line: Template
    reply_first: str
    judge_system: str
    judge: str
    judge_before: str
    judge_line: Template
    judge_first: str
    judge_details: tuple[Template, ...]
    judge_none: str


@lru_cache(maxsize=4)
def read_texts(root: Path) -> IntentionTexts:
    """Read the texts from a folder of published data. Raises MissingFileError or ConfigError."""
    source = Source(root, "userrl", "gyms/IntentionGym/intentiongym/env/prompts.py")
    details = source.added(JUDGE, "details_list")
    return IntentionTexts(
        reply_system=source.message("generate_response_async", "system"),
        reply=source.constant("RESPONSE_GENERATION_PROMPT"),
        reply_before=source.assigned(REPLY, "context", 2)[1].text,
        reply_line=source.added(REPLY, "context")[0],
        reply_first=source.otherwise(REPLY, "conversation_history"),
        judge_system=source.message("evaluate_question_coverage_async", "system"),
        judge=source.constant("EVALUATION_PROMPT"),
        judge_before=source.assigned(JUDGE, "context", 2)[1].text,
        judge_line=source.added(JUDGE, "context")[0],
        judge_first=source.otherwise(JUDGE, "conversation_history"),
        judge_details=details,
        judge_none=source.otherwise(JUDGE, "details_list"),
    )


class ReleasedIntentionUser(ServedUser):
    """A served user with the released prompts. texts: the folder of published data; further options of `ChatServer`."""

    def __init__(self, task: Task, rng: random.Random, *, texts: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        root = published_root(texts)
        self._texts = read_texts(root)
        self._task = _released_task(task, root)
        self._said: list[tuple[str, str]] = []

    async def reply(self, question: str, conversation: Sequence[Exchange]) -> str:
        """Return the user's answer. Raises UserError."""
        self._said = [(_as_action(e.question), e.answer) for e in conversation][-EXCHANGES:]
        t, lines = self._texts, self._said
        past = "".join(t.reply_line.fill(prev_q=q, prev_r=r) for q, r in lines)
        return await self._ask_in_words(
            t.reply_system,
            t.reply.format(
                task=self._task,
                category=self._task.get("category", "General"),
                question=spoken(question),
                conversation_history=t.reply_before + past if past else t.reply_first,
            ),
            "user",
            _reply,
        )

    async def covered(self, question: str, remaining: Sequence[Detail]) -> Sequence[int]:
        """Return the indices of the details that the question asks for. Raises JudgeError."""
        t, lines = self._texts, list(enumerate(self._said, 1))
        past = "".join(t.judge_line.fill(i=str(i), prev_q=q, prev_r=r) for i, (q, r) in lines)
        details = "".join(self._detail(number, detail) for number, detail in enumerate(remaining))
        prompt = t.judge.format(
            task=self._task,
            category=self._task.get("category", "General"),
            details_list=details or t.judge_none,
            question=spoken(question),
            conversation_history=t.judge_before + past if past else t.judge_first,
        )
        indices = await self._ask_in_words(t.judge_system, prompt, "judge", _indices)
        return [index for index in indices if index < len(remaining)]

    def _detail(self, number: int, detail: Detail) -> str:
        values = {
            "i": str(number),
            "importance_label": LEVELS[detail.importance],
            "detail['description']": detail.description,
            "detail['inquiry']": detail.inquiry,
        }
        return "".join(template.fill(**values) for template in self._texts.judge_details)


def _released_task(task: Task, root: Path) -> dict[str, Any]:
    """Return the task as the released code's prompts have it: the released row, or one made of our own task."""
    for name in ("all_intentions_train.json", "all_intentions_test.json"):
        if task.source != "ours" and (row := rows_by_id(root / "userrl" / FOLDER / name).get(task.id)) is not None:
            return row
    payload = task.payload
    details = [dict(detail, importance=str(detail["importance"])) for detail in payload["details"]]
    return {"id": task.id, "category": payload["category"], "task": payload["task"], "missing_details": details}


def _as_action(content: str) -> str:
    """Return a message as the released history has it: with its choice before it."""
    return (content if content.startswith("[action]") else f"[action] {content}").strip()


def _reply(text: str) -> str:
    """Read a reply: the field ``response``, or the whole text where there is no object (released code)."""
    if "{" not in text:
        return read_text(text)
    return read_text(read_object(text, "response")["response"])


def _indices(text: str) -> list[int]:
    """Read a judgement. Entries that are no index, and all entries of an unrelated question, count for nothing."""
    judgement = read_object(text, "covered_detail_indices")
    entries = judgement["covered_detail_indices"]
    if not isinstance(entries, list) or not judgement.get("is_task_related", True):
        return []
    return [int(entry) for entry in entries if isinstance(entry, (int, str)) and str(entry).isdecimal()]
