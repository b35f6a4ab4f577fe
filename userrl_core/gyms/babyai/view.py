"""The agent's view in words, and its possible actions.

An action in words is a list of minigrid's moves: the walk there, then the action itself. Walks use cells in view only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE = range(6)
STEPS = ((1, 0), (0, 1), (-1, 0), (0, -1))
"""The step forward for each direction, in minigrid's order."""
HELD = ("key", "ball", "box")
Cell = tuple[int, int]


@dataclass(frozen=True, slots=True)
class VisibleObject:
    """A thing in view. name: with its number among things of that name, the nearest first. ahead, right: in steps."""

    name: str
    kind: str
    cell: Cell
    ahead: int
    right: int


@dataclass(frozen=True, slots=True)
class BabyAIAction:
    """A possible action. moves: minigrid's. verb: goto, pickup, through, toggle, drop or move. cell: its target."""

    moves: tuple[int, ...]
    verb: str
    cell: Cell | None = None


def look(env: Any) -> list[VisibleObject]:
    """Return the things in view, the nearest first. env: an unwrapped minigrid environment."""
    return _objects(env, _visible(env))


def _objects(env: Any, cells: Mapping[Cell, Any]) -> list[VisibleObject]:
    objects = []
    for cell, cell_object in cells.items():
        if cell_object is None or cell_object.type in ("wall", "floor") or cell == tuple(map(int, env.agent_pos)):
            continue
        vx, vy = env.relative_coords(*cell)
        state = ""
        if cell_object.type == "door":
            state = "open " if cell_object.is_open else "locked " if cell_object.is_locked else "closed "
        ahead, right = env.agent_view_size - 1 - vy, vx - env.agent_view_size // 2
        objects.append(
            VisibleObject(f"{cell_object.color} {state}{cell_object.type}", cell_object.type, cell, ahead, right)
        )
    objects.sort(key=lambda visible: (visible.ahead + abs(visible.right), visible.right))
    counts: dict[str, int] = {}
    numbered = []
    for visible in objects:
        counts[visible.name] = counts.get(visible.name, 0) + 1
        numbered.append(
            VisibleObject(
                f"{visible.name} {counts[visible.name]}", visible.kind, visible.cell, visible.ahead, visible.right
            )
        )
    return numbered


def describe(env: Any) -> str:
    """Describe the things in view, the wall ahead and the carried thing."""
    sentences = []
    cells = _visible(env)
    for visible in _objects(env, cells):
        side = f" and {abs(visible.right)} to the {'right' if visible.right > 0 else 'left'}" if visible.right else ""
        sentences.append(f"{visible.name} is {visible.ahead} ahead{side}")
    in_view = f"In view: {'; '.join(sentences)}." if sentences else "Nothing is in view."
    carried = f"You carry a {env.carrying.color} {env.carrying.type}." if env.carrying else "You carry nothing."
    return f"{in_view} {_wall(env, cells)} {carried}"


def actions(env: Any) -> Mapping[str, BabyAIAction]:
    """Return every action that is possible now, by its words."""
    front = (int(env.front_pos[0]), int(env.front_pos[1]))
    ahead = env.grid.get(*front)
    by_words = {"turn left": BabyAIAction((LEFT,), "move"), "turn right": BabyAIAction((RIGHT,), "move")}
    if ahead is None or ahead.can_overlap():
        by_words["move forward"] = BabyAIAction((FORWARD,), "move")
    visible = _visible(env)
    paths = _paths(env, visible)
    for target in _objects(env, visible):
        path = paths.get(target.cell)
        if path is None:
            continue
        by_words[f"go to {target.name}"] = BabyAIAction(path, "goto", target.cell)
        if target.kind in HELD and env.carrying is None:
            by_words[f"pick up {target.name}"] = BabyAIAction((*path, PICKUP), "pickup", target.cell)
        if target.kind == "door":
            door = visible[target.cell]
            if door.is_open:
                by_words[f"go through {target.name}"] = BabyAIAction((*path, FORWARD, FORWARD), "through", target.cell)
            elif not door.is_locked or _fits(env.carrying, door):
                by_words[f"toggle and go through {target.name}"] = BabyAIAction(
                    (*path, TOGGLE, FORWARD, FORWARD), "toggle", target.cell
                )
    if ahead is not None and ahead.type in ("door", "box"):
        by_words["toggle"] = BabyAIAction((TOGGLE,), "toggle", front)
    if ahead is None and env.carrying is not None:
        by_words["drop"] = BabyAIAction((DROP,), "drop", front)
    return by_words


def _visible(env: Any) -> dict[Cell, Any]:
    _, mask = env.gen_obs_grid()
    x, y = map(int, env.agent_pos)
    dx, dy = STEPS[env.agent_dir]
    cells = {}
    for vx, vy in zip(*mask.nonzero(), strict=True):  # in the agent's view: it is at the middle of the last row
        ahead, right = env.agent_view_size - 1 - int(vy), int(vx) - env.agent_view_size // 2
        cell = (x + ahead * dx - right * dy, y + ahead * dy + right * dx)
        if 0 <= cell[0] < env.grid.width and 0 <= cell[1] < env.grid.height:
            cells[cell] = env.grid.get(*cell)
    return cells


def _wall(env: Any, visible: Mapping[Cell, Any]) -> str:
    x, y = map(int, env.agent_pos)
    dx, dy = STEPS[env.agent_dir]
    for steps in range(1, env.agent_view_size):
        cell = (x + steps * dx, y + steps * dy)
        if cell in visible and visible[cell] is not None and visible[cell].type == "wall":
            return f"A wall is {steps} ahead."
    return "No wall is in sight ahead."


def _paths(env: Any, visible: Mapping[Cell, Any]) -> dict[Cell, tuple[int, ...]]:
    """Return, for each cell, the shortest list of moves after which the agent is in front of the cell and faces it."""
    x, y = map(int, env.agent_pos)
    start = (x, y, int(env.agent_dir))
    came: dict[tuple[int, int, int], tuple[int, ...]] = {start: ()}
    queue = deque([start])
    facing: dict[Cell, tuple[int, ...]] = {}
    while queue:
        x, y, direction = state = queue.popleft()
        dx, dy = STEPS[direction]
        front = (x + dx, y + dy)
        facing.setdefault(front, came[state])
        walked = (*front, direction)
        options = [(LEFT, (x, y, (direction - 1) % 4)), (RIGHT, (x, y, (direction + 1) % 4))]
        if front in visible and (visible[front] is None or visible[front].can_overlap()):
            options.insert(0, (FORWARD, walked))
        for move, after in options:
            if after not in came:
                came[after] = (*came[state], move)
                queue.append(after)
    return facing


def _fits(carried: Any, door: Any) -> bool:
    return carried is not None and carried.type == "key" and carried.color == door.color
