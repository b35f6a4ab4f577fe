"""BabyAI in words (AgentGym-RL B.4). The rooms are minigrid's; the descriptions and actions are ours.

A success pays 1 - 0.9 t/T (minigrid's reward), for t moves made and the level's maximum T. Everything else pays 0. Success is
any reward above 0. There are two departures from the released server:

- It prints actions as ``pickup`` but its instruction says ``pick up``. Here both are accepted, and a thing without
  its number is the nearest of that name.
- There a late success does not end the episode, and its score continues to rise. Here any success ends the episode.

In the tiny tier, for models of laptop size, observations are names only. Needs the extra ``envs`` (minigrid).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import Any, ClassVar

import gymnasium
import minigrid  # noqa: F401  registers its environments

from userrl_core.gyms.babyai.levels import environment_of
from userrl_core.gyms.babyai.view import actions, describe, look
from userrl_core.gyms.base import Gym, GymConfig, Reply
from userrl_core.records import Task

LIST = "check available actions"
NO, NOTHING = "no", "nothing"
"""The tiny tier's observations for an impossible action, and for an empty view."""


class BabyAIGym(Gym[GymConfig]):
    """A level of BabyAI: reach its goal."""

    name = "babyai"
    metric = "Success, less with every move"
    full_score = 0.1
    """The reward of the last possible move. The first pays almost 1."""
    goal = (
        "You are in a world of rooms and have a goal to reach. You see what lies before you; things of one name are numbered, the "
        "nearest first. A closed door can be opened, a locked one only with a key of its colour that you carry."
    )
    hint = "If what you look for is not in view, turn, and go through doors that you have not been through."
    choice_help: ClassVar = {
        "action": "one of the available actions, in its own words: go to red ball 1; or pick up green key 1; or turn left"
    }

    def opening(self) -> str:
        """Return the goal, the things in view and the available actions."""
        self._env = make_env(self.task)
        self._short: bool = self.task.payload.get("short", False)
        return f"Your goal: {self._env.mission}\n{self._seen()}"

    def brief(self) -> str:
        """Return the goal without articles and the names in view in the tiny tier; the opening in other tiers."""
        goal = " ".join(token for token in self._env.mission.split() if token not in ("a", "the"))
        return f"{goal}\n{self._seen()}" if self._short else f"Your goal: {self._env.mission}\n{self._seen()}"

    def ready(self) -> Mapping[str, Sequence[str]]:
        """Return the actions that are possible now."""
        return {"action": list(actions(self._env))}

    async def action(self, content: str) -> Reply:
        """Carry out one action until it is done or something is in the way."""
        text = " ".join(content.lower().split()).rstrip(".").replace("pickup ", "pick up ")
        possible = actions(self._env)
        if text == LIST:
            return Reply(self._seen())
        text = f"{text} 1" if f"{text} 1" in possible else text  # without a number it is the nearest
        if text not in possible:
            return Reply(NO if self._short else f"'{text[:60]}' is not possible now.\n{self._seen()}")
        reward, over = carry_out(self._env, possible[text].moves)
        if over:
            return Reply("The goal is reached." if reward > 0 else "It is over.", reward, True, success=reward > 0)
        return Reply(self._seen(), reward)

    def _seen(self) -> str:
        if self._short:
            return (
                ",".join(dict.fromkeys(visible_object.name.rpartition(" ")[0] for visible_object in look(self._env)))
                or NOTHING
            )
        action_list = ", ".join(f'"{text}"' for text in (*actions(self._env), LIST))
        return f"{describe(self._env)}\nAvailable actions: [{action_list}]"

    async def aclose(self) -> None:
        """Close the environment."""
        await super().aclose()
        if hasattr(self, "_env"):
            self._env.close()


def make_env(task: Task) -> Any:
    """Make the level's environment, in its state at the start of the task's episode."""
    name, options = environment_of(task.payload["level"], task.payload.get("version", 1))
    env = gymnasium.make(name, **options).unwrapped
    with redirect_stdout(StringIO()):  # it prints every world that it throws away
        env.reset(seed=task.payload["seed"])
    return env


def carry_out(env: Any, moves: tuple[int, ...], watch: Callable[[int], None] = lambda move: None) -> tuple[float, bool]:
    """Make the moves until one changes nothing or ends the episode. Return the reward and whether the episode has ended.

    watch: called with each move before it is made.
    """
    for move in moves:
        before = _state(env)
        watch(move)
        _, reward, terminated, truncated, _ = env.step(move)
        if terminated or truncated:
            return float(reward), True
        if _state(env) == before:
            break
    return 0.0, False


def _state(env: Any) -> tuple[Any, ...]:
    ahead = env.grid.get(*env.front_pos)
    return tuple(env.agent_pos), env.agent_dir, env.carrying, ahead, getattr(ahead, "is_open", None)
