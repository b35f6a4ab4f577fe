"""The flow that collects demonstrations alone: any policy with any user, the best of every gym."""

from __future__ import annotations

from flows.server.settings import settle

settle()

from typing import Any  # noqa: E402

from prefect import get_run_logger  # noqa: E402
from prefect.runtime import flow_run  # noqa: E402

from flows.server.keyless import keyless_flow  # noqa: E402
from flows.stages.stage import run_stage  # noqa: E402
from userrl.run.budget import check_budget  # noqa: E402
from userrl.run.plan import plan_run  # noqa: E402
from userrl.run.request import DistillRequest, TrainRequest, takes  # noqa: E402


@keyless_flow(name="distill", flow_run_name="{recipe}-{seed}")
@takes(DistillRequest)
def distill(request: DistillRequest) -> dict[str, Any]:
    """Collect demonstrations. Returns the files of the chats, and the dropped conversations with reasons."""
    plan = plan_run(
        TrainRequest(
            recipe=request.recipe,
            profile=request.profile,
            backend="local",
            seed=request.seed,
            name=request.name or "distill",
            overrides=request.with_overrides("demonstrations", "policy", "user", "top_k"),
            fresh=request.fresh,
            budget=request.budget,
        ),
        only="distill",
    )
    with plan.begin(flow_run.id, get_run_logger().info) as run, run.at_work():
        job = plan.job(run, "distill")
        if job.finished() is None:
            check_budget(job)
        result = run_stage(run, job)
    return {"run": run.id, **result.model_dump(mode="json")}


if __name__ == "__main__":
    distill()
