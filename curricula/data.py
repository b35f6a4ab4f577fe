"""The switch `data`: published tasks for all gyms at once, written into every gym that has some."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from curricula.merge import Merged, Rank, gyms_of
from curricula.recipe import Recipe
from curricula.spec import FOLDER
from userrl_core.errors import ConfigError
from userrl_core.gyms.base import parse_config
from userrl_core.gyms.published import PAPER_GYMS, has_loader, why_absent
from userrl_core.gyms.registry import gym_class, names
from userrl_core.user_path import user_path

VERIFIER = "gyms.tau.config.verifier"
SEARCHED = ("search", "searchqa")
"""The gyms whose published questions need web search."""


def use_published(merged: Merged, folder: Path | None, keys: Collection[str] | None = None) -> dict[str, str]:
    """Set `gyms.NAME.published` for every gym of the recipe with published tasks. Return the other gyms with the reasons.

    folder: searched if the recipe names no folder; without either nothing is searched. keys: environment variables
    that are set, None if unknown. Released questions need web search. Raises ConfigError under ``data: published``
    for a gym without published tasks, with both remedies.
    """
    mode = merged.get("data", "ours")
    if mode not in ("published", "published-or-ours"):
        return {}
    folder_name = merged.get("data_folder")
    published_folder = user_path(str(folder_name)).resolve() if folder_name is not None else folder
    if published_folder is None:
        if mode == "published":
            raise ConfigError("task.none_imported", "data is published, and its folder is not known. Set data_folder.")
        return {}
    merged.set("data_folder", str(published_folder), "data", Rank.OVERRIDE)
    absent: dict[str, str] = {}
    for gym in _gyms(merged):
        if gym not in names() or merged.get(f"gyms.{gym}.published") is not None:
            continue
        why = why_absent(gym, published_folder, merged.get("published", "released"))
        if not why and mode != "published" and keys is not None and gym in SEARCHED:
            why = missing_search_key(gym, merged.get(f"gyms.{gym}.config") or {}, keys)
        if not why:
            merged.set(f"gyms.{gym}.published", FOLDER, "data", Rank.OVERRIDE)
        elif mode == "published":
            raise ConfigError("task.none_imported", _refusal(gym, why, published_folder))
        else:
            absent[gym] = why
    return absent


def verify_by_writes(merged: Merged) -> None:
    """Set TARL's verifier for a recipe with unchecked outputs on published tasks.

    TARL counts writes, but the gym's default for published tasks is tau-bench's database. The choice is part of the
    recipe, so that such a run has its own id.
    """
    config = merged.get("gyms.tau.config") or {}
    if merged.get("gyms.tau.published") is None or config.get("check_outputs") is not False or "verifier" in config:
        return
    merged.set(
        VERIFIER, "writes", "data", Rank.OVERRIDE, "TARL 2.1: successful writes against gold's, outputs unchecked"
    )


def missing_search_key(gym: str, config: Mapping[str, Any], keys: Collection[str]) -> str:
    """Return why a gym's released questions cannot be searched for; "" if they can."""
    key: str | None = parse_config(gym_class(gym), config).web_key  # type: ignore[attr-defined]  # of both gyms
    if key is None or key in keys:
        return ""
    return f"the released questions need web search, and {key} is not set"


def none_published(recipe: Recipe) -> str | None:
    """Return the refusal of a recipe that requests published tasks if none were found; None if nothing is missing."""
    could = [gym for gym in recipe.absent if has_loader(gym) and gym not in SEARCHED]
    has_published = any(setup.published is not None for setup in recipe.gyms.values())
    if recipe.data != "published-or-ours" or not could or has_published:
        return None
    return (
        f"Recipe '{recipe.name}' under profile {recipe.profile} uses published tasks, and {recipe.data_folder} has none of "
        f"{', '.join(could)}. Create that folder with userrl tasks import --from CLONE, name another with data_folder or "
        "USERRL_PUBLISHED_DATA, or set data: ours to train on our own tasks."
    )


def _refusal(gym: str, why: str, folder: Path) -> str:
    add = " (gyms/TravelGym/travelgym/data in userrl)" if gym == "travel" else ""
    return (
        f"data is published, and gym '{gym}' has no published tasks in {folder}: {why}. Add them there{add}, or set data: "
        f"published-or-ours to combine our own {gym} tasks with the published ones of other gyms."
    )


def _gyms(merged: Merged) -> tuple[str, ...]:
    gyms: dict[str, None] = {}
    branches: Any = merged.get("branches") or {}
    stages = [*(merged.get("stages") or ()), *(stage for branch in branches.values() for stage in branch)]
    for stage in stages:
        gyms |= dict.fromkeys(gyms_of(stage))
    evaluated = merged.get("evaluate.gyms", "all")
    gyms |= dict.fromkeys(PAPER_GYMS if evaluated == "all" else map(str, evaluated))
    return tuple(gyms)
