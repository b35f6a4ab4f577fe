"""Our gyms behind the interface of the released gyms, for their trainer: ``reset()`` and ``step_async(action)``.

An action is ``[action|answer|search|finish] text``. A step returns (observation, reward, terminated, truncated, info). The
agent sees only the feedback. A step after the end raises.
"""

from __future__ import annotations

import re
from typing import Any

from userrl_core.errors import ConfigError, GymError, TaskError
from userrl_core.gyms.registry import make
from userrl_core.gyms.sync import complete
from userrl_core.interact import InteractCall
from userrl_core.records import Task

_ACTION = re.compile(r"\s*\[(action|answer|search|finish)\]\s*(.*)", re.DOTALL | re.IGNORECASE)


class ReleasedEnv:
    """Consecutive episodes of a gym's task.

    max_steps: steps of an episode (released default: 20). user, config: as in `make`. If scoring did not run, the step raises
    TaskError, because the released trainer would count a missing reward as a failure of the agent.
    """

    def __init__(
        self, gym: str, task: Task | None = None, user: Any = "rule", max_steps: int = 20, **config: Any
    ) -> None:
        if max_steps < 1:
            raise ConfigError("argument.out_of_range", f"max_steps {max_steps} allows no step. Give 1 or more.")
        self._made, self.max_steps = (gym, task, user, config), max_steps
        self._gym: Any = None
        self._steps, self._over = 0, True

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start an episode. Return the observation, whose feedback is the user's opening, and info."""
        gym, task, user, config = self._made
        self._gym = make(gym, task, user, **config)
        self._steps, self._over = 0, False
        return {"feedback": self._gym.reset(seed=seed), "step": 0}, {"task_id": self._gym.task.id}

    async def step_async(self, action: str) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Execute one action string. Raises GymError before `reset` and after the end."""
        if self._over:
            raise GymError("gym.misused", "The episode is over or has not begun. Call reset() first.")
        self._steps += 1
        match = _ACTION.match(action)
        terminated, reward, info = False, 0.0, {}
        if match is None:
            feedback = "Write [action], [answer], [search] or [finish], then the text."
        elif match[1].lower() == "finish":
            feedback, terminated = "The attempt is over.", True
        else:
            result = await self._gym.step(InteractCall(match[1].lower(), match[2].strip()))
            if result.reward is None:
                self._over = True
                raise TaskError("gym.not_scored", "The turn was not scored. Check the user model, then call reset().")
            feedback, reward, terminated, info = result.observation, result.reward, result.terminated, dict(result.info)
        truncated = not terminated and self._steps >= self.max_steps
        self._over = terminated or truncated
        return {"feedback": feedback, "step": self._steps}, reward, terminated, truncated, info

    def step(self, action: str) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Execute one action string from synchronous code."""
        return complete(self.step_async(action))

    def close(self) -> None:
        """Release the gym."""
        if self._gym is not None:
            complete(self._gym.aclose())
        self._over = True
