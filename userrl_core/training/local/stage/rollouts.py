"""The conversations of a stage: groups to train on, greedy baselines, validation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from userrl_core.judging.intervention import StepVerifier
from userrl_core.judging.judge import TurnJudge
from userrl_core.records import RolloutContext, Task, Trajectory
from userrl_core.rewards import greedy_scores
from userrl_core.rollout import run_episodes
from userrl_core.seeding import derive_seed
from userrl_core.sink import Sink
from userrl_core.training.jobs import RlJob
from userrl_core.training.local.batch import Batch
from userrl_core.training.local.policy import LocalPolicy
from userrl_core.training.local.stage.diagnostics import conversation_metrics
from userrl_core.training.local.stage.outages import Outages
from userrl_core.training.local.state import TrainState


class Rollouts:
    """Plays conversations with the model in training. Judge and verifier take part in training only."""

    def __init__(self, job: RlJob, state: TrainState, sink: Sink) -> None:
        self._job, self._state, self._sink = job, state, sink
        self._judge = None if job.judge is None else TurnJudge(job.judge, job.gym_config)
        self._verifier = None if job.intervention is None else StepVerifier(job.intervention, job.gym_config)
        self._outages = Outages(job)
        self._policy = self._make_policy(job.algorithm.temperature, job.algorithm.top_p, train=True)

    async def groups(self, tasks: list[Task], horizons: Sequence[int], context: RolloutContext) -> Batch:
        """Play every task `group` times, and under remax once more without sampling. horizons: one per task."""
        group_size = self._job.algorithm.group
        self._sink.tasks(tasks)
        trajectories = await self._play(self._policy, tasks, horizons, context, group_size)
        groups = [index // group_size for index in range(len(trajectories))]
        batch = Batch(trajectories, self._policy.take_samples(), groups)
        if self._job.algorithm.name == "remax":
            greedy = self._make_policy(0.0, 1.0, train=False)
            baseline = await self._play(greedy, tasks, horizons, replace(context, phase="baseline"), 1)
            # The score of the greedy conversation is remax's baseline.
            scores = greedy_scores(baseline, self._job.credit)
            batch.baselines = [scores[group] for group in groups]
        return batch

    async def validate(self, context: RolloutContext) -> tuple[float | None, dict[str, float]]:
        """Play the validation tasks. Return the mean score (None when no trajectory was scored) and the metrics."""
        started, job = time.perf_counter(), self._job
        self._sink.tasks(job.validation)
        policy = self._make_policy(job.validation_temperature, job.validation_top_p, train=False)
        trajectories = await self._play(policy, job.validation, job.validation_horizon, context, 1)
        metrics = conversation_metrics(trajectories, "validate")
        metrics["seconds/validate/sum"] = time.perf_counter() - started
        return metrics.get("validate/score/mean"), metrics

    async def _play(
        self, policy: LocalPolicy, tasks: list[Task], horizon: int | Sequence[int], context: RolloutContext, n: int
    ) -> list[Trajectory]:
        job, trains = self._job, context.phase in ("train", "baseline")
        await self._outages.wait()
        trajectories = await run_episodes(
            tasks,
            policy,
            horizon=horizon,
            n=n,
            sink=self._sink,
            user=job.users,
            context=context,
            seed=job.seed,
            gym_config=job.gym_config,
            on_format_error=job.on_format_error,
            prompt_style=job.model.prompt_style,
            turns_left=job.model.turns_left,
            judge=self._judge if trains else None,
            verifier=self._verifier if trains else None,
        )
        self._outages.notice(trajectories)
        return trajectories

    def _make_policy(self, temperature: float, top_p: float, *, train: bool) -> LocalPolicy:
        """Return the model as a policy. Outside training it has its own generator, so validation never shifts training."""
        job, config = self._job, self._job.algorithm
        return LocalPolicy(
            self._state.model,
            self._state.tokenizer,
            temperature=temperature,
            top_p=top_p,
            max_tokens=config.max_tokens,
            max_response_tokens=config.max_response_tokens,
            max_batch=job.max_rollout,
            generator=self._state.generator if train else None,
            seed=derive_seed(job.seed, "validate"),
            keep_samples=train,
            share_openings=config.share_openings,
        )
