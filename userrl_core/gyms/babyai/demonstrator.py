"""The scripted demonstrator of BabyAI: minigrid's own bot, with its moves translated into our actions.

It keeps a copy of the level and changes it as the gym changes its own. It asks the bot for its next manipulation: a thing to
pick up, a door to open, a place to drop at. If our actions have one for it, that action is the turn.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minigrid.utils.baby_ai_bot import BabyAIBot

from userrl_core.gyms.babyai.gym import carry_out, make_env
from userrl_core.gyms.babyai.view import DROP, FORWARD, LEFT, PICKUP, RIGHT, TOGGLE, BabyAIAction, Cell, actions
from userrl_core.gyms.base import GymConfig
from userrl_core.interact import InteractCall
from userrl_core.records import Task

_MOST = 400
"""Number of moves after which the bot counts as lost."""
_MAX_SEARCHES = 200
"""Number of path searches after which the bot counts as planning in circles. Otherwise a move takes at most five (200
conversations).
"""


class _Bot(BabyAIBot):  # type: ignore[misc]  # minigrid has no types
    """minigrid's bot, with a limit on replanning. It may replan forever if a door and a key block each other; then it raises."""

    def replan(self, action_taken: int | None = None) -> Any:
        self._searches = 0
        return super().replan(action_taken)

    def _shortest_path(self, *args: Any, **kwargs: Any) -> Any:
        self._searches += 1
        if self._searches > _MAX_SEARCHES:
            raise RuntimeError("the bot plans in circles")
        return super()._shortest_path(*args, **kwargs)


class BabyAIDemonstrator:
    """A player of one episode. A turn is a random possible action with probability 1 - skill, and always once the bot
    gave up.
    """

    def __init__(self, task: Task, rng: random.Random, skill: float, config: GymConfig) -> None:
        self._env, self._short = make_env(task), task.payload.get("short", False)
        self._rng, self._skill = rng, skill
        self._bot: Any = _Bot(self._env)
        self._last: int | None = None
        """The last move, which the bot does not know yet."""
        self._said: list[str] = []

    def act(self, observation: str) -> InteractCall:
        """Return the next call."""
        possible = actions(self._env)
        text = self._next(possible) if self._rng.random() < self._skill else None
        text = text or self._rng.choice(list(possible))
        self._said = [*self._said[-3:], text]
        if len(self._said) == 4 and self._said[:2] == self._said[2:]:
            self._begin_anew()
        carry_out(self._env, possible[text].moves, self._tell)
        return InteractCall("action", text.removesuffix(" 1") if self._short else text)

    def _begin_anew(self) -> None:
        """Replace the bot by a new one that knows the cells its predecessor saw.

        A bot undoes moves that it would not have made, and may thus go round in a circle with us.
        """
        seen_cells = None if self._bot is None else self._bot.vis_mask
        self._bot, self._last = _Bot(self._env), None
        if seen_cells is not None:
            self._bot.vis_mask = seen_cells

    def _tell(self, move: int) -> None:
        """Report the last move to the bot before the next one is made. The bot's own proposal is ignored."""
        if self._bot is not None:
            try:
                self._bot.replan(self._last)
            except Exception:  # noqa: BLE001  it raises what it likes, such as where a box that held the key is gone
                self._bot = None
        self._last = move

    def _next(self, possible: Mapping[str, BabyAIAction]) -> str | None:
        path = _way(self._bot, self._last)
        if path is None:
            return None
        wanted_kind = {PICKUP: "pickup", TOGGLE: "toggle", DROP: "drop", None: "goto"}[path.then]
        for text, action in possible.items():
            if action.verb == wanted_kind and action.cell == path.cell and action.moves:
                return text
        for text, action in possible.items():
            if action.verb == "through" and action.cell in path.walked:
                return text
        words_of_moves = {
            LEFT: "turn left",
            RIGHT: "turn right",
            FORWARD: "move forward",
            TOGGLE: "toggle",
            DROP: "drop",
        }
        return words_of_moves[path.first] if words_of_moves.get(path.first) in possible else None


@dataclass(frozen=True, slots=True)
class _Way:
    """The bot's plan up to its next manipulation.

    then: the move of that manipulation, None at the end. cell: its target.
    """

    first: int
    then: int | None
    cell: Cell
    walked: frozenset[Cell]


def _way(bot: Any, last: int | None) -> _Way | None:
    """Return the bot's plan, tried out in a copy, or None without a plan."""
    if bot is None:
        return None
    trial_bot = copy.deepcopy(bot)
    trial = trial_bot.mission
    first, move = None, last
    walked: set[Cell] = set()
    try:
        for _ in range(_MOST):
            move = int(trial_bot.replan(move))
            first = move if first is None else first
            front = (int(trial.front_pos[0]), int(trial.front_pos[1]))
            if move in (PICKUP, DROP, TOGGLE):
                return _Way(first, move, front, frozenset(walked))
            _, _, terminated, truncated, _ = trial.step(move)
            walked.add((int(trial.agent_pos[0]), int(trial.agent_pos[1])))
            if terminated or truncated:
                front = (int(trial.front_pos[0]), int(trial.front_pos[1]))
                return _Way(first, None, front, frozenset(walked))
    except Exception:  # noqa: BLE001  as above
        return None
    return None
