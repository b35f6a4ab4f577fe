"""The flow that evaluates a checkpoint, a served model or the demonstrator on gyms and splits."""

from __future__ import annotations

from flows.server.settings import settle

settle()

from typing import Any  # noqa: E402

from prefect import get_run_logger  # noqa: E402
from prefect.runtime import flow_run  # noqa: E402

from flows.server.keyless import keyless_flow  # noqa: E402
from flows.stages.artifacts import publish  # noqa: E402
from flows.stages.stage import run_stage  # noqa: E402
from userrl.evaluation.planned import plan_evaluation, refuse_temperature  # noqa: E402
from userrl.run.request import EvaluateRequest, takes  # noqa: E402


@keyless_flow(name="evaluate", flow_run_name="{checkpoint}-{seed}")
@takes(EvaluateRequest)
def evaluate(request: EvaluateRequest) -> dict[str, Any]:
    """Evaluate on held-out tasks or a suite, and report the scores."""
    refuse_temperature(request, [request.checkpoint])
    planned = plan_evaluation(request)
    with planned.plan.begin(flow_run.id, get_run_logger().info) as run, run.at_work():
        return publish(run, planned.report(run, run_stage(run, planned.job(run))))


if __name__ == "__main__":
    evaluate()
