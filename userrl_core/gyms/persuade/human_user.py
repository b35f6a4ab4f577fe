"""A person who holds the claim (UserRL appendix F)."""

from __future__ import annotations

from userrl_core.gyms.human_user import HumanUser
from userrl_core.gyms.persuade.gym import STANCES, ListenerResponse


class HumanPersuadeUser(HumanUser):
    """A person who defends the claim and states a stance after each argument."""

    async def respond(self, argument: str, stance: str) -> ListenerResponse:
        """Return the typed response and the chosen stance."""
        payload = self.task.payload
        self.console.show_once(
            f"You hold this claim: {payload['claim']}\n{payload['argument']}\n"
            "Answer as somebody who can be moved by good reasons and by nothing else."
        )
        self.console.show(f"The agent argues: {argument}\n(So far you: {stance}.)")
        response = self.console.line("You say: ")
        level = self.console.choose("Your stance now: ", STANCES)
        return ListenerResponse(response, STANCES[level])
