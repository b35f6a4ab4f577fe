"""Values derived from the final mix and horizons, if a person chose those and left the rest to a profile.

A profile's lengths are made for its own tasks. Without this, the evaluation of a person's stages at horizon 14 under
a profile made for 6 would be cut off after six turns, and would omit their other gyms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from curricula.layers import Small
from curricula.merge import Merged, Rank, gyms_of

FOLLOWS = "follows the stages"


def follow(merged: Merged, small: Mapping[str, Small], where: str) -> list[str]:
    """Fit lengths and evaluated gyms to stages from a person's file or an override. Return sentences for the person.

    A file's stages are followed exactly. Overrides only lengthen and add, so that a sweep over horizons compares its
    trials as the recipe says. where: the profile, as origins name it.
    """
    gyms = _gyms(merged)
    for gym in (*gyms, *_evaluated(merged)):
        tier, key = dict(small[gym].tasks) if gym in small else {}, f"gyms.{gym}.tasks"
        if tier and not _theirs(merged, key) and merged.get(key) != tier:
            merged.set(key, tier, where, Rank.PROFILE, "ours: the small tier")
    if merged.get("model.path") is not None and merged.get("model.template", "chatml") != "chatml":
        _fit(merged, "model.template", "chatml")  # a pretrained model has its own
    if merged.get("algorithm.batch_tokens") is not None and not any("tokens" in stage for stage in _stages(merged)):
        _fit(merged, "algorithm.batch_tokens", None)  # a profile's serves its own stages, which are given in tokens
    ranks = [rank for key in ("stages", "schedule") if (rank := merged.rank(key)) is not None and rank >= Rank.PERSON]
    if not ranks or not gyms:
        return []
    file = any(_wrote_in_a_file(merged, key) for key in ("stages", "schedule"))
    sentences = _leave_held_out(merged, gyms) if file else []
    before, longest = int(merged.get("evaluate.horizon", 16)), _most_turns(merged)
    if longest is not None:
        horizon = longest if file else max(before, longest)
        _fit(merged, "evaluate.horizon", horizon)
        if merged.get("demonstrations.horizon") is not None:
            _fit(merged, "demonstrations.horizon", horizon)
        _fit_tokens(merged, small, gyms, before, horizon)
    evaluated = _evaluated(merged)
    if evaluated and not _theirs(merged, "evaluate.gyms"):
        kept_gyms = () if file else evaluated
        _fit(merged, "evaluate.gyms", list(dict.fromkeys((*kept_gyms, *gyms))))
    return sentences


def _fit_tokens(merged: Merged, small: Mapping[str, Small], gyms: Iterable[str], before: int, horizon: int) -> None:
    """Make room for every turn of the longest conversation, never less than the profile gives."""
    token_limits = [tokens for gym in gyms if gym in small and (tokens := small[gym].tokens) is not None]
    if not token_limits:
        longer = int(merged.get("algorithm.max_response_tokens", 8192)) * horizon // max(before, 1)
        _grow(merged, "algorithm.max_response_tokens", longer)
        return
    _grow(merged, "algorithm.max_prompt_tokens", max(tokens.prompt for tokens in token_limits))
    _grow(merged, "algorithm.max_tokens", max(tokens.reply for tokens in token_limits))
    _grow(merged, "algorithm.max_response_tokens", max(tokens.turn for tokens in token_limits) * horizon)
    context = int(merged.get("algorithm.max_prompt_tokens", 0)) + int(merged.get("algorithm.max_response_tokens", 0))
    _grow(merged, "model.max_context", context)
    _grow(merged, "cold_start.cutoff", context)


def _grow(merged: Merged, key: str, value: int) -> None:
    if value > int(merged.get(key, 0)):
        _fit(merged, key, value)


def _fit(merged: Merged, key: str, value: Any) -> None:
    if not _theirs(merged, key) and merged.get(key) != value:
        merged.set(key, value, FOLLOWS, Rank.PROFILE, "ours: fits the mix and the horizons")


def _theirs(merged: Merged, key: str) -> bool:
    return (merged.rank(key) or Rank.SHIPPED) >= Rank.PERSON


def _wrote_in_a_file(merged: Merged, key: str) -> bool:
    return merged.wrote(key, Rank.PERSON) or merged.wrote(key, Rank.PERSON_FOR_PROFILE)


def _leave_held_out(merged: Merged, gyms: Iterable[str]) -> list[str]:
    """Remove gyms of a person's mix from an inherited ``split.held_out``. Return the sentence about it."""
    held_out = list(merged.get("split.held_out", ("intention", "telepathy", "search")))
    leaving = [gym for gym in gyms if gym in held_out]
    if not leaving or _theirs(merged, "split.held_out"):
        return []
    merged.set("split.held_out", [gym for gym in held_out if gym not in leaving], FOLLOWS, Rank.PROFILE)
    names = ", ".join(leaving)
    return [f"{names} left split.held_out, since the recipe's own mix trains on it: its scores are no longer held out."]


def _stages(merged: Merged) -> list[Mapping[str, Any]]:
    stages = merged.get("stages") or ()
    return [stage for stage in stages if isinstance(stage, Mapping)] if isinstance(stages, (list, tuple)) else []


def _gyms(merged: Merged) -> tuple[str, ...]:
    gyms: dict[str, None] = {}
    for stage in _stages(merged):
        gyms |= dict.fromkeys(gyms_of(stage))
    return tuple(gyms)


def _evaluated(merged: Merged) -> tuple[str, ...]:
    gyms = merged.get("evaluate.gyms", "all")
    return tuple(gyms) if isinstance(gyms, (list, tuple)) else ()


def _most_turns(merged: Merged) -> int | None:
    """Return the longest horizon of the schedule or the stages; None for invalid values, which are reported later."""
    schedule = merged.get("schedule")
    if isinstance(schedule, Mapping):
        horizons = [schedule.get("turns"), schedule.get("cap"), *(schedule.get("horizons") or ())]
        horizons += [span.get("horizon") for span in schedule.get("spans") or () if isinstance(span, Mapping)]
    else:
        horizons = [stage.get("horizon") for stage in _stages(merged)]
    turns = [turn for turn in horizons if isinstance(turn, int) and turn is not True and turn > 0]
    return max(turns, default=None)
