"""The published travel tasks: prompts from the parquet files, joined with the option databases if available.

Not every copy of the released repositories contains the option databases. A prompt without one is imported with the field
``unplayable``, which holds the reason. Creating its gym raises TaskError.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypeGuard

from userrl_core.errors import MissingFileError, TaskError, first_line
from userrl_core.gyms.released import check_filled, read_json, text_field
from userrl_core.gyms.travel.scenario import COMPOSITIONS, tier_of
from userrl_core.gyms.travel.world import ASPECTS
from userrl_core.records import Task
from userrl_core.seeding import content_hash, validation_of
from userrl_core.user_path import open_file

FOLDERS = ("data/travel{}_multiturn_onechoice", "data/travel{}_multiturn")
"""The prompts differ only in their rule on repeated choices. The tasks are the same."""
DATABASES = ("gyms/TravelGym/travelgym/data/travelgym_data_{}.json", "travelgym/data/travelgym_data_{}.json")
"""Paths of a composition's options in UserRL and in UserBench, whose copy may be next to UserRL's."""
COLUMNS = ["prompt", "reward_model"]
_PART = re.compile(r"(\w+):(\d)-\d+\Z")
_BEST = re.compile(r"[ACFHR]\d+")
Data = dict[str, Any]


def load_published(root: Path) -> list[Task]:
    """Return every published scenario with its published split. Validation is 5 % of train, by hash.

    Raises TaskError with file, index and field for a faulty row, and MissingFileError without a travel folder.
    """
    published: list[Task] = []
    for composition in (c for members in COMPOSITIONS.values() for c in members):
        folder = next((root / f.format(composition) for f in FOLDERS if (root / f.format(composition)).is_dir()), None)
        if folder is None:
            continue
        candidates = (parent / f.format(composition) for parent in (root, root.parent / "userbench") for f in DATABASES)
        database_path = next((parent for parent in candidates if parent.is_file()), None)
        database: Data | None = read_json(database_path, dict) if database_path is not None else None
        for part in ("train", "test"):
            path = folder / f"{part}.parquet"
            for index, (row, opening) in enumerate(_rows(path)):
                published.append(_task(row, opening, part, composition, database, database_path, path, index))
    if not published:
        raise MissingFileError(
            "task.file_missing",
            f"{root / 'data'} contains no folder such as travel22_multiturn_onechoice. Give the root folder of "
            "the release.",
        )
    return published


def _rows(path: Path) -> list[tuple[object, object]]:
    """Return the ``reward_model`` of each row and the text of the prompt's last message, which is the user's.

    Only the last message becomes a Python string. Most of the file is the system prompt, which is the same in every row.
    """
    import pyarrow as pa  # imported here for start-up time: only published tasks need it
    import pyarrow.compute as pc

    table = _table(path)
    try:
        # Flattening, not list_element: a Python number as argument makes pyarrow import pandas.
        last = pc.list_flatten(pc.list_slice(table.column("prompt"), 1, 2, return_fixed_size_list=True))
        contents = pc.struct_field(last, "content").to_pylist()
        if set(pc.struct_field(last, "role").to_pylist()) - {"user"}:
            contents = [None] * table.num_rows
    except (pa.ArrowException, IndexError):
        contents = [None] * table.num_rows
    return list(zip(table.column("reward_model").to_pylist(), contents, strict=True))


def _task(
    reward_model: object,
    opening: object,
    part: str,
    composition: str,
    database: Data | None,
    database_path: Path | None,
    path: Path,
    index: int,
) -> Task:
    where = f"{path}, entry {index}"
    if not isinstance(opening, str) or not opening.strip():
        raise TaskError("task.invalid_field", f"{where}: field 'prompt' has no second message of role user.")
    identity = text_field(reward_model, "id", path, index)
    best = _BEST.findall(text_field(reward_model, "ground_truth", path, index))
    parts = [_PART.match(part) for part in identity.split("|")]
    if not all(parts) or len(best) != len(parts):
        raise TaskError(
            "task.invalid_field",
            f"{where}: field 'reward_model.id' must list aspects as 'hotel:2-7|...', not '{identity}'.",
        )
    payload: Data = {"composition": composition, "opening": opening.strip(), "best": best}
    if database is None or database_path is None:
        payload["aspects"] = {match[1]: {"preferences": [None] * int(match[2])} for match in parts if match}
        payload["unplayable"] = f"the released option database travelgym_data_{composition}.json is not in this copy"
    else:
        payload["aspects"] = _aspects(database, identity, f"{database_path}, entry '{identity}'")
        # What the released prompts of user and judge are given of the trip; the opening says it in the user's words.
        payload["scenario"] = text_field(database[identity], "scenario", database_path, 0)
        if sorted(best) != sorted(aspect["best"] for aspect in payload["aspects"].values()):
            raise TaskError(
                "task.invalid_field",
                f"{where}: field 'reward_model.ground_truth' {best} differs from the best ids in {database_path.name}.",
            )
    split = "test" if part == "test" else validation_of(content_hash(["travel", identity]))
    return Task("travel", identity, split, payload, source="published:userrl", tier=tier_of(composition))


def _aspects(database: Data, identity: str, where: str) -> Data:
    entry = database.get(identity)
    if not isinstance(entry, dict):
        raise TaskError("task.invalid_field", f"{where} is missing.")
    dimensions = entry.get("dimensions")
    if not _texts(dimensions) or not dimensions or not set(dimensions) <= set(ASPECTS):
        raise TaskError("task.invalid_field", f"{where}: field 'dimensions' must list aspects ({', '.join(ASPECTS)}).")
    aspects: Data = {}
    preference_count = 0
    for name in dimensions:
        aspect = _aspect(entry.get(name), f"{where}, field '{name}'", preference_count)
        preference_count += len(aspect["preferences"])
        aspects[name] = aspect
    return aspects


def _aspect(data: object, where: str, preferences_before: int) -> Data:
    """Return one aspect's payload. preferences_before: number of preferences of earlier aspects that have ids already."""
    if not isinstance(data, dict):
        raise TaskError("task.invalid_field", f"{where} must be an object.")
    preferences = data.get("preferences")
    if (
        not isinstance(preferences, list)
        or not preferences
        or not all(isinstance(p, list) and len(p) >= 4 for p in preferences)
    ):
        raise TaskError(
            "task.invalid_field",
            f"{where}: 'preferences' must be a list of [aspect, category, preference, implicit statement, ...].",
        )
    options = data.get("options")
    if not isinstance(options, dict) or not all(
        isinstance(options.get(kind), list) for kind in ("correct", "wrong", "noise")
    ):
        raise TaskError("task.invalid_field", f"{where}: 'options' must contain the lists correct, wrong and noise.")
    by_id: Data = {}
    notes: Data = {}
    for kind in ("correct", "wrong", "noise"):
        for option in options[kind]:
            if not isinstance(option, dict) or not isinstance(option.get("id"), str):
                raise TaskError("task.invalid_field", f"{where}: an option of '{kind}' has no id.")
            if option["id"] in by_id:
                raise TaskError("task.duplicate", f"{where}: two options have the id '{option['id']}'.")
            # Type and reason are the judge's knowledge; the agent sees the other fields.
            visible = {key: value for key, value in option.items() if key not in ("type", "reason")}
            by_id[option["id"]] = visible
            notes[option["id"]] = {"type": kind, "reason": option.get("reason", "")}
    order = data.get("all_ids")  # in the order of `options`, the agent would be shown the right ones first
    best, correct = data.get("best_id"), data.get("correct_ids")
    if not _texts(order) or sorted(order) != sorted(by_id):
        raise TaskError("task.invalid_field", f"{where}: 'all_ids' and the ids of 'options' differ.")
    if not _texts(correct) or best not in correct or not set(correct) <= set(by_id):
        raise TaskError(
            "task.invalid_field", f"{where}: 'best_id' must be one of 'correct_ids', and both must be ids of 'options'."
        )
    preference_rows = [
        {"id": f"P{number}", "category": str(p[1]), "preference": str(p[2]), "implicit": str(p[3]), "rule": {}}
        for number, p in enumerate(preferences, preferences_before + 1)
    ]
    arguments = data.get("arguments")
    if not isinstance(arguments, dict):
        raise TaskError("task.invalid_field", f"{where}: 'arguments' must be an object.")
    return {
        "arguments": {key: str(value) for key, value in arguments.items()},
        "wanted": len(preference_rows),
        "preferences": preference_rows,
        "options": [by_id[option_id] for option_id in order],
        "best": best,
        "correct": sorted(correct),
        "notes": notes,
    }


def _texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(part, str) for part in value)


def _table(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # One thread: starting a pool takes longer than decoding files of this size.
        with open_file(path) as file:
            table = (
                pq.ParquetFile(file).read(columns=COLUMNS, use_threads=False).select(COLUMNS)
            )  # a missing one: KeyError
    except (pa.ArrowException, OSError, KeyError) as error:
        raise TaskError(
            "task.file_unreadable",
            f"{path} is not a readable parquet file with columns {', '.join(COLUMNS)} ({first_line(error)}).",
        ) from None
    check_filled(table, path)
    return table
