"""A suite on this machine: its settings as overrides of a recipe, refused in one sentence if something is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from curricula.spec import FOLDER
from curricula.suites import Suite
from userrl.machine.home import published_data
from userrl_core.errors import ConfigError
from userrl_core.gyms.published import PAPER_GYMS, why_absent
from userrl_core.gyms.registry import gym_class, names, unavailable

BASE = "_evaluation"
"""The recipe of actors without one."""


def gyms_of(suite: Suite) -> tuple[str, ...]:
    """Return the gyms of a suite on this machine."""
    if suite.gyms == "paper":
        return PAPER_GYMS
    if suite.gyms == "every":
        available = [name for name in names() if not unavailable(name)]
        return tuple(name for name in available if not gym_class(name).elsewhere and not gym_class(name).slow)
    return suite.gyms


def settings_of(suite: Suite, gyms: Sequence[str] | None = None, *, pretrained: bool) -> dict[str, Any]:
    """Return overrides that turn a recipe's evaluation into this suite. Raises ConfigError if published tasks are missing.

    gyms: played instead of the suite's. pretrained: whether the actor has room for the suite's tokens; a model from scratch
    keeps its own limits.
    """
    gyms, folder = gyms or gyms_of(suite), published_data()
    overrides: dict[str, Any] = {
        "suite": suite.played_as,
        # Nothing is trained, so the stages of a checkpoint's run must not be checked against the suite's tasks.
        "stages": [],
        "branches": {},
        "schedule": None,
        "data": "ours",
        "data_folder": str(folder) if suite.data == "published" else None,
        "evaluate.gyms": list(gyms),
        "evaluate.user": _user(suite),
        "evaluate.horizon": suite.horizon,
        "evaluate.temperature": suite.temperature,
        "evaluate.top_p": suite.top_p,
        "evaluate.tasks": suite.tasks,
        "evaluate.total": suite.total,
        "evaluate.attempts": suite.attempts,
    }
    if suite.prompts == "released":
        overrides["model.prompt_style"] = "released"
    if pretrained and suite.max_tokens is not None:
        overrides["algorithm.max_tokens"] = suite.max_tokens
    for gym in gyms:
        # The whole block is replaced, so that nothing of the recipe's own tasks, such as a small tier, remains.
        setup = suite.setup[gym].model_dump(exclude_defaults=True) if gym in suite.setup else {}
        overrides[f"gyms.{gym}"] = {**setup, "published": _published(suite, gym) if suite.data == "published" else None}
    return overrides


def _user(suite: Suite) -> dict[str, Any]:
    """Return the suite's user, a served one with the suite's prompts."""
    user = suite.user.model_dump()
    if suite.prompts == "released" and user["kind"] == "openai":
        user["options"] = {**user["options"], "prompts": "released"}
    return user


def _published(suite: Suite, gym: str) -> str:
    """Return the location of a gym's published tasks, as a value of `gyms.NAME.published`."""
    folder = published_data()
    project = suite.published.get(gym)
    why = f"there is no folder {folder / project}" if project and not (folder / project).is_dir() else ""
    why = why or ("" if project else why_absent(gym, folder))
    if why:
        ours = f", or our own tasks with {suite.name}:ours" if "ours" in suite.variants else ""
        raise ConfigError(
            "task.none_imported",
            f"Suite '{suite.label}' plays published tasks, and gym '{gym}' has none in {folder}: {why}. Create "
            "that folder with userrl tasks import --from CLONE, name another with USERRL_PUBLISHED_DATA, or "
            f"play other gyms with --gym{ours}.",
        )
    return str(folder / project) if project else FOLDER
