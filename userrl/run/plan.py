"""The plan of a run: a request, checked and turned into jobs before anything starts."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from curricula import Recipe, recipe_names
from curricula.yaml_files import is_path, stem
from userrl.machine.code_version import code_version
from userrl.machine.engine import who_plays
from userrl.machine.hashes import path_hash
from userrl.machine.home import check_writable, home, warehouse_dir
from userrl.machine.pretrained import model_path
from userrl.machine.slots import alone
from userrl.run.ending import last_step
from userrl.run.estimate import gpu_needs, warning
from userrl.run.external import (
    Hashes,
    changed_sentence,
    changes,
    external_hashes,
    former_hashes,
    record_missing,
    recorded,
)
from userrl.run.families import other_families
from userrl.run.job import Actor, Inputs, Kind, StageJob, StageOptions
from userrl.run.readiness import checked_here, drafted_here, forecast, here, playing_verdict, verdict
from userrl.run.request import Backend, RunBudget, TrainRequest
from userrl.run.results import Result, TrainResult
from userrl.run.run import (
    Run,
    RunDescription,
    claim,
    continued,
    goes_on_as,
    identity,
    known_as,
    known_start,
    run_fields,
)
from userrl_core.errors import CheckpointError, ConfigError
from userrl_core.json_files import read_json
from userrl_core.suggest import nearest
from warehouse.files.runs import register_run

HOPELESS = ("environment", "judge", "settings", "backend")
"""Reasons that no other machine, key or file would change. They are refused in a dry run as well."""

KINDS: dict[str, Kind] = {"distill": "distill", "explore": "distill", "sft": "sft", "evaluate": "evaluate"}
"""Kinds of the stages other than ``rl-n``, by name without number."""


RECORDED = (
    "Run %s began before the content of what it reads was recorded. Recorded now, so whether it changed before is not "
    "known: %s."
)


SLOW_SECONDS = 2.0
"""Seconds of hashing that are worth a line."""


def kind_of(stage: str) -> Kind:
    """Return the kind of a stage by its name."""
    return KINDS.get(stage.partition("-")[0], "rl")


def to_stderr(text: str, *args: object) -> None:
    """Print a log line for people, apart from a command's output."""
    print(text % args, file=sys.stderr)


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A checked request."""

    request: TrainRequest
    recipe: Recipe
    backend: Backend
    init_from: str | None
    stages: tuple[str, ...]
    """Every stage of the run, in order."""
    selected: tuple[str, ...]
    """The stages from from_stage to until."""
    families: tuple[Recipe, ...] = ()
    """One recipe for each gym that is also evaluated because the run or its starting checkpoint was trained on it."""
    evaluated: Mapping[str, str] | None = None
    """Evaluation alone: the folder of the checkpoint by the name ``checkpoint``, if it is from outside. None: a run's plan."""
    missing: str = ""
    """A dry run: what a start on this machine would be refused for, as a sentence. Empty if nothing is missing."""

    @property
    def run_id(self) -> str:
        """The run's id without its generation."""
        request = self.request
        new_id, former_id = (
            identity(values, seed=request.seed, backend=self.backend, name=request.name, init_from=self.start_name)
            for values in (self.recipe.identity, self.recipe.former_identity)
        )
        return known_as(new_id, former_id)

    @property
    def name(self) -> str:
        """The run's name."""
        return self.request.name or self.recipe.name

    def rl_stages(self, branch: str = "") -> tuple[str, ...]:
        """Return ``rl-1`` ... ``rl-n``: the stages of a branch, or those that all branches share."""
        return tuple(planned.name for planned in self.recipe.planned_stages if planned.branch == branch)

    @property
    def start(self) -> TrainResult | None:
        """The checkpoint to start from, as a stage's result. None if the recipe's model is used."""
        path = self.init_from or (None if "sft" in self.stages else self.recipe.model.path)
        name = self.start_name or path
        return None if path is None else TrainResult(checkpoint=Path(model_path(path)), sha256=name or "", id=name)

    @property
    def start_name(self) -> str | None:
        """The path of ``init_from`` in the run's identity: the one before the home was moved, if a run knows it."""
        return None if self.init_from is None else known_start(self.init_from)

    @property
    def from_scratch(self) -> bool:
        """Return whether the run creates the model itself."""
        return self.recipe.model.path is None and self.init_from is None

    @property
    def estimate(self) -> str | None:
        """Return how long the run will take, as a sentence; None where no estimate holds, as for a part of a short run."""
        earlier = continued(self.run_id, fresh=self.request.fresh, flow_run=None)
        is_complete = self.selected == self.stages and self.init_from is None and earlier is None
        return (forecast if is_complete else warning)(self.recipe, here().gpus)

    @property
    def says(self) -> tuple[str, ...]:
        """The messages before the start: estimate, additional evaluations, untrained start, and which values were replaced."""
        replaced = self.recipe.replaced
        also = [
            f"also evaluated, because the model was trained on it: {gym}"
            for r in self.families
            for gym in r.evaluation_gyms
        ]
        by = ", ".join(dict.fromkeys(row.by for row in replaced))
        listed = (
            f"{len(replaced)} values of the recipe were replaced ({by}); the report and `userrl recipe show` list them."
        )
        shipped = {f"recipe {name}" for name in recipe_names()}
        by_profile = [
            f"{row.key} {row.old} by {row.new}"
            for row in replaced
            if row.where.startswith("recipe ") and row.where not in shipped and row.by.startswith("profile ")
        ]
        if by_profile and is_path(self.request.recipe):
            name = stem(self.recipe.profile or "")
            also.append(
                f"Profile {name} replaces values of your recipe: {', '.join(by_profile)}. To keep one, write it below "
                f"'profiles: {{{name}: ...}}' in your file, or use --set."
            )
        untrained = (
            "cold_start.enabled is false: stage distill only gives the new model's tokenizer its text, and stage sft writes the "
            "model untrained."
        )
        skips = self.from_scratch and "sft" in self.selected and not self.recipe.cold_start.enabled
        return (*filter(None, [self.estimate]), *also, *([untrained] if skips else []), *([listed] if replaced else []))

    def describe(self) -> str:
        """Return the resolved recipe's stage table as text."""
        profile = self.recipe.profile or "none: as published"
        rows = [f"run {self.run_id}: {' -> '.join(self.stages)}", f"  profile {profile}, backend {self.backend}"]
        if self.selected != self.stages:
            rows.append(f"  only {' -> '.join(self.selected)}")
        rows += [
            f"  {row['stage']}: steps {row['first']} to {row['last']}, horizon {row['horizon']}, mix {row['mix']}"
            for row in self.recipe.stage_table()
        ]
        if needs := gpu_needs(self.recipe, self.backend, self.init_from):
            needs.append(("checkpoints are evaluated by", who_plays(self.recipe.hardware)))
        rows += [f"  {label}: {value}" for label, value in needs]
        rows += [f"  {sentence}" for sentence in filter(None, [self.estimate])]
        rows += [f"  It cannot start here. {self.missing}"] if self.missing else []
        return "\n".join(rows)

    @contextmanager
    def begin(self, flow_run: str | None = None, say: Callable[..., None] = to_stderr) -> Iterator[Run]:
        """Lock the run for this process, and register it in the warehouse.

        flow_run: the id of the flow run that works on it; None outside a flow. say: called with log lines as for `logging`.
        """
        check_writable(home(), warehouse_dir())
        since = time.monotonic()
        external = self.external()
        if (seconds := time.monotonic() - since) > SLOW_SECONDS:
            say("Hashed what the run reads from outside in %.0f s.", seconds)
        earlier = continued(self.run_id, fresh=self.request.fresh, flow_run=flow_run)
        because = "" if earlier is None else self.why_not(earlier)
        description = RunDescription(
            name=self.name,
            recipe=self.recipe.name,
            profile=self.recipe.profile,
            seed=self.request.seed,
            backend=self.backend,
            resolved=self.recipe.resolved(),
            init_from=self.init_from,
            because=because,
        )
        run = claim(self.run_id, description, fresh=self.request.fresh, flow_run=flow_run)
        if because:
            say("%s Run %s begins.", because, run.id)
        with alone(run.folder / "run.lock", f"Run {run.id}"):
            if added := record_missing(run.folder, external, former_hashes(self._weights)):
                say(RECORDED, run.id, ", ".join(f"{name} {digest[:12]}" for name, digest in added.items()))
            fields = run_fields(
                self.recipe,
                seed=self.request.seed,
                backend=self.backend,
                name=self.name,
                code_version=code_version(),
                created=run.info.created,
            )
            register_run(warehouse_dir(), run.id, fields)
            run.forget_stop()
            yield run

    @property
    def goes_on_as(self) -> str:
        """The id of the run that `begin` gives without ``fresh``."""
        return goes_on_as(self.run_id, anew=bool(self.outdated))

    @property
    def outdated(self) -> str:
        """Why the run's newest generation is not continued, as a sentence; "" if it is, or if nothing would be."""
        run = continued(self.run_id, fresh=self.request.fresh, flow_run=None)
        return "" if run is None else self.why_not(run)

    def why_not(self, run: Run) -> str:
        """Return why a run of this plan is not continued, as a sentence; "" if it is."""
        changed = changes(run.folder, self.external(), former_hashes(self._weights))
        return changed_sentence(run.id, changed) if changed else ""

    def external(self) -> dict[str, Hashes]:
        """Return the hashes of what the run reads from outside, by stage."""
        hash_once = cache(path_hash)
        return {stage: self._external(stage, hash_once) for stage in self.stages}

    def _external(self, stage: str, hash_path: Callable[..., str] = path_hash) -> Hashes:
        kind = kind_of(stage)
        recipes = (self.recipe, *self.families * (kind == "evaluate"))
        return external_hashes(kind, stage, recipes, self._weights, hash_path)

    @property
    def _weights(self) -> Mapping[str, str]:
        """The folder of the model that stages read, by the key that names it."""
        if self.evaluated is not None:
            return self.evaluated
        key = "model.path" if self.init_from is None else "init_from"
        path = self.init_from or self.recipe.model.path
        return {} if path is None else {key: model_path(path)}

    def selects(self, stage: str) -> bool:
        """Return whether the stage is between from_stage and until."""
        return stage in self.selected

    def is_after(self, stage: str) -> bool:
        """Return whether the stage comes after until."""
        return self.stages.index(stage) > self.stages.index(self.selected[-1])

    def earlier(self, job: StageJob) -> Result:
        """Return the result of a stage before from_stage. Raises CheckpointError without one."""
        result = job.result()
        if result is None:
            raise CheckpointError(
                "stage.not_finished",
                f"from_stage is {self.selected[0]}, but run {job.run_id} has no finished stage {job.stage}. "
                "Omit from_stage.",
            )
        return result

    def job(self, run: Run, stage: str, inputs: Inputs | None = None) -> StageJob:
        """Return the stage as data."""
        kind, inputs = kind_of(stage), inputs or Inputs()
        return StageJob(
            kind=kind,
            stage=stage,
            run_id=run.id,
            folder=run.stage(stage),
            warehouse=warehouse_dir(),
            recipe=self.recipe,
            seed=self.request.seed,
            backend=self.backend,
            inputs=inputs,
            actors=actors(self.recipe, inputs) if kind == "evaluate" else (),
            families=self.families if kind == "evaluate" else (),
            external={**self._external(stage), **(recorded(run.stage(stage)) or {})},  # what it read first stays
            options=StageOptions(
                keep_checkpoints=max(self.request.keep_checkpoints, self.recipe.evaluate.last),
                share_cold_start=self.request.share_cold_start,
                wandb=self.request.wandb,
                track=self.request.track,
                budget=self.request.budget or RunBudget(),
            ),
        )


def plan_run(request: TrainRequest, *, only: Literal["distill", "evaluate"] | None = None) -> RunPlan:
    """Check everything that can be checked now. Raises ConfigError or CheckpointError with one sentence.

    only: nothing is trained, so only the needs of this one stage are checked. A dry run is refused nothing that this machine
    lacks, because it shows what would be needed.
    """
    if not request.dry_run:
        _check_trackers(request.track)
    drafted = drafted_here(request.recipe, request.profile, request.overrides)
    recipe = drafted.recipe
    backend = recipe.hardware.backend if request.backend == "auto" else request.backend
    stages = _stages(recipe)
    selected = _between(stages, request.from_stage, request.until)
    start = _checked_start(request.init_from)
    missing = ""
    if only is not None:
        playing_verdict(recipe, here(), only).enforce()
    else:
        trained = [planned for planned in recipe.planned_stages if planned.name in selected]
        answer = verdict(recipe, here(), backend=backend, init_from=start or "", stages=trained)
        if selected == ("distill",) and answer.reason not in HOPELESS:
            answer = playing_verdict(recipe, here(), "distill")  # which needs no GPU
        if not request.dry_run or answer.reason in HOPELESS:
            answer.enforce()
        missing = answer.sentence
    recipe = checked_here(drafted, trains=only is None)
    families = other_families(recipe, start)
    return RunPlan(request, recipe, backend, start, _stages(recipe), selected, families, missing=missing)


def actors(recipe: Recipe, inputs: Inputs) -> tuple[Actor, ...]:
    """Return the policies to compare on held-out tasks: scripted demonstrator, cold start, RL's best and last checkpoint.

    A start checkpoint from other training comes before them, so that forgetting is visible. A run with branches has the
    checkpoints of each branch, under its name, instead of the shared ones. A recipe without a cold start that trains from
    scratch has the model from which RL started in its place. One that begins with recorded conversations has no demonstrator.
    """
    compared = []
    is_scripted = recipe.demonstrations.policy == "scripted" and recipe.cold_start.data is None
    if is_scripted and inputs.distill is not None:
        compared.append(Actor(label="demonstrator", kind="demonstrator"))
    cold, rl = inputs.sft, inputs.rl
    if inputs.init is not None:
        compared.append(_checkpoint("start", inputs.init, step=0))
    if cold is not None:
        compared.append(_checkpoint("SFT" if recipe.cold_start.enabled else "start", cold, step=0))
    ends = inputs.ends
    if rl is not None and not ends and (cold is None or rl.checkpoint != cold.checkpoint):
        ends = {"RL": rl}
    for label, end in ends.items():
        compared.append(_checkpoint(label, end, step=end.step))
        if end.best is not None and end.best.path != end.checkpoint:
            compared.append(_last(label, end))
        compared += _before_last(label, end, recipe.evaluate.last)
    return tuple(compared)


def _last(label: str, end: TrainResult) -> Actor:
    """Return the last step as a policy. The checkpoint that validation chose hides whether training held its level."""
    path = str(end.checkpoint)
    return Actor(label=last_step(label), kind="checkpoint", path=path, id=end.id, sha256=end.sha256, step=end.step)


def _before_last(label: str, end: TrainResult, newest: int) -> list[Actor]:
    """Return the newest checkpoints of the last stage, except its last step and the best, which are already included."""
    folders = sorted(end.checkpoint.parent.glob("step-[0-9]*"), reverse=True)[:newest] if newest > 1 else []
    states = {folder: read_json(folder / "state.json") for folder in folders}
    included = {end.checkpoint, end.best.path if end.best else None}
    return [
        Actor(
            label=f"{label} at step {state['step']}",
            kind="checkpoint",
            path=str(folder),
            id=state["id"],
            sha256=state["sha256"],
            step=state["step"],
        )
        for folder, state in states.items()
        if state is not None and folder not in included
    ]


def _checkpoint(label: str, result: TrainResult, *, step: int) -> Actor:
    """Return the best checkpoint on validation if there is one, else the last, which is of this step."""
    best, path = result.best, str(result.chosen)
    if best is None:
        return Actor(label=label, kind="checkpoint", path=path, id=result.id, sha256=result.sha256, step=step)
    return Actor(label=label, kind="checkpoint", path=path, id=best.id, sha256=best.id, step=best.step)


def _stages(recipe: Recipe) -> tuple[str, ...]:
    # Also without a cold start, because a model from scratch needs a tokenizer, trained on demonstrations, and initial
    # weights.
    cold = ("distill", "sft") if recipe.cold_start.enabled or recipe.model.path is None else ()
    evolved = [f"{part}-{number}" for number in iterations(recipe) for part in ("explore", "sft")]
    return (*cold, *evolved, *(planned.name for planned in recipe.planned_stages), "evaluate")


def iterations(recipe: Recipe) -> range:
    """Return the numbers of AgentEvol's iterations. Empty for a recipe without that loop."""
    return range(1, 1 + (recipe.evolve.iterations if recipe.evolve else 0))


def _between(stages: tuple[str, ...], first: str | None, last: str | None) -> tuple[str, ...]:
    for field, value in (("from_stage", first), ("until", last)):
        if value is not None and value not in stages:
            raise ConfigError(
                "stage.no_such_stage",
                f"{field} is '{value}'{nearest(value, stages)}. The stages are {', '.join(stages)}.",
            )
    begin = stages.index(first) if first else 0
    end = stages.index(last) if last else len(stages) - 1
    if begin > end:
        raise ConfigError("stage.no_such_stage", f"from_stage '{first}' comes after until '{last}'. Exchange them.")
    return stages[begin : end + 1]


def _checked_start(init_from: str | None) -> str | None:
    """Check that a local checkpoint exists. A name that looks like one of Hugging Face is left to the loader."""
    if init_from is None:
        return None
    path = Path(init_from)
    if (path / "config.json").is_file():
        return str(path.resolve())
    if path.is_absolute() or init_from.startswith((".", "~")) or init_from.count("/") != 1:
        raise CheckpointError(
            "checkpoint.missing", f"init_from {init_from} is not a checkpoint: it has no config.json."
        )
    return init_from


def _check_trackers(names: Iterable[str]) -> None:
    """Raise ConfigError for a tracker whose package is not installed."""
    for name in names:
        if find_spec(name) is None:
            raise ConfigError(
                "install.missing",
                f"{name} is not installed. Run pip install -c constraints.txt -e '.[{name}]' in the checkout, "
                "then try again.",
            )
