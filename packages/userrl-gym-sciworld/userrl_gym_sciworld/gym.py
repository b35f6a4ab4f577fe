"""SciWorld (AgentGym-RL B.5), on the simulator of the package `scienceworld`.

The simulator's score runs from -100 to 100. Here the score is max(score, 0) / 100, and a turn's reward is its change. A raw
score below 0 (focus on a wrong object) ends the episode, as in the released server. Success is the full score.

Needs the extra ``envs`` and Java.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, ClassVar, Literal

from userrl_core.gyms.base import Gym, GymConfig, Reply
from userrl_gym_sciworld.simulator import load, missing, release


class SciWorldConfig(GymConfig):
    """Settings of SciWorld."""

    rooms: Literal["full", "names"] = "full"
    """full: the simulator's description of a room. names (ours, for models of laptop size): the room, its things and its doors by
    name alone, also in the brief opening.
    """


class SciWorldGym(Gym[SciWorldConfig]):
    """One task of SciWorld."""

    name = "sciworld"
    config_type = SciWorldConfig
    metric = "Score"
    reward_range = (-1.0, 1.0)
    goal = (
        "You are in a house with a laboratory, a greenhouse and a yard, and have a scientific task to carry out. Focus only on "
        "what the task names: another focus ends it."
    )
    hint = "Look around in each room, take along what is needed, and read the task again when in doubt (action: task)."
    irreproducible = "its simulator lists what is in a room in another order from one episode to the next"
    choice_help: ClassVar = {
        "action": "one action, with things (OBJ) and places (LOC) by name: look around; look at OBJ; look in OBJ; go to LOC; "
        "open OBJ; close OBJ; activate OBJ; deactivate OBJ; pick up OBJ; put down OBJ; move OBJ to OBJ; pour OBJ into OBJ; "
        "dunk OBJ into OBJ; mix OBJ; use OBJ on OBJ; connect OBJ to OBJ; disconnect OBJ; read OBJ; eat OBJ; focus on OBJ; wait; "
        "inventory; task"
    }

    @classmethod
    def unavailable(cls) -> str:
        """Return the missing requirement, Java or the package, in one sentence; "" if both are installed."""
        return missing()

    def opening(self) -> str:
        """Return the task and its first room. Raises ConfigError without Java."""
        self._simulator = load(self.task.payload["task"], self.task.payload["variation"])
        self._score = 0.0
        self.points = 0
        self._room = self._shown(str(self._simulator.step("look around")))
        return f"{self._simulator.getTaskDescription()}\n{self._room}"

    def brief(self) -> str:
        """Return the task only, with the first room if rooms are shown by names."""
        task = " ".join(str(self._simulator.getTaskDescription()).split())
        return f"{task}\n{self._room}" if self.config.rooms == "names" else str(self._simulator.getTaskDescription())

    def _shown(self, text: str) -> str:
        return text if self.config.rooms == "full" else names_in_room(text)

    async def action(self, content: str) -> Reply:
        """Carry out one action."""
        return await asyncio.to_thread(self._act, " ".join(content.split()))

    def _act(self, text: str) -> Reply:
        observation = self._shown(str(self._simulator.step(text)))
        self.points = score = round(100 * self._simulator.getScore())
        before, self._score = self._score, max(score, 0) / 100
        done = bool(self._simulator.getCompleted()) or score < 0
        return Reply(observation, self._score - before, done, success=score >= 100)

    async def aclose(self) -> None:
        """Give the simulator back."""
        await super().aclose()
        simulator: Any = self.__dict__.pop("_simulator", None)
        if simulator is not None:
            release(simulator)


_ROOM = re.compile(r"This (?:room|outside location) is called the (.+?)\.")
_THING = re.compile(r"\t(?:an?|the|A door to the) (?:substance called )?([^.,(\n]+)")


def names_in_room(text: str) -> str:
    """Return a room's description as names alone: the room, its things, its doors. Another text stays as it is."""
    room = _ROOM.match(text)
    if room is None:
        return text
    things, _, doors = text.partition("You also see:")
    thing_names, door_names = ([name.strip() for name in _THING.findall(part)] for part in (things, doors))
    return f"{room[1]}: {', '.join(name for name in thing_names if name not in ('agent', 'air'))}; to {', '.join(door_names)}"
