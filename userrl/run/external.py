"""What a run reads from outside: data files, folders of tasks, texts and models, and the packages of what recipes name.

A run's id has their paths and names. Their content may change under the same id, so every stage keeps the hash of what it
read, in its ``job.json``. A run whose stages read other content than there is now is not continued: a new generation begins,
as with ``fresh``. Our own code is not hashed, so that an update continues earlier runs.

Each start of a run reads all of it once (`path_hash`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from curricula import Recipe, schedule, task_curriculum
from userrl.machine.hashes import path_hash
from userrl.machine.home import home
from userrl.run.job import Kind
from userrl.run.tasks import PLAYED, judge_prompt, own_user_url, task_sources, text_sources, user_of_role
from userrl_core.errors import ConfigError
from userrl_core.gyms import registry
from userrl_core.installed.package_files import package_roots
from userrl_core.installed.same_name import offered, package_of
from userrl_core.json_files import read_json, write_json
from userrl_core.rewards import installed as rules
from userrl_core.training.model_files import RECORD, local_folder
from userrl_core.user_path import user_path

Hashes = dict[str, str]
"""SHA-256 by name: the recipe's key for a file or a folder, else what a package brings (``gym coin``).

Of a hub model it is the commit in the Hugging Face cache.
"""


def external_hashes(
    kind: Kind,
    stage: str,
    recipes: Sequence[Recipe],
    weights: Mapping[str, str],
    hash_path: Callable[..., str] = path_hash,
) -> Hashes:
    """Return the hash of everything from outside that a stage reads. What does not exist is left out.

    recipes: the run's, and those of gyms that are also evaluated. weights: the model's folder by the key that names it.
    hash_path: hashes a file or a folder, as `path_hash`. Raises ConfigError for an unreadable file.
    """
    sources = [source for recipe in recipes for source in _sources(kind, stage, recipe)]
    try:
        hashes = {name: digest for name, paths in sources if (digest := _hash(paths, hash_path))}
        if stage != "distill":  # demonstrations alone are played without the model
            hashes |= {name: commit for name, path in weights.items() if (commit := _commit(path)) is not None}
            # The record of a fetched model has the day. The same model that is fetched again is the same content.
            folders = {name: Path(folder) for name, folder in weights.items() if Path(folder).exists()}
            hashes |= {name: hash_path(folder, RECORD) for name, folder in folders.items()}
        return hashes
    except OSError as error:
        raise ConfigError(
            "file.unreadable",
            f"{error.filename} cannot be read ({error.strerror}). Make it readable, or give another path.",
        ) from None


def _hash(paths: tuple[Path, ...], hash_path: Callable[[Path], str]) -> str:
    hashes = [hash_path(path) for path in paths if path.exists()]
    return sha256("".join(hashes).encode()).hexdigest() if len(hashes) > 1 else "".join(hashes)


def _commit(path: str) -> str | None:
    """Return the commit of a hub model that is in the Hugging Face cache. None for a folder and what is not there."""
    with suppress(ValueError):  # a missing folder whose path is no name on the hub
        folder = None if Path(path).exists() else local_folder(path)
        return None if folder is None else folder.name
    return None


def _sources(kind: Kind, stage: str, recipe: Recipe) -> Iterator[tuple[str, tuple[Path, ...]]]:
    """Yield the names of what a stage reads by its recipe, with the files and folders of each."""
    if stage == "distill" and recipe.cold_start.data is not None:
        yield "cold_start.data", (user_path(recipe.cold_start.data),)
        return
    if kind == "sft":
        return
    role, played = PLAYED[kind]
    if stage.startswith("explore"):
        role = "train"
    for gym in played(recipe):
        yield f"gym {gym}", _package(registry.ENTRY_POINT, gym)
        yield from task_sources(recipe, gym).items()
        yield from text_sources(recipe, gym, role).items()
        yield from _named_paths(f"gyms.{gym}", recipe.gym(gym).model_dump(exclude={"published"}))
    if (user := user_of_role(recipe, role)) is not None:
        yield from _named_paths(f"{'evaluate' if role == 'evaluate' else 'demonstrations'}.user.options", user.options)
    if own_user_url(recipe) is not None:
        yield from _named_paths("hardware.user_model", recipe.hardware.user_model)
    if kind == "rl":
        if recipe.judge is not None:
            yield from _named_paths("judge", recipe.judge.model_dump(include={"model", "options"}))
        if (prompt := judge_prompt(recipe)) is not None:
            yield "judge.prompts", (prompt,)
        yield f"credit rule {recipe.credit.shaping}", _package(rules.ENTRY_POINT, recipe.credit.shaping)
        yield f"curriculum {recipe.curriculum.kind}", _package(task_curriculum.ENTRY_POINT, recipe.curriculum.kind)
        if recipe.horizons is not None:
            yield f"schedule {recipe.horizons.kind}", _package(schedule.ENTRY_POINT, recipe.horizons.kind)


@cache
def _package(group: str, name: str) -> tuple[Path, ...]:
    """Return the files and folders of the package with this entry point. Empty for our own."""
    points = offered(group).get(name)
    if points is None or package_of(points[0]) in registry.PACKAGED.values():
        return ()
    return package_roots(points[0])


def _named_paths(key: str, value: Any) -> Iterator[tuple[str, tuple[Path, ...]]]:
    """Yield the files and folders that options name, at any depth. A text without a dot or a slash is never taken for a path."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _named_paths(f"{key}.{name}", inner)
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from _named_paths(f"{key}.{number}", inner)
    elif isinstance(value, str) and not {".", "/"}.isdisjoint(value):
        with suppress(OSError):  # a text longer than a path can be
            path = user_path(value)
            if path.is_file() or (path.is_dir() and not _has_our_files(path)):
                yield key, (path,)


def _has_our_files(folder: Path) -> bool:
    """Return whether the working directory or the home, in which runs write, is this folder or in it."""
    return any(place.resolve().is_relative_to(folder.resolve()) for place in (Path.cwd(), home()))


def former_hashes(weights: Mapping[str, str]) -> Hashes:
    """Return the hashes that earlier versions kept of fetched models: with the model's record."""
    folders = {name: Path(folder) for name, folder in weights.items()}
    return {name: path_hash(folder) for name, folder in folders.items() if (folder / RECORD).is_file()}


def changes(folder: Path, now: Mapping[str, Hashes], former: Hashes) -> dict[str, tuple[str, str]]:
    """Return what a run's stages read with another content than there is now: name, hash then, hash now.

    folder: the run's. now: hashes by stage. former: `former_hashes`, which are as good.
    """
    return {
        name: (before[name], digest)
        for stage, hashes in now.items()
        if (before := recorded(folder / "stages" / stage)) is not None
        for name, digest in hashes.items()
        if before.get(name, digest) not in (digest, former.get(name))
    }


def changed_sentence(run_id: str, changed: Mapping[str, tuple[str, str]]) -> str:
    """Return why a run is not continued, with both hashes."""
    parts = [f"{name} was {before[:12]} and is {digest[:12]}" for name, (before, digest) in changed.items()]
    return f"Run {run_id} read other content than there is now: {'; '.join(parts)}."


def recorded(stage_folder: Path) -> Hashes | None:
    """Return the hashes that a stage keeps; {} for one of an earlier version, None for one that never began."""
    job = read_json(stage_folder / "job.json")
    return None if job is None else dict(job.get("external") or {})


def record_missing(folder: Path, now: Mapping[str, Hashes], former: Hashes) -> Hashes:
    """Keep hashes with the stages that began without, such as those of an earlier version, and replace the former hashes.

    Return the hashes of names that were not recorded, by name.
    """
    added: Hashes = {}
    for stage, hashes in now.items():
        before = recorded(folder / "stages" / stage)
        if before is None:
            continue
        newer = {name: digest for name, digest in hashes.items() if before.get(name) in (None, former.get(name))}
        if newer:
            file = folder / "stages" / stage / "job.json"
            write_json(file, {**(read_json(file) or {}), "external": {**before, **newer}})
            added |= {name: newer[name] for name in newer.keys() - before.keys()}
    return dict(sorted(added.items()))
