"""Our gyms as Gymnasium environments: ``gymnasium.make("userrl/Travel-v0")``, synchronous, with text actions and
observations.

An action is an agent's message: ``[choice] content`` as in the released gyms (``[finish]`` gives up), or a reply with a
``<tool_call>``. Importing this module registers every gym. So does an id that contains the module:
``gymnasium.make("userrl_core.gyms.gymnasium_env:userrl/Travel-v0")``. Gymnasium no longer loads plugins by entry point.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Mapping
from typing import Any

import gymnasium
from gymnasium import spaces

from userrl_core.errors import ConfigError
from userrl_core.gyms.base import Gym
from userrl_core.gyms.registry import clashes, gym_class, make, names, tasks
from userrl_core.gyms.sync import complete
from userrl_core.interact import InteractCall, parse_text
from userrl_core.records import Task

_LETTERS = "".join(
    map(chr, [*range(0xA0, 0x250), *range(0x370, 0x530), *range(0x2010, 0x2028), *range(0x2030, 0x205F)])
)
CHARSET = frozenset(string.printable + _LETTERS + "€£→←−≤≥≠×÷∞…✓\ufffd")
"""The characters of the observation space. Any other character becomes U+FFFD."""
MAX_ACTION_LENGTH = 20_000
MAX_OBSERVATION_LENGTH = 200_000
_BRACKET = re.compile(r"\s*\[(\w+)\]\s*(.*)\Z", re.DOTALL)


class UserRLEnv(gymnasium.Env[str, str]):  # type: ignore[misc, unused-ignore]
    """One gym behind Gymnasium's synchronous interface.

    gym: name in the registry. task: the task of every episode; None draws one of ``split`` at every reset.
    task_options: options of the task set, such as ``{"tier": "tiny"}``. user: as for `userrl_core.gyms.make`.
    horizon: turns until truncation (16 in the papers' runs). config: fields of the gym's config. If scoring did not
    run, the reward is NaN and the episode is truncated. UserError and JudgeError pass through.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012  Gymnasium's own attribute

    def __init__(
        self,
        gym: str,
        task: Task | None = None,
        split: str = "train",
        task_options: Mapping[str, Any] | None = None,
        user: Any = "rule",
        horizon: int = 16,
        render_mode: str | None = None,
        **config: Any,
    ) -> None:
        """Check the arguments. Raises ConfigError for an unknown gym, split, user or option, and for a horizon below 1."""
        if horizon < 1:
            raise ConfigError("argument.out_of_range", f"Horizon {horizon} allows no turn. Give 1 or more.")
        self.name = gym
        self.horizon = horizon
        self.render_mode = render_mode
        self._tasks = [task] if task is not None else tasks(gym, split, **(task_options or {}))
        if not self._tasks:
            raise ConfigError("task.none_left", f"Gym '{gym}' has no task in split '{split}'. Use another split.")
        self._user = user
        self._config = config
        self._gym: Gym[Any] | None = None
        self._lines: list[str] = []
        self.action_space = spaces.Text(max_length=MAX_ACTION_LENGTH, min_length=0, charset=CHARSET)
        self.observation_space = spaces.Text(max_length=MAX_OBSERVATION_LENGTH, min_length=0, charset=CHARSET)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start a new episode. options: ``{"task": Task}`` selects that task. info: task id, split and allowed choices."""
        super().reset(seed=seed)
        self._close_gym()
        task = (options or {}).get("task")
        if task is None:
            task = self._tasks[int(self.np_random.integers(len(self._tasks)))]
        self._gym = make(self.name, task, self._user, **self._config)
        opening = self._gym.reset(seed=int(self.np_random.integers(2**62)))
        self._lines = [opening]
        return _encodable(opening), {"task_id": task.id, "split": task.split, "choices": self._gym.choices()}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Execute one agent message. An unreadable one costs a turn and earns 0.0; info then holds ``format_error``."""
        if self._gym is None:
            raise gymnasium.error.ResetNeeded("Call reset() before step().")
        call, error = _parse(str(action))
        if call is not None and call.choice == "finish":
            complete(self._gym.aclose())
            return "The attempt is over.", 0.0, True, False, self._info({})
        if call is None:
            self._gym.turns += 1
            observation, reward, terminated, info = error, 0.0, False, {"format_error": True}
        else:
            result = complete(self._gym.step(call))
            observation, terminated, info = result.observation, result.terminated, dict(result.info)
            reward = math.nan if result.reward is None else result.reward
        self._lines += [str(action), observation]
        truncated = not terminated and (math.isnan(reward) or self._gym.turns >= self.horizon)
        return _encodable(observation), float(reward), terminated, truncated, self._info(info)

    def render(self) -> str | None:  # type: ignore[override, unused-ignore]
        """Return the conversation so far, for render mode ``ansi``."""
        return "\n".join(self._lines) if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Release the gym."""
        self._close_gym()

    def _info(self, info: dict[str, Any]) -> dict[str, Any]:
        assert self._gym is not None
        return {**info, "turn": self._gym.turns, "score": self._gym.score()}

    def _close_gym(self) -> None:
        if self._gym is not None:
            complete(self._gym.aclose())
            self._gym = None


def _parse(action: str) -> tuple[InteractCall | None, str]:
    bracket = _BRACKET.match(action)
    if bracket is not None:
        return InteractCall(bracket[1].lower(), bracket[2].strip()), ""
    parsed = parse_text(action)
    return parsed.call, "" if parsed.call else "The message holds neither '[choice] content' nor a readable tool call."


def _encodable(text: str) -> str:
    """Fit a text into the observation space: replace other characters and cut it at the maximum length."""
    replaced = text if CHARSET.issuperset(text) else "".join(c if c in CHARSET else "\ufffd" for c in text)
    return replaced[:MAX_OBSERVATION_LENGTH]


def environment_id(name: str) -> str:
    """Return the Gymnasium id of a gym: ``userrl/Travel-v0`` for ``travel``."""
    return f"userrl/{gym_class(name).__name__.removesuffix('Gym')}-v0"


def register_all() -> None:
    """Register every gym with Gymnasium. Gyms that are registered already, or that several packages define, are skipped."""
    for name in names():
        if name not in clashes() and environment_id(name) not in gymnasium.registry:
            gymnasium.register(id=environment_id(name), entry_point=f"{__name__}:UserRLEnv", kwargs={"gym": name})


register_all()
