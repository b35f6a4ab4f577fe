"""VoiceGym: TauGym's tasks with a customer who speaks (TARL 4.3). Any user of TauGym answers; its words become sound.

A turn carries its sound (`info.audio`: path, seconds, transcript, heard), and the message to the agent has the path
as ``audio``. A policy that listens uses the sound; any other reads the heard text. The customer's first message is
text. The agent gets the customer's profile, as in the paper's speech evaluation, since spoken ids are hard to
understand.
"""

from __future__ import annotations

import json
from typing import Any

from userrl_core.gyms.base import Reply
from userrl_core.gyms.tau.database import Database
from userrl_core.gyms.tau.gym import TauConfig, TauGym
from userrl_core.gyms.tau.tools import ToolError
from userrl_core.records import Task
from userrl_gym_voice.speech import Speech

CUSTOMERS = ("users", "customers")
"""Tables of the domains' customers."""


class VoiceConfig(TauConfig):
    """TauGym's config, with the agent's knowledge about the caller."""

    profile_in_opening: bool = True
    """Whether the opening contains the customer's record, so that nobody has to spell an id (TARL 4.3)."""


class VoiceGym(TauGym):
    """A customer who speaks."""

    name = "voice"
    config_type = VoiceConfig
    config: VoiceConfig

    def __init__(self, task: Task, user: Any = None, config: VoiceConfig | None = None) -> None:
        super().__init__(task, user, config)
        self._speech = Speech.of_machine()

    def opening(self) -> str:
        """Return the customer's profile and TauGym's opening."""
        profile = self._profile() if self.config.profile_in_opening else None
        return super().opening() if profile is None else f"# The caller\n{json.dumps(profile)}\n{super().opening()}"

    async def action(self, content: str) -> Reply:
        """Send a message to the customer, whose answer is spoken and heard. Raises UserError if a speech command fails."""
        reply = await super().action(content)
        audio = await self._speech.say(reply.observation)
        reply.observation = audio.heard
        reply.info = {**reply.info, "audio": audio.as_info()}
        return reply

    def _profile(self) -> dict[str, Any] | None:
        """Return the record of the customer identified by the gold calls; None if they identify nobody."""
        for action in self.task.payload["actions"]:
            customer_id = action["kwargs"].get("user_id") or action["kwargs"].get("customer_id")
            if action["name"].startswith("find_"):
                try:
                    customer_id = self.domain.call(Database(self.base), action["name"], action["kwargs"])
                except ToolError:
                    continue
            for table in CUSTOMERS:
                if customer_id in self.base.get(table, {}):
                    return dict(self.base[table][customer_id])
        return None
