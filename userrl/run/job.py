"""One stage as data, given by a flow to a worker process. The worker answers with progress lines and a result file."""

from __future__ import annotations

import json
import os
import time
from itertools import count
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, PositiveInt, ValidationError

from curricula import Recipe
from curricula.validation import validated
from userrl.machine.home import relocated
from userrl.run.request import Backend, RunBudget, Tracker, Wandb
from userrl.run.results import EARLIER, RESULTS, DistillResult, Result, TrainResult
from userrl_core.errors import ConfigError
from userrl_core.json_files import end_torn_line, read_json, write_json
from userrl_core.seeding import content_hash
from userrl_core.served.client import ChatServer
from userrl_core.settings import Settings
from userrl_core.training.jobs import ANEW, begun_marker

Kind = Literal["distill", "sft", "rl", "evaluate"]


HOW_IT_IS_ASKED = ("timeout", "retries", "backoff", "api_key_env")
"""Options of a served model that change no reply. An evaluation continues under other values of them."""


class Actor(Settings):
    """A policy to evaluate: a demonstrator, a checkpoint or a served model."""

    label: str
    """Name in reports: demonstrator, SFT, RL."""

    kind: Literal["demonstrator", "checkpoint", "served"]
    """The recipe's demonstrator, a model on disk, or a model behind a server."""

    path: str = ""
    """Checkpoint: its folder. Served: the model's name."""

    id: str | None = None
    """Checkpoint: its id in the warehouse."""

    sha256: str = ""
    """Checkpoint: hash of its weights."""

    step: int = 0
    """Checkpoint: its training step."""

    options: dict[str, Any] = Field(default_factory=dict)
    """Served: the server's other settings, such as base_url."""

    address: str = ""
    """Served: the server's address in OPENAI_BASE_URL without secrets, if no option has one. Scores are of one server."""

    native: bool = False
    """Served: acts through each gym's native tools and plain text instead of the interact tool."""

    @property
    def identity(self) -> list[Any]:
        """The values that decide whether an earlier evaluation can be reused."""
        options = {name: value for name, value in self.options.items() if name not in HOW_IT_IS_ASKED}
        which = [self.label, self.kind, self.path if self.kind == "served" else self.sha256, self.step, options]
        return [*which, *filter(None, [self.address, "native" * self.native])]


def server_of(actor: Actor) -> ChatServer:
    """Return the server of a served policy."""
    base_url = actor.options.get("base_url") or os.environ.get("OPENAI_BASE_URL") or None
    return ChatServer(model=actor.path, **{**actor.options, "base_url": base_url})


class Inputs(Settings):
    """Results of earlier stages for this one."""

    distill: DistillResult | None = None
    """The demonstrations."""

    init: TrainResult | None = None
    """Cold start: the model that it starts from."""

    before: TrainResult | None = None
    """RL: the stage before. AgentEvol: the model that samples."""

    reference: TrainResult | None = None
    """RL: the reference model of the KL distance."""

    sft: TrainResult | None = None
    """Evaluation: the cold start."""

    rl: TrainResult | None = None
    """Evaluation: the last RL stage that all branches share."""

    ends: dict[str, TrainResult] = Field(default_factory=dict)
    """Evaluation: the last stage of each branch, or of each AgentEvol iteration."""

    @property
    def identity(self) -> dict[str, list[Any]]:
        """The values that decide whether work on these inputs can be reused."""
        results = {name: value for name, value in self if isinstance(value, Result)} | self.ends
        return {name: [result.sha256, result.step] for name, result in results.items()}


class StageOptions(Settings):
    """Options that do not change a stage's result."""

    model_config = ConfigDict(extra="ignore")  # earlier job files also have the run's name and code version here

    keep_checkpoints: PositiveInt = 2
    """Number of checkpoints to keep in addition to the best one."""

    share_cold_start: bool = False
    """Whether a cold start may be that of an earlier run."""

    wandb: Wandb = "offline"
    """Weights & Biases logging, in addition to the warehouse."""

    track: tuple[Tracker, ...] = ()
    """Other trackers of the same numbers."""

    budget: RunBudget = RunBudget()
    """The run's budget."""

    concurrency: PositiveInt | None = None
    """Parallel conversations of an evaluation, and requests to its served model. Default: 64 and 32."""


REUSED_FILE = "reused"


class StageJob(Settings):
    """A stage of a run. It has its own folder; started again there, it continues where it was."""

    kind: Kind
    """The kind of work."""

    stage: str
    """Name in records: distill, sft, explore-1, sft-1 ..., rl-1 ... rl-n, evaluate."""

    run_id: str
    """The run in the warehouse."""

    folder: Path
    """Folder of this stage."""

    warehouse: Path
    """Folder of the warehouse that turns are logged to."""

    recipe: Recipe
    """The resolved recipe."""

    seed: int = 0
    """Seed of all random draws."""

    backend: Backend = "local"
    """The trainer."""

    inputs: Inputs = Inputs()
    """Results of earlier stages."""

    actors: tuple[Actor, ...] = ()
    """The policies to evaluate."""

    families: tuple[Recipe, ...] = ()
    """Evaluation: one recipe for each gym that was trained on but is outside the recipe's evaluation (`userrl.run.families`)."""

    options: StageOptions = StageOptions()
    """Options that do not change the result."""

    external: dict[str, str] = Field(default_factory=dict)
    """Hashes of what the stage reads from outside, by name (`userrl.run.external`)."""

    @classmethod
    def read(cls, path: Path) -> StageJob:
        """Return the job that `write` left. Raises ConfigError for anything else."""
        values = read_json(path)
        if values is None:
            raise ConfigError("stage.damaged", f"{path} contains no job. A flow writes one for each stage.")
        job = validated(cls, values, f"job {path}")
        folder = path.resolve().parent
        if job.folder == folder or job.folder.parts[-4:] != folder.parts[-4:]:
            return job
        # The home was moved or copied since, so its paths are those of the open home.
        home, written_in = folder.parents[3], job.folder.parents[3]
        moved = validated(cls, relocated(values, folder.parents[1]), f"job {path}")
        in_home = job.warehouse.is_relative_to(written_in)
        return moved.model_copy(update={"warehouse": home / job.warehouse.relative_to(written_in)} if in_home else {})

    @property
    def key(self) -> str:
        """Identity of the work. The same key gives the same result, so a finished one is reused."""
        return self._key(self.recipe.identity, [family.identity for family in self.families])

    @property
    def former_key(self) -> str:
        """The key of the same work up to commit f197b02."""
        return self._key(self.recipe.former_identity, [family.former_identity for family in self.families])

    @property
    def accepted_keys(self) -> tuple[str, str, str]:
        """The key, and those that earlier versions gave the same work: they did not know a served model's address.

        The name is not ``keys``, because Prefect would take a job for a mapping.
        """
        actors = tuple(actor.model_copy(update={"address": ""}) for actor in self.actors)
        without = self.model_copy(update={"actors": actors})
        return self.key, without.key, without.former_key

    def _key(self, recipe: dict[str, Any], families: list[dict[str, Any]]) -> str:
        actors = [actor.identity for actor in self.actors]
        inputs = self.inputs.identity
        hashed = [self.run_id, self.kind, self.stage, recipe, self.seed, self.backend, inputs, actors]
        return content_hash([*hashed, families] if families else hashed)

    @property
    def run_folder(self) -> Path:
        """The run's folder, which contains this stage's folder."""
        return self.folder.parents[1]

    @property
    def reused_file(self) -> Path:
        """A file touched whenever the stage's earlier result is reused."""
        return self.folder / REUSED_FILE

    @property
    def progress_file(self) -> Path:
        """A file with one JSON line per step."""
        return self.folder / "progress.jsonl"

    def write(self) -> Path:
        """Write the job for its process."""
        path = self.folder / "job.json"
        write_json(path, self.model_dump(mode="json"))
        return path

    def _written(self) -> Result | None:
        """Return the result that was written for exactly this job, or None."""
        written = read_json(self.folder / "result.json")
        if written is None or written.get("key") not in self.accepted_keys:
            return None
        return RESULTS[self.kind].model_validate(relocated(written["value"], self.run_folder))

    def result(self) -> Result | None:
        """Return the result of exactly this job, or None if there is no result or its files are gone or changed."""
        written = self._written()
        return written if written is not None and written.holds() else None

    def damaged(self) -> bool:
        """Return True if this job finished before and its files have since been deleted or changed."""
        written = self._written()
        return written is not None and not written.holds()

    def has_other_inputs(self) -> bool:
        """Return whether the folder's work began from other results of earlier stages. A trainer would continue its checkpoints.

        False for an evaluation, whose log has its job. An input that only one of the two jobs has does not count: earlier
        versions stored fewer.
        """
        written = read_json(self.folder / "job.json")
        if written is None or self.kind == "evaluate":
            return False
        try:
            earlier = Inputs.model_validate(written.get("inputs")).identity
        except ValidationError:
            return False
        return any(earlier.get(name, value) != value for name, value in self.inputs.identity.items())

    def start_over(self) -> Path:
        """Move the folder's files to the run's folder ``earlier``, and return their place. The next start voids their log."""
        begun_marker(self.folder).write_text(ANEW)
        earlier = self.run_folder / EARLIER
        earlier.mkdir(exist_ok=True)
        folder = next(path for n in count(1) if not (path := earlier / f"{self.folder.name}.{n}").exists())
        self.folder.rename(folder)
        self.folder.mkdir()
        return folder

    def finished(self) -> Result | None:
        """Return the result of exactly this job if a rerun has nothing left to do."""
        result = self.result()
        return result if result is not None and result.complete else None

    def finish(self, result: Result) -> None:
        """Write the result."""
        value = result.model_dump(mode="json")
        write_json(self.folder / "result.json", {"key": self.key, "value": value, "at": time.time()})


class ProgressWriter:
    """A writer of one line per step: step, total, seconds since the start, and any given numbers."""

    def __init__(self, path: Path) -> None:
        """Open the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        end_torn_line(path)
        self._file = path.open("a", buffering=1)
        self._began = time.monotonic()

    def __call__(self, step: int, total: int, **numbers: Any) -> None:
        """Write one finished step."""
        line = {"step": step, "total": total, "seconds": round(time.monotonic() - self._began, 3), **numbers}
        self._file.write(json.dumps(line, default=float) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()
