"""A recipe from demonstrations to the held-out evaluation: distil, cold start, for each stage train, evaluate, report."""

from __future__ import annotations

from flows.machine.home import settle

settle()

import json  # noqa: E402  everything below sees the settled environment
import sys  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from concurrent.futures import ThreadPoolExecutor  # noqa: E402
from contextvars import copy_context  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from typing import Any, TypeVar  # noqa: E402

from prefect import flow, get_run_logger  # noqa: E402

from flows.machine.keyless import keyless  # noqa: E402
from flows.machine.temporary_server import stop_in_order  # noqa: E402
from flows.machine.workers import Workers  # noqa: E402
from flows.run.artifacts import flow_run_name, label, notify, publish, show_page  # noqa: E402
from flows.run.budget import check_budget  # noqa: E402
from flows.run.job import Inputs  # noqa: E402
from flows.run.plan import RunPlan, iterations, plan_run  # noqa: E402
from flows.run.report import write_report  # noqa: E402
from flows.run.request import TrainRequest, takes  # noqa: E402
from flows.run.results import DistillResult, EvaluateResult, Result, TrainResult  # noqa: E402
from flows.run.run import Run  # noqa: E402
from flows.run.stage import Share, run_stage, shared_slot  # noqa: E402
from flows.serving.run_users import served_users  # noqa: E402
from userrl_core.errors import UserRLError  # noqa: E402

R = TypeVar("R", bound=Result)


@keyless
@flow(name="train", flow_run_name=flow_run_name, on_failure=[notify], on_crashed=[notify])
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
    with plan.begin() as run, run.at_work(), served_users(plan.recipe, log.info) as serve_users, Workers() as workers:
        label(plan, run)
        stages = _Stages(plan, run, serve_users, workers)
        demonstrations = stages.do("distill", DistillResult)
        cold = plan.start
        if "sft" in plan.stages:
            cold = stages.do("sft", TrainResult, Inputs(distill=demonstrations, init=plan.start))
        inputs = Inputs(before=cold, distill=demonstrations, reference=cold)
        newest = stages.chain(plan.rl_stages(), inputs)
        branched = stages.side_by_side(inputs.model_copy(update={"before": newest}))
        ends = {**branched, **stages.evolve(inputs)}
        forgettable = plan.start if "sft" in plan.stages and plan.families else None
        reached = Inputs(distill=demonstrations, init=forgettable, sft=cold, rl=newest, ends=ends)
        scores = stages.do("evaluate", EvaluateResult, reached)
        written = write_report(plan, run, demonstrations=demonstrations, newest=newest, ends=ends, scores=scores)
        return publish(run, written)


@dataclass(frozen=True, slots=True)
class _Stages:
    plan: RunPlan
    run: Run
    serve_users: Callable[[str], None]
    workers: Workers

    def chain(self, stages: Sequence[str], inputs: Inputs, share: Share | None = None) -> TrainResult | None:
        """The result of the last of these stages, each of which begins where the one before it ended."""
        for stage in stages:
            result = self.do(stage, TrainResult, inputs, share)
            inputs = inputs.model_copy(update={"before": result or inputs.before})
        return inputs.before

    def side_by_side(self, inputs: Inputs) -> dict[str, TrainResult]:
        """The last stage of every branch, all of which begin at ``inputs.before``."""
        branches = {name: self.plan.rl_stages(name) for name in self.plan.recipe.branches}
        wanted = {name: stages for name, stages in branches.items() if not self.plan.is_after(stages[0])}
        if not wanted:
            return {}
        self.warm_up()
        with ThreadPoolExecutor(len(wanted)) as pool, shared_slot(len(wanted), self.run.folder) as share:
            ends = {
                name: pool.submit(copy_context().run, self.chain, stages, inputs, share)
                for name, stages in wanted.items()
            }
            return {name: end for name, future in ends.items() if (end := future.result()) is not None}

    def evolve(self, inputs: Inputs) -> dict[str, TrainResult]:
        """Every iteration of AgentEvol: what the newest model samples, and the first model trained on all that succeeded."""
        ends: dict[str, TrainResult] = {}
        for number in iterations(self.plan.recipe):
            sampled = self.do(f"explore-{number}", DistillResult, inputs)
            trained = self.do(f"sft-{number}", TrainResult, Inputs(distill=sampled, init=self.plan.start))
            if sampled is None or trained is None:
                break
            inputs = Inputs(before=trained, distill=sampled)
            ends[f"evolved-{number}"] = trained
        return ends

    def warm_up(self) -> None:
        """Torch is imported meanwhile, once for all stages."""
        if self.plan.backend == "local":
            self.workers.warm_up()

    def do(self, stage: str, kind: type[R], inputs: Inputs | None = None, share: Share | None = None) -> R | None:
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
                if share is None:
                    self.warm_up()
            result = run_stage(self.run, job, share, self.workers)
            show_page(plan, self.run)
        assert isinstance(result, kind)
        return result


if __name__ == "__main__":  # a sweep's trial, or a run by hand: python -m flows.train ['{"seed": 1}']
    stop_in_order()
    try:
        train(**json.loads(sys.argv[1] if sys.argv[1:] else "{}"))
    except UserRLError as error:
        sys.exit(f"error: {error}")
