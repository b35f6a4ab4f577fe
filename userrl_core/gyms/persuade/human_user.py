"""A person who holds the claim (UserRL appendix F)."""

from __future__ import annotations

from userrl_core.gyms.human_user import HumanUser
from userrl_core.gyms.persuade.gym import STANCES, Verdict


class HumanPersuadeUser(HumanUser):
    """Speaks for the claim, and says where it stands after each argument."""

    async def hear(self, argument: str, stance: str) -> Verdict:
        """The typed response, and a stance from the list."""
        payload = self.task.payload
        self.console.tell_once(
            f"You hold this claim: {payload['claim']}\n{payload['argument']}\n"
            "Answer as somebody who can be moved by good reasons and by nothing else."
        )
        self.console.show(f"The agent argues: {argument}\n(So far you: {stance}.)")
        response = self.console.line("You say: ")
        level = self.console.choose("Your stance now: ", STANCES)
        return Verdict(response, STANCES[level])
