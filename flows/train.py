"""The train flow: demonstrations, cold start, the RL stages, evaluation on held-out tasks, report."""

from __future__ import annotations

from flows.server.settings import settle

settle()

import json  # noqa: E402  everything below sees the settled environment
import sys  # noqa: E402
from typing import Any  # noqa: E402

from prefect import get_run_logger  # noqa: E402
from prefect.runtime import flow_run  # noqa: E402

from flows.server.keyless import keyless_flow  # noqa: E402
from flows.server.temporary_server import stop_in_order  # noqa: E402
from flows.stages.artifacts import flow_run_name, label, notify, publish, show_page  # noqa: E402
from flows.stages.stage import run_stage  # noqa: E402
from userrl.run.plan import plan_run  # noqa: E402
from userrl.run.request import TrainRequest, takes  # noqa: E402
from userrl.stages.sequence import run_all  # noqa: E402
from userrl_core.errors import UserRLError  # noqa: E402


@keyless_flow(name="train", flow_run_name=flow_run_name, on_failure=[notify], on_crashed=[notify])
@takes(TrainRequest)
def train(request: TrainRequest) -> dict[str, Any]:
    """Train a recipe. Run again with the same parameters, it continues, or reuses finished stages.

    Every stage (distil, cold start, each RL stage, evaluate) is one Prefect task. Returns the run's id, its table of held-out
    scores and the paths of its files.
    """
    plan = plan_run(request)
    say = get_run_logger().info
    if request.dry_run:
        say("%s", plan.describe())
        return {"run": plan.run_id, "stages": plan.stages}
    for sentence in plan.says:
        say("%s", sentence)
    with plan.begin(flow_run.id, say) as run, run.at_work():
        label(plan, run)
        report = run_all(
            plan,
            run,
            lambda job, share, workers: run_stage(run, job, share, workers),
            say=say,
            done=lambda: show_page(plan, run),
        )
        return publish(run, report)


if __name__ == "__main__":  # to run it by hand: python -m flows.train ['{"seed": 1}']
    stop_in_order()
    try:
        train(**json.loads(sys.argv[1] if sys.argv[1:] else "{}"))
    except UserRLError as error:
        sys.exit(error.line)
