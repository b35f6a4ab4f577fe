"""A person who wants an outfit and tells a colour when asked for it (UserRL appendix F)."""

from __future__ import annotations

import random
import re

from userrl_core.gyms.human_user import Console, HumanUser
from userrl_core.gyms.wish.tasks import COLOURS
from userrl_core.records import Task


class HumanWishUser(HumanUser):
    """A person who answers questions about garments. A search needs nobody, and what is unclear is answered by rule."""

    def __init__(self, task: Task, rng: random.Random, *, console: Console | None = None) -> None:
        super().__init__(task, rng, console=console)
        self._heard = ""

    def hears(self, sentence: str) -> None:
        """Note the agent's words. The next call of `colour` is about them."""
        self._heard = sentence

    async def colour(self, garment: str, colour: str | None, repeated: bool) -> tuple[str, bool]:
        """Return the person's sentence, and whether it names the colour. A sentence with another colour is asked for again."""
        wishes = ", ".join(f"{name} in {wished_colour}" for name, wished_colour in self.task.payload["wished"].items())
        self.console.show_once(
            f"You want: {wishes}.\nName a colour only when the agent asks for it. You may hesitate first."
        )
        self.console.show(f"The agent says: {self._heard}")
        while True:
            sentence = self.console.line(f"You say (about the {garment}): ")
            named_colours = {token for token in re.findall(r"[a-z]+", sentence.lower()) if token in COLOURS}
            if named_colours <= {colour}:
                return sentence, bool(named_colours)
            due = f"{colour}, or no colour" if colour else "no colour, since you do not need that"
            self.console.show(f"Name {due}.")
