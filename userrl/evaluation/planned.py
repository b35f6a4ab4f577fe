"""The plan of an evaluation of a checkpoint, a served model or the demonstrator on gyms and splits."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from curricula.host import AUTO
from curricula.options import check_url
from curricula.suites import Suite, load_suite
from curricula.validation import validated
from userrl.machine.hashes import file_hash
from userrl.machine.home import runs_dir
from userrl.machine.pretrained import model_path
from userrl.reports.run_report import Evaluated, RunReport
from userrl.reports.write_report import write_report
from userrl.run.budget import check_budget
from userrl.run.families import other_families
from userrl.run.job import HOW_IT_IS_ASKED, Actor, StageJob, server_of
from userrl.run.plan import RunPlan, plan_run
from userrl.run.readiness import refuse_missing_key, resolve
from userrl.run.request import EvaluateRequest, TrainRequest
from userrl.run.results import EvaluateResult, Result, chosen_so_far
from userrl.run.run import Run, find
from userrl.run.suites import BASE, settings_of
from userrl.stages.execution import REUSED, execute
from userrl_core.errors import CheckpointError, ConfigError
from userrl_core.seeding import content_hash
from userrl_core.served.client import ChatServer, shown_address
from userrl_core.user_path import no_folder


@dataclass(frozen=True, slots=True)
class PlannedEvaluation:
    """A checked evaluation request, with the policies to evaluate."""

    request: EvaluateRequest
    plan: RunPlan
    actors: tuple[Actor, ...]

    def alone(self) -> PlannedEvaluation:
        """Return the evaluation without other gyms of the checkpoint's training."""
        return replace(self, plan=replace(self.plan, families=()))

    def job(self, run: Run) -> StageJob:
        """Return the stage within its budget. Raises TrainingError if the budget is already spent."""
        job = self.plan.job(run, "evaluate")
        options = job.options.model_copy(update={"concurrency": self.request.concurrency})
        job = job.model_copy(update={"actors": self.actors, "options": options})
        if job.finished() is None:
            check_budget(job)
        return job

    def report(self, run: Run, scores: Result) -> RunReport:
        """Write and return the run's report."""
        assert isinstance(scores, EvaluateResult)
        return write_report(self.plan, run, scores=scores, evaluated=_evaluated(self.actors[0]))


def evaluate_here(
    planned: PlannedEvaluation,
    progress: Callable[[dict[str, Any]], None] = lambda line: None,
    say: Callable[..., None] = lambda *args: None,
) -> RunReport:
    """Evaluate in this process and its children, without a Prefect server.

    progress: called with every progress line. say: called with log lines as for `logging`.
    """
    with planned.plan.begin() as run, run.at_work():
        job = planned.job(run)
        result = job.finished()
        if result is not None:
            say(REUSED, job.stage)
        return planned.report(run, result or execute(job, progress=progress, say=say))


def plan_evaluation(request: EvaluateRequest) -> PlannedEvaluation:
    """Check an evaluation request. Raises ConfigError or CheckpointError with one sentence if it cannot run here."""
    actor = actor_of(request.checkpoint, request.served)
    suite = None if request.suite is None else load_suite(request.suite)
    recipe = _recipe_of(actor, suite) if request.recipe == AUTO else request.recipe
    resolved_request = request.model_copy(update={"recipe": recipe})
    profile, overrides = _sizes(resolved_request, actor, suite)
    plan = plan_run(
        TrainRequest(
            recipe=recipe,
            profile=profile,
            backend="local",
            seed=request.seed,
            name=request.name or "-".join(["evaluate", *([suite.played_as] if suite else []), _called(actor)]),
            overrides=overrides,
            fresh=request.fresh,
            budget=request.budget,
        ),
        only="evaluate",
    )
    if actor.kind == "served":
        refuse_missing_key(server_of(actor))
    # A checkpoint is also evaluated on all gyms of its training, unless gyms were named.
    trained = actor.kind == "checkpoint" and request.gyms is None and suite is None
    families = other_families(plan.recipe, actor.path) if trained else ()
    plan = replace(plan, families=families, evaluated=_from_outside(actor))
    return PlannedEvaluation(request, plan, (actor,) if suite is None else _under(suite, actor))


def refuse_temperature(request: EvaluateRequest, policies: Collection[str]) -> None:
    """Raise ConfigError for a temperature where only the demonstrator plays."""
    if request.temperature is not None and request.model is None and {*policies} == {"demonstrator"}:
        raise ConfigError(
            "argument.conflict",
            "The demonstrator is a script, which no temperature changes. Omit the temperature, or name another policy.",
        )


def _from_outside(actor: Actor) -> dict[str, str]:
    """Return the folder of a checkpoint that no run of this home made, as ``checkpoint``."""
    outside = actor.kind == "checkpoint" and not Path(actor.path).is_relative_to(runs_dir())
    return {"checkpoint": actor.path} if outside else {}


def _under(suite: Suite, actor: Actor) -> tuple[Actor, ...]:
    """Return the actor under each of the suite's protocols. Raises ConfigError if the actor supports only one."""
    if actor.kind != "served":
        if "native" in suite.protocols:
            raise ConfigError(
                "argument.missing",
                f"Suite '{suite.label}' compares protocols, which only a served model can change. Serve the "
                "checkpoint and name it with --model and --base-url.",
            )
        return (actor,)
    choice = {} if suite.tool_choice == "auto" else {"tool_choice": suite.tool_choice}
    limit = {} if suite.max_tokens is None else {"max_tokens": suite.max_tokens}
    served = actor.model_copy(update={"options": {**limit, **choice, **actor.options}})
    native = served.model_copy(update={"native": True, "label": f"{actor.label} (native)"})
    return tuple(native if protocol == "native" else served for protocol in suite.protocols)


def _called(actor: Actor) -> str:
    """Return the actor's part of the run's name. Checkpoint folders of different runs may share a name, so it adds the hash."""
    options = {k: v for k, v in actor.options.items() if k not in (*HOW_IT_IS_ASKED, "base_url", "concurrency")}
    if options:  # other replies, so their conversations are no part of the same scores
        return f"{actor.label}-{content_hash(options)[:8]}"
    in_folder = actor.kind == "checkpoint" and Path(actor.path).name == actor.label
    return f"{actor.label}-{actor.sha256[:8]}" if in_folder else actor.label


def _recipe_of(actor: Actor, suite: Suite | None) -> str:
    """Return the recipe of the run that made the checkpoint. Otherwise the suite's base recipe, or the paper's choice."""
    folders = Path(actor.path).parents if actor.kind == "checkpoint" else ()
    other = "equalized-r2g" if suite is None else BASE
    return next((str(folder / "run.json") for folder in folders if (folder / "run.json").is_file()), other)


def _sizes(request: EvaluateRequest, actor: Actor, suite: Suite | None) -> tuple[str | None, dict[str, Any]]:
    """Return profile and overrides.

    A served model is not trained from scratch. It gets the full prompt, and the full tiers of gyms unless a profile for a
    pretrained model was named.
    """
    overrides = request.with_overrides("evaluate", "gyms", "horizon", "tasks", "attempts", "temperature", "user")
    if suite is not None:
        overrides = settings_of(suite, request.gyms, pretrained=_pretrained(request.recipe)) | overrides
        if request.recipe == BASE:
            if request.profile not in (None, AUTO):
                raise ConfigError("argument.conflict", f"Suite '{suite.label}' sets all sizes. Omit the profile.")
            return None, overrides
    if actor.kind != "served":
        return request.profile, overrides
    sized = None if request.profile in (None, AUTO) else resolve(request.recipe, request.profile, check=False)
    return sized.profile if sized and sized.model.path else None, {"model.prompt_style": "full", **overrides}


def _pretrained(recipe: str) -> bool:
    """Return whether the recipe's model is pretrained. A model from scratch is too small for a paper's token limits."""
    return resolve(recipe, AUTO if recipe != BASE else None, check=False).model.path is not None


def _evaluated(actor: Actor) -> Evaluated:
    if actor.kind != "served":
        return Evaluated(label=actor.label, kind=actor.kind, where=actor.path)
    url = server_of(actor).base_url
    return Evaluated(label=actor.label, kind=actor.kind, where=shown_address(url) if url else "OpenAI")


def actor_of(checkpoint: str, served: Mapping[str, Any] | None = None) -> Actor:
    """Resolve a policy. served: options of a served model, which is the policy instead of the checkpoint.

    Raises CheckpointError for a folder without a model, ConfigError for an address with a password and unusable options.
    """
    if served is not None:
        if "model" not in served:
            raise ConfigError(
                "argument.missing",
                'The options of the served model name no model. Add "model", its name on the server.',
            )
        server = validated(ChatServer, served, "model")
        if server.base_url:
            try:
                check_url(server.base_url, "base_url")
            except ConfigError as error:
                raise ConfigError(error.code, f"{error}.") from None
        options = {name: value for name, value in served.items() if name != "model"}
        address = "" if server.base_url else shown_address(os.environ.get("OPENAI_BASE_URL") or "").rstrip("/")
        return Actor(label=server.model, kind="served", path=server.model, options=options, address=address)
    if checkpoint == "demonstrator":
        return Actor(label="demonstrator", kind="demonstrator")
    folder = Path(model_path(checkpoint))
    label = folder.name
    if not folder.exists() and "/" not in checkpoint:
        run = find(checkpoint)
        if run.checkpoint is None:
            if best := chosen_so_far(run.folder):
                raise CheckpointError(
                    "run.no_checkpoint",
                    f"Run {run.id} is {run.status.state} and has not chosen its checkpoint. `userrl evaluate "
                    f"{shlex.quote(str(best))}` evaluates the best so far.",
                )
            raise CheckpointError(
                "run.no_checkpoint", f"Run {run.id} has no checkpoint yet. Wait for it, or name a checkpoint's folder."
            )
        folder, label = run.checkpoint, run.id
    weights = sorted(folder.glob("*.safetensors"))
    if not (folder / "config.json").is_file() or not weights:
        why = no_folder(folder) or "it has no config.json with *.safetensors"
        raise CheckpointError("checkpoint.missing", f"{folder} is not a checkpoint: {why}.")
    sha256 = file_hash(weights[0])
    # The hash distinguishes folders of the same name in the log.
    return Actor(label=label, kind="checkpoint", path=str(folder.resolve()), id=f"{label}@{sha256[:8]}", sha256=sha256)
