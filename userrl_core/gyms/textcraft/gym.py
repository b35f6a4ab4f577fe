"""TextCraft: make the goal from the shown recipes (AgentGym-RL B.3).

The published environment's commands are used: ``get 2 oak log``, ``craft 4 stick using 2 oak planks``, ``inventory``. One
member fills a kind in a recipe (``planks``). The reward is 1 for the goal and 0 otherwise. The score is the reward.

Departures from the released server: repeated parts are added up (there each is checked alone). Numbers have at most
six digits (there any number). A finished episode takes no further commands. A thing that only a recipe outside the
task's list makes can be fetched here. That does not help, because the list has everything that the goal needs.

In the tiny tier the name of a thing is a whole command, so that a turn costs few tokens. A thing without a recipe is fetched;
another is made once, or the missing part is named. With `TextCraftConfig.shared` useful turns of this tier are paid too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, Literal

from pydantic import Field

from userrl_core.gyms.base import Gym, GymConfig, Reply
from userrl_core.gyms.textcraft.crafting import Book, CraftingRecipe, counted, parse_craft
from userrl_core.gyms.textcraft.planner import Plan, plan
from userrl_core.interact import InteractCall
from userrl_core.records import Task

OK, NO, DONE = "ok", "no", "done"
"""The tiny tier's answers, in addition to the name of a missing part."""
CRAFTED = "Crafted"
"""The start of the observation for a craft outside the tiny tier."""


class TextCraftConfig(GymConfig):
    """Settings of the demonstrator, in addition to the settings of every gym."""

    demonstrator_depth: int = 4
    """Deepest goal that the scripted demonstrator can make. For deeper ones it acts at random."""

    shared: float = Field(default=0.0, ge=0.0, le=1.0)
    """Tiny tier: total reward of the useful turns, each paid once: a needed part is named as missing, or is got. The goal pays
    what is left of 1, so that every solution earns the same in total.
    """

    lookups_paid: bool = True
    """Whether naming a missing part has a share of `shared`. If not, getting the parts shares all of it."""

    demonstrator: Literal["plan", "trial"] = "plan"
    """plan: a shortest plan. trial (tiny tier): try the goal and get the parts reported as missing."""


class TextCraftGym(Gym[TextCraftConfig]):
    """A goal to craft."""

    name = "textcraft"
    config_type = TextCraftConfig
    metric = "Success"
    goal = (
        "You are given crafting recipes and a goal. Get what no recipe makes, and craft the rest until you have crafted the "
        "goal. Only the recipes shown may be used; where a recipe names a kind of thing, such as planks, use one thing of "
        "that kind, such as oak planks. Say in every command how many."
    )
    hint = "Work down from the goal to what can be got, add up the numbers, and then craft from the bottom up."
    choice_help: ClassVar = {
        "action": "one command: get 2 oak log; or craft 4 oak planks using 1 oak log; or inventory",
    }

    @staticmethod
    def min_turns(task: Task, config: GymConfig) -> int:
        """Return the length of the shortest plan: one turn per fetched thing and per use of a recipe."""
        return len(shortest(task))

    @classmethod
    def gold(cls, task: Task, config: TextCraftConfig) -> list[InteractCall]:
        """Follow the shortest plan."""
        return [InteractCall("action", command(step, task)) for step in shortest(task)]

    def opening(self) -> str:
        """Return the recipes and the goal."""
        self._goal: str = self.task.payload["goal"]
        self._short: bool = self.task.payload.get("short", False)
        self._book = book_of(self.task)
        self._held: dict[str, int] = {}
        self._made = False
        self._earned = 0.0
        self._unpaid: set[tuple[str, str]] = set()
        """Useful turns that were not paid yet: ``named`` or ``got`` with a part that the goal needs."""
        if self._short and self.config.shared:
            needed_parts = {part for recipe in self._book.needed(self._goal) for part, _ in recipe.parts}
            kinds = ("named", "got") if self.config.lookups_paid else ("got",)
            self._unpaid = {(kind, part) for kind in kinds for part in needed_parts}
            self._share = self.config.shared / len(self._unpaid)
        recipes = "\n".join(self.task.payload["recipes"])
        return f"Crafting commands:\n{recipes}\n\nGoal: craft {self._goal}."

    def brief(self) -> str:
        """Return only the goal in the tiny tier, where failed tries name the missing part; the opening in other tiers."""
        return self._goal if self._short else self.opening()

    async def action(self, content: str) -> Reply:
        """Carry out one command. An impossible command changes nothing and earns nothing."""
        text = " ".join(content.lower().replace("minecraft:", "").replace("_", " ").split()).rstrip(".")
        if self._short and text in self._book.by_made:
            return self._make_once(text)
        if self._short and text in self._book.fetchable:
            text = f"get 1 {text}"
        if text.startswith("inventory"):
            inventory = ", ".join(f"[{item}] ({count})" for item, count in self._held.items())
            return Reply(f"Inventory: {inventory or 'You are not carrying anything.'}")
        if text.startswith("get ") and (thing_and_count := counted(text[4:])):
            return self._get(*thing_and_count)
        if text.startswith("craft ") and (recipe := parse_craft(text)):
            return self._craft(recipe)
        return self._refuse(f"execute {text}")

    def _get(self, item: str, count: int) -> Reply:
        if item not in self._book.fetchable:
            return self._refuse(f"find {item}")
        self._held[item] = self._held.get(item, 0) + count
        return Reply(OK if self._short else f"Got {count} {item}", self._pay("got", item))

    def _craft(self, command: CraftingRecipe) -> Reply:
        if any(self._held.get(part, 0) < count for part, count in command.parts):
            return self._refuse(f"find enough items to craft {command.made}")
        recipe = self._book.match(command)
        if recipe is None:
            return self._refuse(f"find a valid recipe for {command.made}")
        for part, count in command.parts:
            self._held[part] -= count
            if not self._held[part]:
                del self._held[part]
        self._held[recipe.made] = self._held.get(recipe.made, 0) + recipe.count
        done = recipe.made == self._goal
        observation = (DONE if done else OK) if self._short else f"{CRAFTED} {recipe.count} {recipe.made}"
        if not done:
            return Reply(observation, self._pay("got", recipe.made))
        self._made = True
        return Reply(observation, 1.0 - self._earned, done)

    def _make_once(self, item: str) -> Reply:
        recipe = self._book.by_made[item][0]
        missing_parts = [part for part, count in recipe.parts if self._held.get(part, 0) < count]
        if not missing_parts:
            return self._craft(recipe)
        return Reply(missing_parts[0], self._pay("named", missing_parts[0]))

    def _pay(self, kind: str, part: str) -> float:
        """Return the share of a useful turn, once."""
        if (kind, part) not in self._unpaid:
            return 0.0
        self._unpaid.remove((kind, part))
        self._earned += self._share
        return self._share

    def score(self) -> float | None:
        """Return the reward; with shared rewards, whether the goal was crafted."""
        if not self.config.shared or None in self.rewards:
            return super().score()
        return float(self._made)

    def _refuse(self, attempt: str) -> Reply:
        return Reply(NO if self._short else f"Could not {attempt}")


def book_of(task: Task) -> Book:
    """Return the recipes that the task shows."""
    return Book.read(task.payload["recipes"], task.payload["kinds"])


def shortest(task: Task) -> Plan:
    """Return a plan of the fewest turns. Raises TaskError if the goal cannot be made."""
    kinds = tuple((kind, tuple(members)) for kind, members in task.payload["kinds"].items())
    return _shortest(task.payload["goal"], tuple(task.payload["recipes"]), kinds)


@lru_cache(maxsize=4096)
def _shortest(goal: str, recipes: tuple[str, ...], kinds: tuple[tuple[str, tuple[str, ...]], ...]) -> Plan:
    return plan(Book.read(recipes, dict(kinds)), goal)


def command(step: tuple[str, int] | CraftingRecipe, task: Task) -> str:
    """Format a step of a plan for the task's tier."""
    if isinstance(step, CraftingRecipe):
        return step.made if task.payload.get("short") else str(step)
    return step[0] if task.payload.get("short") else f"get {step[1]} {step[0]}"
