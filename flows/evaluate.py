"""A checkpoint, a served model or the demonstrator on gyms and splits."""

from __future__ import annotations

from flows.machine.home import settle

settle()

from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from prefect import flow  # noqa: E402

from curricula.host import AUTO  # noqa: E402
from curricula.options import check_url  # noqa: E402
from flows.run.artifacts import publish  # noqa: E402
from flows.run.job import Actor, StageJob, server_of  # noqa: E402
from flows.run.plan import RunPlan, plan_run  # noqa: E402
from flows.run.readiness import refuse_missing_key, resolve  # noqa: E402
from flows.run.report import Evaluated, Report, write_report  # noqa: E402
from flows.run.request import EvaluateRequest, TrainRequest, takes  # noqa: E402
from flows.run.results import EvaluateResult, file_hash  # noqa: E402
from flows.run.run import Run, find  # noqa: E402
from flows.run.stage import execute, run_stage  # noqa: E402
from userrl_core.errors import CheckpointError, ConfigError  # noqa: E402


@flow(name="evaluate", flow_run_name="{checkpoint}-{seed}")
@takes(EvaluateRequest)
def evaluate(request: EvaluateRequest) -> dict[str, Any]:
    """Play held-out tasks greedily and report the scores."""
    plan, actor = _plan(request)
    with plan.begin() as run, run.at_work():
        scores = run_stage(run, _job(plan, run, actor))
        assert isinstance(scores, EvaluateResult)
        return publish(run, write_report(plan, run, scores=scores, evaluated=_evaluated(actor)))


def evaluate_here(request: EvaluateRequest) -> Report:
    """The same without a Prefect server, for the command line."""
    plan, actor = _plan(request)
    with plan.begin() as run, run.at_work():
        job = _job(plan, run, actor)
        scores = job.result() or execute(job)
        assert isinstance(scores, EvaluateResult)
        return write_report(plan, run, scores=scores, evaluated=_evaluated(actor))


def _plan(request: EvaluateRequest) -> tuple[RunPlan, Actor]:
    actor = actor_of(request.checkpoint, request.model, request.base_url)
    if request.recipe == AUTO:
        request = request.model_copy(update={"recipe": _recipe_of(actor)})
    profile, overrides = _sizes(request, actor)
    plan = plan_run(
        TrainRequest(
            recipe=request.recipe,
            profile=profile,
            backend="local",
            seed=request.seed,
            name=request.name or f"evaluate-{actor.label}",
            overrides=overrides,
            fresh=request.fresh,
        ),
        only="evaluate",
    )
    if actor.kind == "served":
        refuse_missing_key(server_of(actor))
    return plan, actor


def _recipe_of(actor: Actor) -> str:
    """What the run held that made this checkpoint; the paper's choice for one that no run of ours made."""
    folders = Path(actor.path).parents if actor.kind == "checkpoint" else ()
    return next((str(folder / "run.json") for folder in folders if (folder / "run.json").is_file()), "equalized-r2g")


def _sizes(request: EvaluateRequest, actor: Actor) -> tuple[str | None, dict[str, Any]]:
    """Profile and overrides. A served model is no model from scratch: it gets the full prompt, and the full tiers of gyms
    where no profile was named or the one that was is made for such a model."""
    overrides = request.with_overrides("evaluate", "gyms", "horizon", "tasks", "attempts", "user")
    if actor.kind != "served":
        return request.profile, overrides
    sized = None if request.profile in (None, AUTO) else resolve(request.recipe, request.profile, check=False)
    return sized.profile if sized and sized.model.path else None, {"model.prompt_style": "full", **overrides}


def _evaluated(actor: Actor) -> Evaluated:
    if actor.kind != "served":
        return Evaluated(label=actor.label, kind=actor.kind, where=actor.path)
    return Evaluated(label=actor.label, kind=actor.kind, where=server_of(actor).base_url or "OpenAI")


def _job(plan: RunPlan, run: Run, actor: Actor) -> StageJob:
    return plan.job(run, "evaluate").model_copy(update={"actors": (actor,)})


def actor_of(checkpoint: str, model: str | None = None, base_url: str | None = None) -> Actor:
    """Who is meant. Raises CheckpointError for a folder without a model, ConfigError for an address with a password."""
    if model is not None:
        if base_url:
            try:
                check_url(base_url, "base_url")
            except ValueError as error:
                raise ConfigError(f"{error}.") from None
        return Actor(label=model, kind="served", path=model, options={"base_url": base_url} if base_url else {})
    if checkpoint == "demonstrator":
        return Actor(label="demonstrator", kind="demonstrator")
    folder = Path(checkpoint)
    label = folder.name
    if not folder.exists() and "/" not in checkpoint:
        run = find(checkpoint)
        if run.checkpoint is None:
            raise CheckpointError(f"Run {run.id} has no checkpoint yet; wait for it, or name a checkpoint's folder.")
        folder, label = run.checkpoint, run.id
    weights = sorted(folder.glob("*.safetensors"))
    if not (folder / "config.json").is_file() or not weights:
        raise CheckpointError(f"{folder} is no checkpoint: it holds no config.json with *.safetensors.")
    return Actor(label=label, kind="checkpoint", path=str(folder.resolve()), id=label, sha256=file_hash(weights[0]))


if __name__ == "__main__":
    evaluate()
