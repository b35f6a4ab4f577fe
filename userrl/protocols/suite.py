"""The fingerprint of a suite, which was not played: its settings as a served model would meet them."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from curricula.suites import Suite
from userrl.run.fingerprint import Row, differences, fingerprints, protocol_hash
from userrl.run.job import Actor
from userrl.run.readiness import resolve
from userrl.run.suites import BASE, gyms_of, settings_of
from userrl.run.tasks import test_tasks
from userrl_core.errors import UserRLError
from userrl_core.gyms.registry import tasks as own_tasks
from userrl_core.records import Task
from warehouse import reference

OF_TASKS = ("tasks", "task_versions")
OF_PROMPT = ("agent_prompt", "agent_tool")
"""Settings that a released task brings."""


def suite_fingerprints(
    suite: Suite, gyms: Sequence[str] | None = None, tasks: Sequence[Task] | None = None
) -> list[Row]:
    """Return a row for each gym of a suite. Where its tasks are not on this machine they are None.

    tasks: those that are played, if they are known otherwise. Raises ConfigError for prompts that the copy lacks.
    """
    rows = []
    for gym in gyms or gyms_of(suite):
        of_gym = [task for task in tasks or () if task.gym == gym] or _tasks(suite, gym)
        # Our own tasks stand in for missing ones: nothing but the two columns of tasks depends on them.
        shown = of_gym or list(own_tasks(gym, "test"))
        recipe = resolve(BASE, None, overrides=_overrides(suite, gym), check=False)
        for row in fingerprints(recipe, _actor(suite), shown):
            if not of_gym:
                row |= dict.fromkeys((*OF_TASKS, *(OF_PROMPT if suite.prompts == "released" else ())))
                row["protocol_hash"] = protocol_hash(row)
            rows.append(row)
    return rows


def still_different(suite: Suite) -> list[str]:
    """Return two sentences: what differs from the paper's table that the suite names, and what the paper does not state."""
    if not suite.beside:
        return []
    try:
        by_gym = {str(row["gym"]): row for row in suite_fingerprints(suite)}
    except UserRLError as error:
        return [f"differences from {suite.beside}: not known here. {error}"]
    differing: dict[str, list[str]] = {}
    unknown: dict[str, list[str]] = {}
    for table, rows in published_tables().items():
        for row in rows:
            gym = str(row["gym"])
            if table.startswith(suite.beside) and gym in by_gym:
                for difference in differences(by_gym[gym], row):
                    group = differing if difference.differs else unknown
                    group.setdefault(difference.setting.replace("_", " "), []).append(gym)
    sentences = [f"differs from {suite.beside}: {_listed(differing)}"] if differing else []
    return [*sentences, *([f"not known to agree with {suite.beside}: {_listed(unknown)}"] if unknown else [])]


def _listed(by_setting: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{setting} ({', '.join(gyms)})" for setting, gyms in by_setting.items()) + "."


def published_tables() -> dict[str, list[Row]]:
    """Return the protocols of the papers' tables, a row for each gym; a setting that is not stated is None."""
    tables: dict[str, list[Row]] = {}
    with Path(reference.__file__).with_name("protocols.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            tables.setdefault(row.pop("published_in"), []).append({key: value or None for key, value in row.items()})
    return tables


def _overrides(suite: Suite, gym: str) -> dict[str, object]:
    overrides = settings_of(suite.model_copy(update={"data": "ours"}), [gym], pretrained=True)
    return overrides | {"data_folder": None}


def _tasks(suite: Suite, gym: str) -> list[Task]:
    try:
        recipe = resolve(BASE, None, overrides=settings_of(suite, [gym], pretrained=True), check=False)
        return test_tasks(recipe, 0)
    except UserRLError:
        return []


def _actor(suite: Suite) -> Actor:
    options: dict[str, object] = {"tool_choice": suite.tool_choice, "base_url": "http://127.0.0.1/v1"}
    if suite.max_tokens is not None:
        options["max_tokens"] = suite.max_tokens
    native = suite.protocols == ("native",)
    return Actor(label="any", kind="served", path="any", native=native, options=options)
