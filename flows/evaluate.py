"""A checkpoint, a served model or the demonstrator on gyms and splits."""

from __future__ import annotations

from flows.machine.home import settle

settle()

from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from prefect import flow  # noqa: E402

from curricula.options import check_url  # noqa: E402
from flows.run.job import Actor, Job, file_hash  # noqa: E402
from flows.run.plan import Plan, make_plan  # noqa: E402
from flows.run.report import report, write_report  # noqa: E402
from flows.run.run import Run, find, newest_trained  # noqa: E402
from flows.run.stage import execute, run_stage  # noqa: E402
from userrl_core.errors import CheckpointError, ConfigError  # noqa: E402


@flow(name="evaluate", flow_run_name="{checkpoint}-{seed}")
def evaluate(
    checkpoint: str = "latest",
    recipe: str = "equalized-r2g",
    profile: str | None = "laptop",
    gyms: list[str] | None = None,
    horizon: int | None = None,
    tasks: int | None = None,
    attempts: int | None = None,
    user: dict[str, Any] | str | None = None,
    model: str | None = None,
    base_url: str | None = None,
    seed: int = 0,
    name: str = "",
    overrides: dict[str, Any] | None = None,
    fresh: bool = False,
) -> dict[str, Any]:
    """Play held-out tasks greedily and report the scores.

    checkpoint: a folder, a run's id (its best checkpoint), ``latest`` (the newest run that has one), or ``demonstrator``.
    model: a served model in its place, behind base_url or OpenAI. gyms, horizon, tasks (per gym), attempts, user: None
    leaves each as the recipe and profile say.
    """
    plan, who = _plan(
        checkpoint, recipe, profile, gyms, horizon, tasks, attempts, user, model, base_url, seed, name, overrides
    )
    with plan.begin(fresh=fresh) as run, run.at_work():
        scores = run_stage(run, _job(plan, run, who))
        return report(plan, run, None, None, None, scores)


def evaluate_here(checkpoint: str, **parameters: Any) -> dict[str, Any]:
    """The same without a Prefect server, for the command line."""
    given = {
        name: parameters.get(name) for name in ("gyms", "horizon", "tasks", "attempts", "user", "model", "base_url")
    }
    plan, who = _plan(
        checkpoint,
        parameters["recipe"],
        parameters["profile"],
        **given,
        seed=parameters["seed"],
        name="",
        overrides=None,
    )
    with plan.begin(fresh=False) as run, run.at_work():
        job = _job(plan, run, who)
        scores = job.result() or execute(job)
        return write_report(plan, run, None, None, None, scores)


def _plan(
    checkpoint: str,
    recipe: str,
    profile: str | None,
    gyms: list[str] | None,
    horizon: int | None,
    tasks: int | None,
    attempts: int | None,
    user: dict[str, Any] | str | None,
    model: str | None,
    base_url: str | None,
    seed: int,
    name: str,
    overrides: dict[str, Any] | None,
) -> tuple[Plan, Actor]:
    given = {"gyms": gyms, "horizon": horizon, "tasks": tasks, "attempts": attempts, "user": user}
    chosen = {f"evaluate.{key}": value for key, value in given.items() if value is not None}
    who = actor(checkpoint, model, base_url)
    return make_plan(
        recipe, profile, "local", seed, name or f"evaluate-{who.label}", {**(overrides or {}), **chosen}
    ), who


def _job(plan: Plan, run: Run, who: Actor) -> Job:
    return plan.job(run, "evaluate", {}).model_copy(update={"actors": [who]})


def actor(checkpoint: str, model: str | None, base_url: str | None) -> Actor:
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
        run = newest_trained() if checkpoint == "latest" else find(checkpoint)
        if run.checkpoint is None:
            raise CheckpointError(f"Run {run.id} has no checkpoint yet; wait for it, or name a checkpoint's folder.")
        folder, label = run.checkpoint, run.id
    weights = sorted(folder.glob("*.safetensors"))
    if not (folder / "config.json").is_file() or not weights:
        raise CheckpointError(f"{checkpoint} is no checkpoint: it holds no config.json with *.safetensors.")
    return Actor(
        label=label, kind="checkpoint", path=str(folder.resolve()), id=label, sha256=file_hash(weights[0]), step=0
    )


if __name__ == "__main__":
    evaluate()
