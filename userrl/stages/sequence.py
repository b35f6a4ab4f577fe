"""All stages of a run in order: demonstrations, cold start, RL stages, evaluation, report."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from userrl.reports.run_report import RunReport
from userrl.reports.write_report import write_report
from userrl.run.budget import check_budget
from userrl.run.job import Inputs, StageJob
from userrl.run.plan import RunPlan, iterations
from userrl.run.results import DistillResult, EvaluateResult, Result, TrainResult
from userrl.run.run import Run
from userrl.stages.execution import Share, shared_slot
from userrl.stages.workers import Workers
from userrl.worker.run_users import served_users

R = TypeVar("R", bound=Result)
Perform: TypeAlias = Callable[[StageJob, Share | None, Workers], Result]


def run_all(
    plan: RunPlan,
    run: Run,
    perform: Perform,
    *,
    say: Callable[..., None] = lambda *args: None,
    done: Callable[[], None] = lambda: None,
    workers: Workers | None = None,
) -> RunReport:
    """Run every selected stage of a locked run, and return its report.

    perform: does one job and returns its result. say: called with log lines as for `logging`. done: called after every stage.
    workers: those of several runs; None: of this run alone.
    """
    started = Workers() if workers is None else contextlib.nullcontext(workers)
    with served_users(plan.recipe, say) as serve_users, started as workers:
        return StageSequence(plan, run, serve_users, workers, perform, say, done).all()


@dataclass(frozen=True, slots=True)
class StageSequence:
    """The stages of one run, in order. perform: does one job and returns its result, or a valid earlier one.

    done: called after every stage.
    """

    plan: RunPlan
    run: Run
    serve_users: Callable[[str], None]
    workers: Workers
    perform: Perform
    say: Callable[..., None]
    done: Callable[[], None]

    def all(self) -> RunReport:
        """Run every selected stage and write the report."""
        plan, run = self.plan, self.run
        demonstrations = self.do("distill", DistillResult)
        cold = plan.start
        if "sft" in plan.stages:
            cold = self.do("sft", TrainResult, Inputs(distill=demonstrations, init=plan.start))
        inputs = Inputs(before=cold, distill=demonstrations, reference=cold)
        newest = self.chain(plan.rl_stages(), inputs)
        branched = self.side_by_side(inputs.model_copy(update={"before": newest}))
        ends = {**branched, **self.evolve(inputs)}
        forgettable = plan.start if "sft" in plan.stages and plan.families else None
        reached = Inputs(distill=demonstrations, init=forgettable, sft=cold, rl=newest, ends=ends)
        scores = self.do("evaluate", EvaluateResult, reached)
        return write_report(plan, run, demonstrations=demonstrations, newest=newest, ends=ends, scores=scores)

    def chain(self, stages: Sequence[str], inputs: Inputs, share: Share | None = None) -> TrainResult | None:
        """Return the result of the last of these stages. Each begins where the one before it ended."""
        for stage in stages:
            result = self.do(stage, TrainResult, inputs, share)
            inputs = inputs.model_copy(update={"before": result or inputs.before})
        return inputs.before

    def side_by_side(self, inputs: Inputs) -> dict[str, TrainResult]:
        """Return the last stage of every branch. All branches begin at ``inputs.before``."""
        branches = {name: self.plan.rl_stages(name) for name in self.plan.recipe.branches}
        pending = {name: stages for name, stages in branches.items() if not self.plan.is_after(stages[0])}
        if not pending:
            return {}
        self.warm_up()
        with (
            ThreadPoolExecutor(len(pending)) as pool,
            shared_slot(len(pending), self.run.folder, self.say) as share,
        ):
            ends = {
                name: pool.submit(copy_context().run, self.chain, stages, inputs, share)
                for name, stages in pending.items()
            }
            return {name: end for name, future in ends.items() if (end := future.result()) is not None}

    def evolve(self, inputs: Inputs) -> dict[str, TrainResult]:
        """Run every iteration of AgentEvol: sample with the newest model, then train the first model on all successes."""
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
        """Start importing torch, once for all stages."""
        if self.plan.backend == "local":
            self.workers.warm_up()

    def do(self, stage: str, kind: type[R], inputs: Inputs | None = None, share: Share | None = None) -> R | None:
        """Return the result of a stage, done now or earlier. None if the run does not have the stage, or not yet."""
        plan = self.plan
        if stage not in plan.stages or plan.is_after(stage):
            return None
        if changed := plan.why_not(self.run):
            self.say("%s It changed while the run was at work: the next start begins a new generation.", changed)
        job = plan.job(self.run, stage, inputs)
        if not plan.selects(stage):
            result = plan.earlier(job)
        else:
            if job.finished() is None:  # a finished stage costs nothing
                check_budget(job)
                self.serve_users(job.kind)
                if share is None:
                    self.warm_up()
            result = self.perform(job, share, self.workers)
            self.done()
        assert isinstance(result, kind)
        return result
