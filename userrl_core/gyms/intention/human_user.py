"""A person with an underspecified request (UserRL appendix F)."""

from __future__ import annotations

from collections.abc import Sequence

from userrl_core.gyms.human_user import HumanUser
from userrl_core.gyms.intention.gym import Detail, Exchange, details_of


class HumanIntentionUser(HumanUser):
    """A person who answers questions about the request and marks the details that a question asks for."""

    async def reply(self, question: str, conversation: Sequence[Exchange]) -> str:
        """Return the typed answer."""
        detail_lines = "\n".join(f"  - {d.description} (importance {d.importance})" for d in details_of(self.task))
        self.console.show_once(
            f"Your request: {self.task.payload['task']}\nIt leaves open:\n{detail_lines}\n"
            "Make up an answer where the agent asks for one of them. Do not name what it has not asked for."
        )
        return self.console.line(f"The agent asks: {question}\nYou say: ")

    async def covered(self, question: str, remaining: Sequence[Detail]) -> Sequence[int]:
        """Return the indices of the details typed as numbers; 0 means none."""
        detail_lines = "\n".join(f"  {i}. {detail.description}" for i, detail in enumerate(remaining, 1))
        self.console.show(f"Which of these did the question ask for?\n{detail_lines}")
        while True:
            typed = self.console.line("Numbers, or 0 for none: ").replace(",", " ").split()
            if all(part.isdecimal() and int(part) <= len(remaining) for part in typed):
                return sorted({int(part) - 1 for part in typed if int(part) > 0})
            self.console.show(f"Type numbers from 1 to {len(remaining)} with spaces between them, or 0.")
