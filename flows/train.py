"""A recipe from demonstrations to the held-out evaluation: distil, cold start, for each stage train, evaluate, report."""

from __future__ import annotations

from flows.machine.home import settle

settle()

import json  # noqa: E402  everything below sees the settled environment
import sys  # noqa: E402
from collections.abc import Callable  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from typing import Any, TypeVar  # noqa: E402

from prefect import flow, get_run_logger  # noqa: E402

from flows.run.artifacts import notify, publish, show_page  # noqa: E402
from flows.run.budget import check_budget  # noqa: E402
from flows.run.job import Inputs  # noqa: E402
from flows.run.plan import RunPlan, plan_run  # noqa: E402
from flows.run.report import write_report  # noqa: E402
from flows.run.request import TrainRequest, takes  # noqa: E402
from flows.run.results import DistillResult, EvaluateResult, Result, TrainResult  # noqa: E402
from flows.run.run import Run  # noqa: E402
from flows.run.stage import run_stage  # noqa: E402
from flows.serving.run_users import served_users  # noqa: E402
from userrl_core.errors import UserRLError  # noqa: E402

R = TypeVar("R", bound=Result)


@flow(name="train", flow_run_name="{recipe}-{seed}", on_failure=[notify], on_crashed=[notify])
@takes(TrainRequest)
def train(request: TrainRequest) -> dict[str, Any]:
    """Train a recipe; running it again with the same parameters continues or reuses what is done.

    Returns the run's id, its table of held-out scores and where things are.
    """
    plan = plan_run(request)
    log = get_run_logger()
    if request.dry_run:
        log.info("%s", plan.describe())
        return {"run": plan.run_id, "stages": plan.stages}
    for sentence in plan.says:
        log.info("%s", sentence)
    with plan.begin() as run, run.at_work(), served_users(plan.recipe, log.info) as serve_users:
        stages = _Stages(plan, run, serve_users)
        demonstrations = stages.do("distill", DistillResult)
        cold = plan.start
        if "sft" in plan.stages:
            cold = stages.do("sft", TrainResult, Inputs(distill=demonstrations, init=plan.start))
        newest = cold
        for stage in plan.rl_stages:
            inputs = Inputs(before=newest, distill=demonstrations, reference=cold)
            newest = stages.do(stage, TrainResult, inputs) or newest
        scores = stages.do("evaluate", EvaluateResult, Inputs(distill=demonstrations, sft=cold, rl=newest))
        written = write_report(plan, run, demonstrations=demonstrations, newest=newest, scores=scores)
        return publish(run, written)


@dataclass(frozen=True, slots=True)
class _Stages:
    plan: RunPlan
    run: Run
    serve_users: Callable[[str], None]

    def do(self, stage: str, kind: type[R], inputs: Inputs | None = None) -> R | None:
        """The result of a stage, done now or earlier; None for one that this run does not have, or not yet."""
        plan = self.plan
        if stage not in plan.stages or plan.is_after(stage):
            return None
        job = plan.job(self.run, stage, inputs)
        if not plan.selects(stage):
            result = plan.earlier(job)
        else:
            if job.result() is None:  # what is done already costs nothing
                check_budget(job)
                self.serve_users(job.kind)
            result = run_stage(self.run, job)
            show_page(plan, self.run)
        assert isinstance(result, kind)
        return result


if __name__ == "__main__":  # a sweep's trial, or a run by hand: python -m flows.train ['{"seed": 1}']
    try:
        train(**json.loads(sys.argv[1] if sys.argv[1:] else "{}"))
    except UserRLError as error:
        sys.exit(f"error: {error}")
