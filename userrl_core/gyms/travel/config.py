"""TravelGym's rewards and rules as config fields, with the published settings as presets (UserBench sections 3 and 4)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, model_validator

from userrl_core.gyms.base import GymConfig, RewardBounds
from userrl_core.gyms.travel.world import ASPECTS
from userrl_core.records import Task

Preset = Literal["userbench", "userrl_train", "userrl_eval", "tiny"]

PRESETS: dict[str, Mapping[str, Any]] = {
    # The values stated in the papers: the defaults of the fields below.
    "userbench": {},
    # The values of the released training and evaluation scripts.
    "userrl_train": {"search_reward": 0.0, "preference_reward": 0.8},
    "userrl_eval": {"search_reward": 0.2, "preference_reward": 0.6},
    # Ours: two preferences at 0.1 and the right choice at 0.8 sum to 1.0 in four turns.
    "tiny": {
        "search_reward": 0.0,
        "preference_reward": 0.1,
        "best_reward": 0.8,
        "correct_reward": 0.0,
        "search_failure_interval": 0,
        "elicitation_interval": 0,
        "narrow_search": True,
        "end_on_wrong": True,
        "repeat_known": True,
        "terse": True,
        "score_as": "return",
        "end_when": "all_chosen",
    },
}


class TravelConfig(GymConfig):
    """Rewards and rules of TravelGym. The defaults are from UserRL appendix C and UserBench section 3 unless marked ours."""

    preset: Preset | None = None
    """Source of the fields that are not given. null means ``tiny`` for tasks of that tier and ``userbench`` for all others."""

    search_reward: NonNegativeFloat = 0.2
    """Reward of the first matching search of each aspect."""

    preference_reward: NonNegativeFloat = 0.2
    """Reward of a question about a preference that the user holds and has not revealed."""

    best_reward: PositiveFloat = 1.0
    """Reward of the cheapest option that meets all preferences."""

    correct_reward: NonNegativeFloat = 0.8
    """Reward of another option that meets them. The gap to `best_reward` is the strength of the budget reward."""

    wrong_penalty: NonNegativeFloat = 0.0
    """Amount subtracted for each other option. A turn's reward never falls below 0 (released code)."""

    turn_cap: PositiveFloat | None = 1.0
    """Maximum reward of a turn that answers several aspects at once; null gives the plain sum (released code)."""

    one_choice_per_aspect: bool = True
    """Whether only the first option per aspect counts, or all do."""

    end_when: Literal["all_best", "all_chosen"] = "all_best"
    """all_best: the episode ends when the best option of every aspect is chosen (UserRL appendix C). all_chosen: it
    ends when every aspect has a choice, if only the first choice counts.
    """

    search_failure_interval: NonNegativeInt = 5
    """Every n-th search fails; 0 for never."""

    elicitation_interval: NonNegativeInt = 3
    """After n messages in a row without an elicitation, the user volunteers a preference at the next one; 0 for never."""

    narrow_search: bool = False
    """A search that states exactly the held preferences returns only the options that meet them (ours, tiny tier)."""

    end_on_wrong: bool = False
    """A wrong answer ends the episode (ours, tiny tier)."""

    repeat_known: bool = False
    """A repeated question reveals its preference again, without reward (ours, tiny tier)."""

    terse: bool = False
    """Replies of one or two words, for models of laptop size (ours, tiny tier)."""

    wording: Literal["terse", "english"] = "terse"
    """english: user and database of the tiny tier speak in sentences, with several wordings for each (`english`). The other
    tiers have sentences either way."""

    demonstrator_skill: float | None = Field(default=None, ge=0.0, le=1.0)
    """Skill of the scripted demonstrator in this gym; null: `demonstrations.skill` (ours)."""

    score_as: Literal["choice", "return"] = "choice"
    """The metric: best choice per aspect, averaged (UserBench 4.1), or the sum of turn rewards (ours, tiny tier)."""

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("preset") in PRESETS:
            return {**PRESETS[data["preset"]], **data}
        return data

    @classmethod
    def for_task(cls, task: Task, config: TravelConfig | None) -> TravelConfig:
        """Return the settings for this task: the given ones, completed by the tier's preset unless they name one."""
        if config is not None and config.preset is not None:
            return config
        preset: Preset = "tiny" if task.tier == "tiny" else "userbench"
        if config is None or not config.model_fields_set:
            return _PRESET_CONFIGS[preset]
        return config._with_preset(preset)

    def in_english(self, task: Task) -> bool:
        """Return whether a task is played in English sentences of `english`."""
        return task.tier == "tiny" and self.wording == "english"

    def possible(self) -> list[TravelConfig]:
        """Return all settings that tasks of different tiers have under this config."""
        if self.preset is not None:
            return [self]
        return [self._with_preset("userbench"), self._with_preset("tiny")]

    def reward_bounds(self) -> RewardBounds:
        """Return the bounds of a turn's reward. Without a cap one answer may name all aspects, with several options
        if allowed.
        """
        option_rewards = [reward for reward in (self.best_reward, self.correct_reward) if reward > 0.0]
        highest = len(ASPECTS) * max(option_rewards)
        if not self.one_choice_per_aspect:
            highest = math.inf if self.correct_reward else len(ASPECTS) * self.best_reward
        lowest = 0.0 if self.wrong_penalty else min(option_rewards)
        if self.turn_cap is not None:
            highest, lowest = min(highest, self.turn_cap), min(lowest, self.turn_cap)
        return RewardBounds(0.0, max(self.search_reward, self.preference_reward, highest), lowest)

    def _with_preset(self, preset: Preset) -> TravelConfig:
        explicit_fields = {name: getattr(self, name) for name in self.model_fields_set}
        return TravelConfig(**{**explicit_fields, "preset": preset})


_PRESET_CONFIGS: dict[str, TravelConfig] = {name: TravelConfig(preset=name) for name in ("userbench", "tiny")}
