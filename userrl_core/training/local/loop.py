"""One stage of reinforcement learning: rollout, credit, update, validation, checkpoint.

A step draws tasks, plays every task `group` times in lock-step, computes advantages and updates the policy. Some
steps also validate at the run's final horizon. A step then logs and may write a checkpoint.

The folder `stage/` has what is beside the steps: the start, the restart after a kill, outages, the clock, metrics.
"""

from __future__ import annotations

import asyncio

from userrl_core.judging.metrics import intervention_metrics
from userrl_core.records import Phase, RolloutContext, Task
from userrl_core.rewards import Credits
from userrl_core.seeding import derive_seed
from userrl_core.sink import Sink
from userrl_core.training.jobs import RlJob, StageResult
from userrl_core.training.local.algorithms.choose import advantages_for
from userrl_core.training.local.algorithms.ppo import update_critic
from userrl_core.training.local.batch import Advantages, Batch
from userrl_core.training.local.optimizer import set_lr
from userrl_core.training.local.stage.clock import StepClock
from userrl_core.training.local.stage.diagnostics import step_metrics
from userrl_core.training.local.stage.restart import Restart
from userrl_core.training.local.stage.rollouts import Rollouts
from userrl_core.training.local.stage.start import load_reference, load_state
from userrl_core.training.local.threads import fix_threads
from userrl_core.training.local.update import items_of, minibatches, update_policy, with_reference
from userrl_core.training.protocols import Curriculum, Progress


def train_rl(job: RlJob, curriculum: Curriculum, sink: Sink, progress: Progress | None = None) -> StageResult:
    """Run the stage to its last step. A restart continues bit for bit from its newest checkpoint.

    curriculum: newly created; its state is loaded from the checkpoint. The function runs its own event loop. Raises
    CheckpointError for an unusable checkpoint, TrainingError for one that this stage cannot continue.
    """
    fix_threads(job.threads)
    return asyncio.run(_Stage(job, curriculum, sink).run(progress))


class _Stage:
    """The parts that the steps of a stage work with."""

    def __init__(self, job: RlJob, curriculum: Curriculum, sink: Sink) -> None:
        self.job, self.config, self.curriculum, self.sink = job, job.algorithm, curriculum, sink
        self.restart = Restart(job, sink)
        self.state = load_state(job, self.restart)
        if self.state.curriculum is not None:
            curriculum.load_state_dict(self.state.curriculum)
        self.reference = load_reference(job, self.state)
        self.rollouts = Rollouts(job, self.state, sink)
        self.clock = StepClock(job)

    async def run(self, progress: Progress | None) -> StageResult:
        """Take all steps that are left. Validate and write checkpoints between them."""
        job, state, restart, clock = self.job, self.state, self.restart, self.clock
        first_stage, finished = self.stage_of(job.first_step), clock.over(state.step)
        restart.rewind(first_stage, state.step, finished=finished)
        metrics: dict[str, float] = {}
        if restart.begins_run and job.validation:
            # The first point of the learning curve: the policy before RL.
            score, validated = await self.rollouts.validate(self.context(0, "validate"))
            self.sink.metrics(validated, stage=first_stage, step=0)
            self.save(score)
        learnt = finished
        while not clock.over(state.step):
            metrics = await self.step(state.step + 1)
            learnt = learnt or metrics["policy/updates/count"] > 0
            ends, score = clock.over(state.step), None
            if job.validation and (state.step % job.validate_every == 0 or ends):
                score, validated = await self.rollouts.validate(self.context(state.step, "validate"))
                metrics |= validated
            self.sink.metrics(metrics, stage=self.stage_of(state.step), step=state.step)
            if score is not None or state.step % job.checkpoint_every == 0 or ends:
                self.save(score)
            if progress is not None:
                progress(state.step, clock.total(state.step), metrics)
        if not learnt and not restart.resumed:
            # Not an error: without a cold start all groups may be equal, and reports show that.
            self.sink.event("nothing_learnt", stage=first_stage, step=state.step)
        return restart.result(first_stage, metrics)

    async def step(self, step: int) -> dict[str, float]:
        """Take one step of multi-turn policy optimisation (UserRL section 3). Return its metrics."""
        job, config, state, curriculum = self.job, self.config, self.state, self.curriculum
        self.clock.start()
        horizon = curriculum.horizon(step, state.history)
        task_count = self.task_count()

        # Draw tasks, play each of them `group` times, and credit every turn.
        batch, credits, resampled = await self.collect(step, task_count)
        self.clock.mark()

        # Compare the trajectories of a task, and update the policy with what distinguishes them.
        advantages = advantages_for(config, batch, credits, job.credit, state.critic)
        self.log_credits(batch, credits, advantages)
        metrics = self.update(step, batch, advantages)
        state.check_finite(metrics, self.stage_of(step), step)
        self.clock.mark()

        # Tell the curriculum what happened, and remember it: later draws and horizons depend on it.
        self.observe(batch)
        metrics |= step_metrics(batch, credits, advantages) | curriculum.metrics() | self.clock.used(step)
        metrics |= {"groups/resampled/count": float(resampled), "curriculum/horizon/value": float(horizon)}
        if job.intervention is not None:
            metrics |= intervention_metrics(batch.trajectories)
        curriculum.record(step, metrics, outcomes=batch.outcomes)
        state.end_step(step, metrics, curriculum.state_dict(), task_count + resampled if config.batch_tokens else None)
        return metrics | self.clock.parts(int(metrics["tokens/agent/sum"]))

    def task_count(self) -> int:
        """Return the number of tasks that the next step draws.

        With `batch_tokens` this is as many as use up the budget of all steps so far.
        """
        budget = self.config.batch_tokens
        token_use = [(e["tokens"] or 0.0, e["tasks"] or 1.0) for e in self.state.history if "tokens" in e]
        if budget is None or not token_use:
            return self.config.batch
        # The budget of all steps up to this one, less the tokens used so far.
        owed = budget * (len(token_use) + 1) - sum(tokens for tokens, _ in token_use)
        # At the last step's tokens per task. What it drew too much or too little is made up for in the next step.
        tokens, tasks = token_use[-1]
        # Bounded, because after a step of very short conversations the estimate may be far too high.
        return min(max(round(owed * tasks / tokens), 1), 4 * self.config.batch)

    async def collect(self, step: int, task_count: int) -> tuple[Batch, Credits, int]:
        """Return the step's trajectories, their credits, and the number of resampled tasks.

        With filter resample, groups without a signal are replaced by further draws.
        """
        batch = await self.play(step, 0, self.curriculum.draw(step, task_count))
        credits = batch.credits(self.job.credit)
        resampled = 0
        # Up to a limit: a policy that solves everything, or nothing, would draw for ever.
        for _ in range(self.job.credit.resample_limit if self.job.credit.filter == "resample" else 0):
            missing = task_count - len({g for g, s in zip(batch.groups, credits.signal, strict=True) if s})
            drawn = self.curriculum.draw(step, missing) if missing > 0 else []
            played_keys = {trajectory.task.key for trajectory in batch.trajectories}
            # A task that was played in this step already would become one group with its first play.
            new_tasks = [task for task in drawn if task.key not in played_keys]
            if not new_tasks:
                break
            batch = batch + await self.play(step, len(batch) // self.config.group, new_tasks)
            credits = batch.credits(self.job.credit)
            resampled += len(new_tasks)
        return batch, credits, resampled

    async def play(self, step: int, first_group: int, tasks: list[Task]) -> Batch:
        """Play one group per task."""
        # Groups of a step are numbered, because some schedules give each group its own horizon.
        history = self.state.history
        horizons = [self.curriculum.horizon(step, history, first_group + index) for index in range(len(tasks))]
        return await self.rollouts.groups(tasks, horizons, self.context(step, "train"))

    def update(self, step: int, batch: Batch, advantages: Advantages) -> dict[str, float]:
        """Take the step's optimiser steps. Return their metrics."""
        config, state = self.config, self.state
        lr = config.lr * (min(1.0, step / config.warmup_steps) if config.warmup_steps else 1.0)
        set_lr(state.optimizer, lr)
        items = items_of(batch, advantages)
        if self.reference is not None and items:
            items = with_reference(items, self.reference, config)
        order = minibatches(items, config, derive_seed(self.job.seed, "update", step))
        metrics = {"policy/lr/value": lr}
        if config.name == "ppo":
            metrics |= update_critic(state.critic, state.critic_optimizer, batch, advantages, config, order)
            # A new critic values everything at 0. The policy waits until the critic has learnt something.
            if step <= config.critic_warmup:
                order = []
        return metrics | update_policy(state.model, state.optimizer, items, config, order)

    def log_credits(self, batch: Batch, credits: Credits, advantages: Advantages) -> None:
        """Log the credit and the advantage of every turn of admitted trajectories."""
        for index, trajectory in enumerate(batch.trajectories):
            if trajectory.traj_id is not None and credits.admitted[index]:
                self.sink.credits(trajectory.traj_id, credits.shaped[index].tolist(), advantages.turns[index].tolist())

    def observe(self, batch: Batch) -> None:
        """Tell the curriculum each group's share of successes, and the mean tokens of its trajectories."""
        groups: dict[str, list[tuple[bool, int]]] = {}
        for trajectory, sample in zip(batch.trajectories, batch.samples, strict=True):
            if trajectory.admitted:
                outcome = trajectory.stop_reason == "success", len(sample.ids)
                groups.setdefault(trajectory.task.key, []).append(outcome)
        for key, group in groups.items():
            successes, tokens = zip(*group, strict=True)
            self.curriculum.observe(key, sum(successes) / len(group), sum(tokens) / len(group), len(group))

    def save(self, score: float | None) -> None:
        """Write a checkpoint."""
        # Before the first step, which would have stored it.
        if self.state.curriculum is None:
            self.state.curriculum = self.curriculum.state_dict()
        self.restart.save(self.state, self.stage_of(self.state.step), score)

    def context(self, step: int, phase: Phase) -> RolloutContext:
        """Return the part of the run that conversations of a step belong to."""
        stage, checkpoint = self.stage_of(step), self.restart.parent
        return RolloutContext(stage=stage, step=step, phase=phase, policy="local", checkpoint=checkpoint)

    def stage_of(self, step: int) -> str:
        """Return the name of a step's stage."""
        return self.job.stage or self.curriculum.stage_of(max(step, 1))
