"""A person who has an entity in mind (UserRL appendix F)."""

from __future__ import annotations

from userrl_core.gyms.human_user import KEEP_QUIET, Answer, HumanUser
from userrl_core.gyms.stemming import normalise


class HumanTelepathyUser(HumanUser):
    """A person who answers questions and judges guesses. A guess equal to the entity's name needs no judgement."""

    async def reply(self, question: str) -> Answer:
        """Return the typed Yes, No or Maybe."""
        self._show_entity()
        return self.console.answer(f"The agent asks: {question}\n")

    async def matches(self, guess: str) -> bool:
        """Return whether the guess names the entity."""
        self._show_entity()
        if normalise(guess) == normalise(str(self.task.payload["title"])):
            return True
        while True:
            verdict = self.console.answer(f"The agent guesses: {guess}\nIs that it?")
            if verdict != "Maybe":
                return verdict == "Yes"
            self.console.show("A guess is right or wrong.")

    def _show_entity(self) -> None:
        self.console.show_once(f"You have this in mind: {self.task.payload['title']}. {KEEP_QUIET}")
