"""A checkpoint, a served model or the demonstrator on gyms and splits."""

from __future__ import annotations

from flows.home import settle

settle()

from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from prefect import flow  # noqa: E402

from flows.job import Actor, Job, file_hash  # noqa: E402
from flows.plan import make_plan  # noqa: E402
from flows.report import report  # noqa: E402
from flows.runs import find, read_json  # noqa: E402
from flows.stage import run_stage  # noqa: E402
from userrl_core.errors import CheckpointError  # noqa: E402


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

    checkpoint: a folder, a run's id or ``latest`` (that run's best checkpoint), or ``demonstrator``. model: a served model
    in its place, behind base_url or OpenAI. gyms, horizon, tasks (per gym), attempts, user: None leaves each as the recipe
    and profile say.
    """
    given = {"gyms": gyms, "horizon": horizon, "tasks": tasks, "attempts": attempts, "user": user}
    chosen = {f"evaluate.{key}": value for key, value in given.items() if value is not None}
    who = actor(checkpoint, model, base_url)
    plan = make_plan(recipe, profile, "local", seed, name or f"evaluate-{who.label}", {**(overrides or {}), **chosen})
    with plan.begin(fresh=fresh) as run:
        job = plan.job(run, "evaluate", {}).model_copy(update={"actors": [who]})
        scores = run_stage(run, Job.model_validate(job.model_dump()))
        run.set_status("completed")
        return report(plan, run, None, None, None, scores)


def actor(checkpoint: str, model: str | None, base_url: str | None) -> Actor:
    """Who is meant. Raises CheckpointError for a folder without a model."""
    if model is not None:
        return Actor(label=model, kind="served", path=model, options={"base_url": base_url} if base_url else {})
    if checkpoint == "demonstrator":
        return Actor(label="demonstrator", kind="demonstrator")
    folder = Path(checkpoint)
    label = folder.name
    if not folder.exists() and "/" not in checkpoint:
        run = find(checkpoint)
        summary = read_json(run.folder / "report.json")
        if summary is None or not summary.get("checkpoint"):
            raise CheckpointError(f"Run {run.id} has no checkpoint yet; wait for it, or name a checkpoint's folder.")
        folder, label = Path(summary["checkpoint"]), run.id
    weights = sorted(folder.glob("*.safetensors"))
    if not (folder / "config.json").is_file() or not weights:
        raise CheckpointError(f"{checkpoint} is no checkpoint: it holds no config.json with *.safetensors.")
    return Actor(
        label=label, kind="checkpoint", path=str(folder.resolve()), id=label, sha256=file_hash(weights[0]), step=0
    )


if __name__ == "__main__":
    evaluate()
