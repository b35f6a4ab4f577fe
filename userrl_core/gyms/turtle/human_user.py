"""A person who knows the hidden story (UserRL appendix F)."""

from __future__ import annotations

from userrl_core.gyms.human_user import KEEP_QUIET, Answer, HumanUser

_GRADES = {"0": 0.0, "none": 0.0, "0.5": 0.5, ".5": 0.5, "half": 0.5, "1": 1.0, "full": 1.0}


class HumanTurtleUser(HumanUser):
    """A person who answers about the hidden story and grades explanations criterion by criterion."""

    async def reply(self, question: str) -> Answer:
        """Return the typed Yes, No or Maybe."""
        self._show_story()
        return self.console.answer(f"The agent asks: {question}\n")

    async def grade(self, explanation: str) -> list[float]:
        """Return 0, 0.5 or 1 for each criterion."""
        self._show_story()
        self.console.show(f"The agent explains: {explanation}\nHow much of each does it say?")
        return [self._read_grade(criterion["statement"]) for criterion in self.task.payload["criteria"]]

    def _read_grade(self, statement: str) -> float:
        while True:
            typed = self.console.line(f"  {statement} [0/0.5/1] ").lower()
            if typed in _GRADES:
                return _GRADES[typed]
            self.console.show("Type 0, 0.5 or 1.")

    def _show_story(self) -> None:
        self.console.show_once(
            f"The agent knows this alone: {self.task.payload['surface']}\n"
            f"The hidden story: {self.task.payload['bottom']}\n{KEEP_QUIET}"
        )
