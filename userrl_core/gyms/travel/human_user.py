"""A person who travels and tells wishes only when asked for them (UserRL appendix F)."""

from __future__ import annotations

import random
from collections.abc import Sequence

from userrl_core.gyms.human_user import Console, HumanUser
from userrl_core.gyms.travel.query import match_query
from userrl_core.gyms.travel.world import HistoryLine, MessageReading, Preference, SearchJudgement, World
from userrl_core.records import Task

_OTHER = (
    "Another detail, of which I have no wish left to tell",
    "Nothing in particular, or many things at once",
    "It asks for no wish",
)


class HumanTravelUser(HumanUser):
    """A person who marks the requested wish and hints at it in own words. The database answers by rule."""

    def __init__(self, task: Task, rng: random.Random, *, console: Console | None = None) -> None:
        super().__init__(task, rng, console=console)
        self._world = World.of(task.payload)
        self._arguments = {name: aspect.arguments for name, aspect in self._world.aspects.items()}

    async def judge(
        self, utterance: str, candidates: Sequence[Preference], history: Sequence[HistoryLine]
    ) -> MessageReading:
        """Return the person's verdict: the requested wish, or that nothing was requested."""
        wish_lines = "\n".join(f"  - {_about(p)}: {p.preference}" for p in self._world.preferences.values())
        self.console.show_once(
            f"Your trip: {self._world.scenario}\nYour wishes:\n{wish_lines}\n"
            "Hint at a wish only where the agent asks for it, and never state it outright."
        )
        self.console.show(f"The agent says: {utterance}")
        options = [*(f"{_about(p)}: {p.preference}" for p in candidates), *_OTHER]
        choice_index = self.console.choose("What does it ask for? ", options)
        if choice_index < len(candidates):
            return MessageReading("held", candidates[choice_index].id)
        return MessageReading(("not_held", "too_vague", "other")[choice_index - len(candidates)])

    async def match(self, query: str, history: Sequence[HistoryLine]) -> SearchJudgement:
        """Match by rule: the database is not part of the user."""
        return match_query(query, self._arguments)

    async def reveal(
        self, utterance: str, preference: Preference, history: Sequence[HistoryLine], *, asked: bool
    ) -> str:
        """Return a hint in the person's words."""
        why = "" if asked else "Bring up a wish by yourself now. "
        self.console.show(
            f"{why}Hint at this, without saying it: {preference.preference} (for example: {preference.implicit})"
        )
        return self.console.line("You say: ")

    async def chat(self, utterance: str, history: Sequence[HistoryLine]) -> str:
        """Return a reply without a wish."""
        return self.console.line("You say (and tell no wish): ")


def _about(preference: Preference) -> str:
    return f"{preference.aspect.replace('_', ' ')}, {preference.category}"
