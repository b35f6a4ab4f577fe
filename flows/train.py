"""A recipe from demonstrations to the held-out evaluation: distil, cold start, for each stage train, evaluate, report."""

from __future__ import annotations

from flows.machine.home import settle

settle()

from collections.abc import Callable  # noqa: E402  everything below sees the settled environment
from functools import partial  # noqa: E402
from typing import Any, Literal  # noqa: E402

from prefect import flow, get_run_logger  # noqa: E402

from flows.run.artifacts import notify, show_page  # noqa: E402
from flows.run.budget import check_budget  # noqa: E402
from flows.run.plan import Plan, make_plan  # noqa: E402
from flows.run.report import report  # noqa: E402
from flows.run.run import Run  # noqa: E402
from flows.run.stage import run_stage  # noqa: E402
from flows.serving.run_users import served_users  # noqa: E402


@flow(name="train", flow_run_name="{recipe}-{seed}", on_failure=[notify], on_crashed=[notify])
def train(
    recipe: str = "equalized-r2g",
    profile: str | None = "laptop",
    backend: Literal["auto", "local", "verl"] = "auto",
    seed: int = 0,
    name: str = "",
    overrides: dict[str, Any] | None = None,
    init_from: str | None = None,
    from_stage: str | None = None,
    until: str | None = None,
    keep_checkpoints: int = 2,
    budget: dict[str, float] | None = None,
    fresh: bool = False,
    dry_run: bool = False,
    wandb: Literal["offline", "online", "off"] = "offline",
) -> dict[str, Any]:
    """Train a recipe; running it again with the same parameters continues or reuses what is done.

    recipe: name or YAML file. profile: sizes and machine. overrides: dotted keys into the recipe. init_from: checkpoint
    folder or Hugging Face path to start from in place of the recipe's model. from_stage / until: first and last stage to do
    (distill, sft, rl-1 ..., evaluate); what comes before from_stage must be done already. budget: {hours, money}; training
    stops when it is spent, with a checkpoint to go on from. fresh: a new run even though one with these parameters exists.
    Returns the run's id, its table of held-out scores and where things are.
    """
    plan = make_plan(
        recipe, profile, backend, seed, name, overrides, init_from, from_stage, until, keep_checkpoints, budget, wandb
    )
    if dry_run:
        get_run_logger().info("%s", plan.describe())
        return {"run": plan.run_id, "stages": plan.stages}
    with (
        plan.begin(fresh=fresh) as run,
        run.at_work(),
        served_users(plan.recipe, get_run_logger().info) as users,
    ):
        do = partial(_do, plan, run, users)
        demonstrations = do("distill")
        cold = do("sft", distill=demonstrations, init=plan.start)
        newest = cold
        for stage in plan.rl_stages:
            newest = do(stage, before=newest, distill=demonstrations, reference=cold)
        scores = do("evaluate", distill=demonstrations, sft=cold, rl=newest)
        return report(plan, run, demonstrations, cold, newest, scores)


def _do(
    plan: Plan, run: Run, users: Callable[[str], None], stage: str, **inputs: dict[str, Any] | None
) -> dict[str, Any] | None:
    """The result of a stage, done now or earlier; None for one that this run does not have."""
    if not plan.has(stage):
        return inputs.get("init") or inputs.get("before")
    if plan.skips(stage):
        return plan.earlier(run, stage, inputs)
    job = plan.job(run, stage, inputs)
    if job.result() is None:  # what is done already costs nothing
        check_budget(plan.budget, run.id, run.folder, stage)
        users(job.kind)
    result = run_stage(run, job)
    show_page(plan, run)
    return result


if __name__ == "__main__":
    train()
