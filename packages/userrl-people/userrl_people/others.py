"""The other side of a person's conversation: a rule, a served model, or a run's checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from curricula import from_resolved
from userrl.run.run import Run
from userrl.run.tasks import gym_config, tasks_of
from userrl_core.errors import ConfigError
from userrl_core.gyms import gym_class, names, tasks
from userrl_core.gyms.prompt import PromptStyle
from userrl_core.gyms.registry import unavailable
from userrl_core.policies.base import BatchPolicy, Policy
from userrl_core.policies.openai import OpenAIPolicy
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import Task
from userrl_core.served.client import ChatServer
from userrl_people.apart import Player, PlayerProcess

DEMONSTRATOR_SKILL = 0.7

Side = Literal["agent", "user"]


class Other:
    """The other side of a person's conversation. This base class is rule-based: the scripted agent or the rule user."""

    free = True
    """Whether another conversation with it costs no money."""
    checkpoint: str | None = None
    horizon: int | None = None
    """Maximum number of turns, if the other side sets it."""
    prompt_style: PromptStyle = "full"
    turns_left = False
    """Whether the agent is shown how many turns it has left."""
    user_name = "rule"

    def __init__(self, skill: float = DEMONSTRATOR_SKILL) -> None:
        self._skill = skill

    def policy(self) -> Policy | BatchPolicy:
        """Return it as the agent."""
        return ScriptedPolicy(self._skill)

    @property
    def policy_name(self) -> str:
        """Its name as the agent."""
        return self.policy().name

    def user(self) -> Any:
        """Return it as a gym's user: a kind, or a kind and its options."""
        return "rule"

    def gyms(self, side: Side) -> Sequence[str]:
        """Return the gyms that a person can play with it in this part."""
        return gyms_with_people() if side == "user" else names()

    def tasks(self, gym: str, split: str) -> Sequence[Task]:
        """Return the tasks to play with it."""
        return tasks(gym, split)

    def options(self, gym: str) -> Mapping[str, Any]:
        """Return the gym's configuration."""
        return {}


class Served(Other):
    """A served model. server: fields of `ChatServer`."""

    free = False

    def __init__(self, server: Mapping[str, Any]) -> None:
        self._server = dict(server)
        self.user_name = ChatServer(**self._server).model

    def policy(self) -> Policy:
        """Return it as the agent."""
        return OpenAIPolicy(ChatServer(**self._server))

    def user(self) -> Any:
        """Return the served model as the value of a gym's ``user``: kind and options."""
        return "openai", self._server


class Checkpoint(Other):
    """The checkpoint of a run's report as the agent, with its recipe's prompts, tasks and gyms."""

    def __init__(self, run: Run) -> None:
        if run.checkpoint is None:
            raise ConfigError("run.no_checkpoint", f"Run {run.id} has no checkpoint in its report. Name another run.")
        self._path, self._recipe = run.checkpoint, from_resolved(run.info.resolved)
        self.checkpoint = run.checkpoint.name
        self.horizon, self.prompt_style = self._recipe.evaluate.horizon, self._recipe.model.prompt_style
        self.turns_left = self._recipe.model.turns_left
        self._name = run.id

    @property
    def policy_name(self) -> str:
        """The run's id. A separate column names the checkpoint."""
        return self._name

    def policy(self) -> PlayerProcess:
        """Return it as the agent in a separate process, once loaded. The caller closes it."""
        recipe = self._recipe
        return PlayerProcess(
            Player(
                name=self._name,
                path=self._path,
                model=recipe.model,
                max_tokens=recipe.algorithm.max_tokens,
                max_response_tokens=recipe.algorithm.max_response_tokens,
                threads=recipe.hardware.threads,
            )
        )

    def gyms(self, side: Side) -> Sequence[str]:
        """Return the gyms of its recipe that a person can play in this part."""
        return [gym for gym in super().gyms(side) if gym in self._recipe.played_gyms]

    def tasks(self, gym: str, split: str) -> Sequence[Task]:
        """Return the gym's tasks under the run's recipe. Raises ConfigError for a gym outside the recipe."""
        if gym not in self._recipe.played_gyms:
            raise ConfigError(
                "people.not_playable",
                f"The recipe of this run plays {', '.join(self._recipe.played_gyms)}, not '{gym}'. Choose one "
                "of its gyms.",
            )
        return tasks_of(self._recipe, gym, split)

    def options(self, gym: str) -> Mapping[str, Any]:
        """Return the gym's configuration in its recipe."""
        return gym_config(self._recipe, evaluation=True).get(gym, {})


def check_side(gym: str, side: Side) -> None:
    """Raise ConfigError if people cannot play this side (agent or user) of the gym."""
    if side == "user" and "human" not in gym_class(gym).users:
        raise ConfigError(
            "people.not_playable",
            f"A person cannot play the user of '{gym}', because its answers are computed. Choose one of "
            f"{', '.join(gyms_with_people())}.",
        )


def gyms_with_people() -> Sequence[str]:
    """Return the gyms whose user a person can play, of those whose packages are installed."""
    return [name for name in names() if not unavailable(name) and "human" in gym_class(name).users]
