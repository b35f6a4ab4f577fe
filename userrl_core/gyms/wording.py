"""Sentences in several wordings, drawn from a task's seed.

Training and validation tasks share one set of wordings, test tasks have another, so that a model cannot succeed by
remembering a template. All conversations of a task meet the same wordings in the same order.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from userrl_core.records import Task
from userrl_core.seeding import derive_seed


@dataclass(frozen=True, slots=True)
class Act:
    """The wordings of one act of speech, such as a hesitation."""

    train: tuple[str, ...]
    test: tuple[str, ...]


class Wordings:
    """Draws the wordings of one conversation. Acts are numbered: asked twice, a user may say it in other words."""

    def __init__(self, acts: Mapping[str, Act], task: Task) -> None:
        self._acts, self._task = acts, task
        self._said: Counter[str] = Counter()

    def say(self, act: str, **values: str) -> str:
        """Return the next wording of an act with its words filled in."""
        wordings = self._acts[act].test if self._task.split == "test" else self._acts[act].train
        seed = derive_seed("wording", self._task.gym, self._task.id, act, self._said[act])
        self._said[act] += 1
        sentence = random.Random(seed).choice(wordings).format(**values)
        return sentence[0].upper() + sentence[1:]


def listed(names: Sequence[str]) -> str:
    """Return names as English lists them: a, b and c."""
    return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), *names[-1:]])


def with_article(noun: str) -> str:
    """Return a noun with its article. Plurals and ``salt`` get no article."""
    if noun.endswith("s") or noun == "salt":
        return noun
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
