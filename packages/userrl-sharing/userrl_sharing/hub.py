"""The upload of a checkpoint to the Hugging Face hub, with a model card. The folder is written first.

The token comes from ``$HF_TOKEN`` alone. ``$HF_ENDPOINT`` names another server than the public hub.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import httpx

from userrl.machine.home import home, runs_dir, warehouse_dir
from userrl.reports.checkpoints import ListedCheckpoint, listed_checkpoints
from userrl.reports.run_report import read_report
from userrl.run.run import Run, find, load
from userrl_core.errors import CheckpointError, ConfigError, first_line
from userrl_core.key_names import fits_a_header
from userrl_core.replaced_file import write_text
from userrl_core.training.local.checkpoint import read_checkpoint
from userrl_core.training.model_files import STATE
from userrl_sharing.model_card import model_card
from warehouse import open_warehouse

FILES = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)
"""The files of a model. Optimiser, task lists and records of training stay here."""
_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_PEOPLE = "SELECT count(*) FROM trajectories WHERE run_id = $run AND 'human' IN (policy, user_name)"
TOKEN = "HF_TOKEN"


@dataclass(frozen=True, slots=True)
class PreparedUpload:
    """A folder with a model and its card, ready for the upload. origins: origins of conversations that came from outside."""

    repo: str
    folder: Path
    checkpoint: ListedCheckpoint
    origins: tuple[str, ...]
    from_scratch: bool


def prepare(text: str, repo: str) -> PreparedUpload:
    """Write the folder of a checkpoint with its card below ``hub`` in this home, replacing an earlier one.

    text: a checkpoint's folder, or a run, which means the checkpoint that validation chose. Raises ConfigError or
    CheckpointError for a checkpoint that is damaged, has no run with a report, or cannot be loaded by transformers.
    """
    if _REPO.fullmatch(repo) is None:
        raise ConfigError("argument.malformed", f"'{repo}' is not the name of a model on the hub. Write OWNER/NAME.")
    run, checkpoint = _run_and_checkpoint(text)
    report = read_report(run)
    if checkpoint.problem:
        raise CheckpointError("checkpoint.damaged", checkpoint.problem)
    if (checkpoint.path / STATE).is_file():
        read_checkpoint(checkpoint.path)
    recipe, origins = run.info.resolved, _origins(run)
    folder = home() / "hub" / repo.replace("/", "--")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in sorted({file for pattern in FILES for file in checkpoint.path.glob(pattern) if file.is_file()}):
        try:
            os.link(file, folder / file.name)
        except OSError:
            shutil.copyfile(file, folder / file.name)
    card = model_card(report, checkpoint, recipe, repo=repo, origins=origins)
    write_text(folder / "README.md", card)
    return PreparedUpload(repo, folder, checkpoint, origins, report.from_scratch)


def upload(prepared: PreparedUpload, *, public: bool) -> str:
    """Upload a prepared folder and return the address of its commit. Creates the repository, private unless ``public``.

    Raises ConfigError without a token, or with one sentence if the hub or the network refuses.
    """
    token = os.environ.get(TOKEN, "").strip()
    if not token:
        raise ConfigError(
            "hub.no_token",
            f"${TOKEN} is not set. Make a token with write access in the settings of your account, export it as {TOKEN} "
            f"and repeat the command. The folder {prepared.folder} is ready.",
        )
    if not fits_a_header(token):
        raise ConfigError("hub.no_token", f"${TOKEN} contains a character that no token has. Set it again.")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    endpoint = os.environ.get("HF_ENDPOINT") or None
    api = HfApi(endpoint=endpoint, token=token)
    try:
        api.create_repo(prepared.repo, private=not public, exist_ok=True)
        commit = api.upload_folder(
            repo_id=prepared.repo,
            folder_path=prepared.folder,
            commit_message=f"{prepared.checkpoint.stage} step {prepared.checkpoint.step}",
        )
    except OfflineModeIsEnabled:
        raise ConfigError("hub.failed", "HF_HUB_OFFLINE is set, so nothing is sent. Unset it and repeat.") from None
    except (HfHubHTTPError, httpx.HTTPError, OSError) as error:
        # Not `from error`: a traceback could show the headers of the request.
        status = getattr(getattr(error, "response", None), "status_code", None)
        first = first_line(OSError(str(error).replace(token, "***"))).rstrip(".")
        reason = "refused the token" if status in (401, 403) else f"did not take the upload: {first}"
        check = f"{TOKEN} and the name {prepared.repo}" if status else "HF_ENDPOINT and the network"
        raise ConfigError(
            "hub.failed",
            f"{endpoint or 'The hub'} {reason}. Check {check}, then repeat the command. "
            f"The folder {prepared.folder} is ready.",
        ) from None
    return str(commit.commit_url)


def _run_and_checkpoint(text: str) -> tuple[Run, ListedCheckpoint]:
    """Return the checkpoint that a text names, with its run."""
    path = Path(text).resolve()
    if not path.is_dir() or (path / "run.json").is_file():
        run = load(path) if path.is_dir() else find(text)
        chosen = next((row for row in listed_checkpoints(run)[0] if row.chosen), None)
        if chosen is None:
            raise CheckpointError(
                "run.no_checkpoint",
                f"Run {run.id} has not chosen a checkpoint. `userrl checkpoints {run.id}` shows all.",
            )
        return run, chosen
    run_folder = next((parent for parent in path.parents if parent.parent == runs_dir()), None)
    if run_folder is not None:
        run = load(run_folder)
        for row in listed_checkpoints(run)[0]:
            if row.path.resolve() == path:
                return run, row
    raise CheckpointError(
        "checkpoint.not_of_a_run",
        f"{path} is not a checkpoint of a run in this home, so there is no report for its card. Name a run.",
    )


def _origins(run: Run) -> tuple[str, ...]:
    """Return the origins of conversations that the run did not play with its own users."""
    origins = []
    if (run.info.resolved.get("cold_start") or {}).get("data"):
        origins.append("imported conversations for its cold start")
    if warehouse_dir().is_dir():
        with open_warehouse(warehouse_dir(), run=run.id) as warehouse:
            if warehouse.sql(_PEOPLE, run=run.id).fetchall()[0][0]:
                origins.append("conversations of people")
    return tuple(origins)
