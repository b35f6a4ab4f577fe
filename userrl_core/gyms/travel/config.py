"""TravelGym's reward values and rules as fields, with the published settings as presets (UserBench sections 3 and 4)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, model_validator

from userrl_core.gyms.base import GymConfig, Pay
from userrl_core.gyms.travel.world import ASPECTS
from userrl_core.records import Task

Preset = Literal["userbench", "userrl_train", "userrl_eval", "tiny"]

PRESETS: dict[str, Mapping[str, Any]] = {
    # The papers' stated values: the defaults of the fields below.
    "userbench": {},
    # What the released training and evaluation scripts set.
    "userrl_train": {"search_reward": 0.0, "preference_reward": 0.8},
    "userrl_eval": {"search_reward": 0.2, "preference_reward": 0.6},
    # Ours: two preferences at 0.1 and a right choice at 0.8 make 1.0 in four turns.
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
    },
}


class TravelConfig(GymConfig):
    """Rewards and rules of TravelGym; defaults from UserRL appendix C and UserBench section 3 unless marked ours."""

    preset: Preset | None = None
    """Sets the fields that are not given; None means ``tiny`` for tasks of that tier and ``userbench`` for all others."""

    search_reward: NonNegativeFloat = 0.2
    """For the first matching search of each aspect."""

    preference_reward: NonNegativeFloat = 0.2
    """For a question that names a preference the user holds and has not told."""

    best_reward: PositiveFloat = 1.0
    """For the cheapest of the options that meet all preferences."""

    correct_reward: NonNegativeFloat = 0.8
    """For another option that meets them; its gap to `best_reward` is the strength of the budget reward."""

    wrong_penalty: NonNegativeFloat = 0.0
    """Taken off for each other option; a turn's reward never falls below 0 (released code)."""

    turn_cap: PositiveFloat | None = 1.0
    """Most that one turn pays, for messages that answer several aspects at once; None pays the plain sum (released code)."""

    one_choice_per_aspect: bool = True
    """Only the first option per aspect counts, and the attempt ends when every aspect has one; False: until all best."""

    search_failure_interval: NonNegativeInt = 5
    """Every n-th search fails on purpose; 0 for never."""

    elicitation_interval: NonNegativeInt = 3
    """After n messages in a row that elicit nothing, the next such message makes the user volunteer one; 0 for never."""

    narrow_search: bool = False
    """A search that states exactly the held preferences returns only the options that meet them (ours, tiny tier)."""

    end_on_wrong: bool = False
    """An answer that is not right ends the attempt (ours, tiny tier)."""

    repeat_known: bool = False
    """A preference that is asked for again is told again, without reward (ours, tiny tier)."""

    terse: bool = False
    """Replies of one or two words, for a model of laptop size (ours, tiny tier)."""

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
        """The settings for this task: given ones as they are, the tier's preset where none is named."""
        if config is not None and config.preset is not None:
            return config
        preset: Preset = "tiny" if task.tier == "tiny" else "userbench"
        if config is None or not config.model_fields_set:
            return _READY[preset]
        return config._over(preset)

    def possible(self) -> list[TravelConfig]:
        """The settings that tasks of any tier get under this config."""
        return [self] if self.preset is not None else [self._over("userbench"), self._over("tiny")]

    def pay(self) -> Pay:
        """What a turn can earn. Without a cap an answer takes all aspects at once, and any number of options where it may."""
        paid = [worth for worth in (self.best_reward, self.correct_reward) if worth > 0.0]
        answer = len(ASPECTS) * max(paid)
        if not self.one_choice_per_aspect:
            answer = math.inf if self.correct_reward else len(ASPECTS) * self.best_reward
        least = 0.0 if self.wrong_penalty else min(paid)
        if self.turn_cap is not None:
            answer, least = min(answer, self.turn_cap), min(least, self.turn_cap)
        return Pay(0.0, max(self.search_reward, self.preference_reward, answer), least)

    def _over(self, preset: Preset) -> TravelConfig:
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return TravelConfig(**{**given, "preset": preset})


_READY: dict[str, TravelConfig] = {name: TravelConfig(preset=name) for name in ("userbench", "tiny")}
