"""One stage of reinforcement learning: rollout, credit, update, validation, checkpoint.

A step draws tasks, plays every task `group` times in lock-step, computes advantages and updates the policy. Some
steps also validate at the run's final horizon. A step then logs and may write a checkpoint. After a restart,
everything logged after the newest checkpoint is voided (``rewind``) and played again, with the same tokens.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from userrl_core.errors import CheckpointError, TrainingError
from userrl_core.judging.intervention import StepVerifier
from userrl_core.judging.judge import TurnJudge, judge_server
from userrl_core.judging.metrics import intervention_metrics, judge_metrics
from userrl_core.records import CheckpointRecord, RolloutContext, Task, Trajectory
from userrl_core.rewards import Credits, greedy_scores, measure_bias
from userrl_core.rewards.judge import UNJUDGED
from userrl_core.rollout import run_episodes
from userrl_core.seeding import derive_seed
from userrl_core.served.health import served_users, until_it_answers, user_was_down
from userrl_core.sink import Sink
from userrl_core.training.jobs import Best, RlJob, StageResult, begun_marker
from userrl_core.training.local.algorithms.choose import advantages_for
from userrl_core.training.local.algorithms.ppo import Critic, update_critic
from userrl_core.training.local.batch import Advantages, Batch
from userrl_core.training.local.checkpoint import (
    CheckpointState,
    newest,
    prune,
    read_state,
    step_folder,
    write_checkpoint,
)
from userrl_core.training.local.clock import CPU, GPU, StepClock
from userrl_core.training.local.diagnostics import conversation_metrics
from userrl_core.training.local.logprobs import reference_logprobs
from userrl_core.training.local.lora import Base, adapt, without_adapters
from userrl_core.training.local.model import card_gb
from userrl_core.training.local.optimizer import adamw, set_lr
from userrl_core.training.local.policy import LocalPolicy
from userrl_core.training.local.state import TrainState, load_start, load_to_train
from userrl_core.training.local.threads import fix_threads
from userrl_core.training.local.update import items_of, minibatches, update_policy
from userrl_core.training.one_gpu import check_rl, known_shape
from userrl_core.training.protocols import Curriculum, GroupCurriculum, Progress


def train_rl(job: RlJob, curriculum: Curriculum, sink: Sink, progress: Progress | None = None) -> StageResult:
    """Run the stage to its last step. A restart continues bit for bit from its newest checkpoint.

    curriculum: newly created; its state is loaded from the checkpoint. The function runs its own event loop. Raises
    CheckpointError for an unusable checkpoint, TrainingError for one that this stage cannot continue.
    """
    fix_threads(job.threads)
    return asyncio.run(_Stage(job, curriculum, sink, progress).run())


class _Stage:
    def __init__(self, job: RlJob, curriculum: Curriculum, sink: Sink, progress: Progress | None) -> None:
        self.job, self.curriculum, self.sink, self.progress = job, curriculum, sink, progress
        self.config = job.algorithm
        self.root = job.out_dir / "checkpoints"
        self.root.mkdir(parents=True, exist_ok=True)
        checkpoint = newest(self.root, report=self._log_skipped)
        self.resumed = checkpoint is not None
        start = checkpoint[0] if checkpoint else job.init
        card, shape = card_gb(job.device), known_shape(start)
        if card is not None and shape is not None:
            check_rl(shape, job.model, self.config, card)
        # A run's first stage takes the model of its start, but no trainer state.
        continues = self.resumed or job.first_step > 1
        loaded = load_start(start, job.model, job.device, self.config.lora, continued=continues)
        self.state = self._new_state(*loaded)
        self.best = job.best
        self.saved: CheckpointState | None = checkpoint[1] if checkpoint else None
        self.parent = self.saved.id if self.saved else _id_of(job.init)
        self._check_start(continues and self.state.restore(start))
        if self.state.curriculum is not None:
            curriculum.load_state_dict(self.state.curriculum)
        self.stage = self._stage_of(job.first_step)
        if checkpoint:
            self.best = _best_of(self.root, job.best)
        # Without a weight on the distance nobody needs it, and its forward pass is a tenth of a step.
        reference_path = job.reference if self.config.kl_coef > 0 else None
        self.reference = self._reference_model(reference_path) if reference_path else None
        self.clock = StepClock(job.out_dir)
        self.user_was_down = self.judge_was_down = False
        self.judge = None if job.judge is None else TurnJudge(job.judge, job.gym_config)
        self.verifier = None if job.intervention is None else StepVerifier(job.intervention, job.gym_config)
        self.policy = self._policy(self.config.temperature, self.config.top_p, train=True)
        self.greedy = self._policy(0.0, 1.0, train=False) if self.config.name == "remax" else None

    async def run(self) -> StageResult:
        job = self.job
        self._rewind()
        metrics: dict[str, float] = {}
        if not self.resumed and job.first_step == 1 and job.validation:
            score, values = await self._validate(0)
            self.sink.metrics(values, stage=self.stage, step=0)
            self._save(score)
        updated = self._over()
        while not self._over():
            step = self.state.step + 1
            metrics = await self._step(step)
            updated = updated or metrics["policy/updates/count"] > 0
            score = None
            ends = self._over()
            if job.validation and (step % job.validate_every == 0 or ends):
                score, values = await self._validate(step)
                metrics |= values
            self.sink.metrics(metrics, stage=self._stage_of(step), step=step)
            if score is not None or step % job.checkpoint_every == 0 or ends:
                self._save(score)
            if self.progress is not None:
                self.progress(step, self._total(), metrics)
        if not updated and not self.resumed:
            # Not an error: without a cold start all groups may be equal, and reports show that.
            self.sink.event("nothing_learnt", stage=self.stage, step=self.state.step)
        if self.saved is None:
            raise TrainingError(
                "training.no_checkpoint", f"Stage {self.stage} ended without a checkpoint. Start it again."
            )
        return StageResult(
            checkpoint=step_folder(self.root, self.saved.step),
            id=self.saved.id,
            sha256=self.saved.sha256,
            step=self.saved.step,
            best=self.best,
            metrics=metrics,
        )

    def _over(self) -> bool:
        """Return True after the stage's last step: the step number or the time limit was reached."""
        job = self.job
        if self.state.step >= job.last_step or job.seconds is None:
            return self.state.step >= job.last_step
        kind, limit = job.seconds
        return self.clock.used(kind, job.first_step, self.state.step) >= limit

    def _total(self) -> int:
        """Return the run's last step. For a stage limited in seconds, estimate it from the pace so far."""
        job, steps_done = self.job, self.state.step - self.job.first_step + 1
        if job.seconds is None:
            return job.total_steps or job.last_step
        kind, limit = job.seconds
        used = self.clock.used(kind, job.first_step, self.state.step)
        return job.first_step - 1 + max(steps_done, round(steps_done * limit / max(used, 1e-9)))

    async def _step(self, step: int) -> dict[str, float]:
        started, cpu_started = time.perf_counter(), time.process_time()
        horizon = self.curriculum.horizon(step, self.state.history)
        tasks = self._tasks_of(step)
        batch, credits, resampled = await self._collect(step, tasks)
        rollout_ended = time.perf_counter()
        advantages = advantages_for(self.config, batch, credits, self.job.credit, self.state.critic)
        self._log_credits(batch, credits, advantages)
        metrics = self._update(step, batch, advantages)
        self.state.check_finite(metrics, self._stage_of(step), step)
        update_ended = time.perf_counter()
        self._observe(step, batch)
        metrics |= conversation_metrics(batch.trajectories, "rollout")
        metrics |= judge_metrics(batch.trajectories)
        if self.verifier is not None:
            metrics |= intervention_metrics(batch.trajectories)
        metrics |= credits.diagnostics.metrics() | advantages.metrics | self.curriculum.metrics()
        metrics |= measure_bias(advantages.turns, batch.groups, credits, batch.turn_tokens).metrics()
        metrics |= {
            "groups/resampled/count": float(resampled),
            "groups/trained/share": float(advantages.trains.mean()) if len(batch) else 0.0,
            "curriculum/horizon/value": float(horizon),
        }
        tokens, agent_tokens = batch.tokens
        metrics |= {"tokens/all/sum": float(tokens), "tokens/agent/sum": float(agent_tokens)}
        if agent_tokens:
            # Of all that was sampled: the update measures only what it trains on, which is nothing where no group differs.
            metrics["rollout/entropy/mean"] = sum(sum(s.entropies) for s in batch.samples) / agent_tokens
        seconds_taken = time.process_time() - cpu_started, self._gpu_seconds(started)
        metrics |= (
            self.clock.taken(step, *seconds_taken) if self.job.timed else {CPU: seconds_taken[0], GPU: seconds_taken[1]}
        )
        self.curriculum.record(step, metrics)
        outcome = {name: metrics.get(f"rollout/{name}/mean") for name in ("success", "return_sum")}
        token_use = {"tokens": tokens, "tasks": tasks + resampled} if self.config.batch_tokens else {}
        self.state.history.append({"step": step, **outcome, **token_use})
        self.state.step = step
        self.state.curriculum = self.curriculum.state_dict()
        return metrics | {
            "seconds/rollout/sum": rollout_ended - started,
            "seconds/update/sum": update_ended - rollout_ended,
            "rollout/tokens/per_second": agent_tokens / max(rollout_ended - started, 1e-9),
        }

    def _gpu_seconds(self, started: float) -> float:
        """Return the GPU seconds since `started`; 0 on a CPU."""
        if self.job.device == "cpu":
            return 0.0
        torch.cuda.synchronize()
        return time.perf_counter() - started

    def _tasks_of(self, step: int) -> int:
        """Return the number of tasks this step draws.

        With `batch_tokens`, draw enough tasks to use the token budget up to this step, at the last step's tokens per task.
        """
        budget = self.config.batch_tokens
        token_use = [(e["tokens"] or 0.0, e["tasks"] or 1.0) for e in self.state.history if "tokens" in e]
        if budget is None or not token_use:
            return self.config.batch
        owed = budget * (len(token_use) + 1) - sum(tokens for tokens, _ in token_use)
        tokens, tasks = token_use[-1]
        return min(max(round(owed * tasks / tokens), 1), 4 * self.config.batch)

    async def _collect(self, step: int, tasks: int) -> tuple[Batch, Credits, int]:
        """Return the step's trajectories, their credits, and the number of resampled tasks.

        With filter resample, groups without a signal are replaced by further draws, up to the limit.
        """
        batch = await self._play(step, 0, self.curriculum.draw(step, tasks))
        credits = batch.credits(self.job.credit)
        resampled = 0
        for _ in range(self.job.credit.resample_limit if self.job.credit.filter == "resample" else 0):
            missing = tasks - len({g for g, s in zip(batch.groups, credits.signal, strict=True) if s})
            played_keys = {trajectory.task.key for trajectory in batch.trajectories}
            new_tasks = (
                [t for t in self.curriculum.draw(step, missing) if t.key not in played_keys] if missing > 0 else []
            )
            if not new_tasks:
                break
            batch = batch + await self._play(step, len(batch) // self.config.group, new_tasks)
            credits = batch.credits(self.job.credit)
            resampled += len(new_tasks)
        return batch, credits, resampled

    async def _play(self, step: int, first: int, tasks: list[Task]) -> Batch:
        """Play the groups of a step from number `first` on, one per task."""
        self.sink.tasks(tasks)
        horizons = self._horizons(step, range(first, first + len(tasks)))
        trajectories = await self._episodes(
            self.policy, tasks, horizons, self._context(step, "train"), self.config.group
        )
        groups = [index // self.config.group for index in range(len(trajectories))]
        batch = Batch(trajectories, self.policy.take_samples(), groups)
        if self.greedy is not None:
            greedy_trajectories = await self._episodes(self.greedy, tasks, horizons, self._context(step, "baseline"), 1)
            scores = greedy_scores(greedy_trajectories, self.job.credit)
            batch.baselines = [scores[group] for group in groups]
        return batch

    def _horizons(self, step: int, groups: range) -> list[int]:
        if isinstance(self.curriculum, GroupCurriculum):
            return self.curriculum.group_horizons(step, self.state.history, groups)
        return [self.curriculum.horizon(step, self.state.history)] * len(groups)

    async def _validate(self, step: int) -> tuple[float | None, dict[str, float]]:
        """Play the validation tasks. Return the mean score (None when no trajectory was scored) and the metrics."""
        started = time.perf_counter()
        self.sink.tasks(self.job.validation)
        context = self._context(step, "validate")
        policy = self._policy(self.job.validation_temperature, self.job.validation_top_p, train=False)
        trajectories = await self._episodes(policy, self.job.validation, self.job.validation_horizon, context, 1)
        metrics = conversation_metrics(trajectories, "validate")
        metrics["seconds/validate/sum"] = time.perf_counter() - started
        return metrics.get("validate/score/mean"), metrics

    async def _episodes(
        self, policy: LocalPolicy, tasks: list[Task], horizon: int | list[int], context: RolloutContext, n: int
    ) -> list[Trajectory]:
        await self._wait_for_users()
        trains = context.phase in ("train", "baseline")
        trajectories = await run_episodes(
            tasks,
            policy,
            horizon=horizon,
            n=n,
            sink=self.sink,
            user=self.job.users,
            context=context,
            seed=self.job.seed,
            gym_config=self.job.gym_config,
            on_format_error=self.job.on_format_error,
            prompt_style=self.job.model.prompt_style,
            judge=self.judge if trains else None,
            verifier=self.verifier if trains else None,
        )
        self.user_was_down = any(user_was_down(trajectory) for trajectory in trajectories)
        self.judge_was_down = any(t.judgement is not None and t.judgement.category == UNJUDGED for t in trajectories)
        return trajectories

    async def _wait_for_users(self) -> None:
        """Wait for a served user or judge that did not answer in the last episodes: further trajectories would not be scored."""
        waited_for = [("user model", server) for server in served_users(self.job.users) if self.user_was_down]
        judge = None if self.job.judge is None else judge_server(self.job.judge)
        if self.judge_was_down and judge is not None:
            waited_for.append(("judge of turns", judge))
        deadline = time.monotonic() + self.job.patience
        for what, server in waited_for:
            if not await until_it_answers(server, deadline):
                raise TrainingError(
                    "model.server_down",
                    f"The {what} {server.model} has not answered for {self.job.patience:g} s. Restart its "
                    "server and start the same run again. Training continues from its last checkpoint.",
                )

    def _update(self, step: int, batch: Batch, advantages: Advantages) -> dict[str, float]:
        config, state = self.config, self.state
        scale = min(1.0, step / config.warmup_steps) if config.warmup_steps else 1.0
        set_lr(state.optimizer, config.lr * scale)
        trained = batch.select(advantages.trains)
        reference = self._reference(trained)
        by_trajectory: list[Any] = [None] * len(batch)
        for row, logprobs in zip(np.flatnonzero(advantages.trains).tolist(), reference or [], strict=False):
            by_trajectory[row] = logprobs
        items = items_of(batch, advantages, by_trajectory if reference else None)
        order = minibatches(items, config, derive_seed(self.job.seed, "update", step))
        metrics: dict[str, float] = {"policy/lr/value": config.lr * scale}
        if isinstance(state.critic, Critic) and state.critic_optimizer is not None and advantages.returns is not None:
            returns = [row for row, train in zip(advantages.returns, advantages.trains, strict=True) if train]
            metrics |= update_critic(state.critic, state.critic_optimizer, trained.samples, returns, config, order)
        if config.name == "ppo" and step <= config.critic_warmup:
            order = []
        return metrics | update_policy(state.model, state.optimizer, items, config, order)

    def _reference(self, trained: Batch) -> list[torch.Tensor] | None:
        if self.reference is None or not len(trained):
            return None
        ids, turns = [s.ids for s in trained.samples], [s.turns for s in trained.samples]
        with without_adapters(self.reference):
            return reference_logprobs(self.reference, ids, turns, self.config.temperature, self.config.micro_batch)

    def _reference_model(self, path: Path) -> Any:
        """Return the model for the KL reference. Under adapters the base model already serves as it."""
        base = self.state.base
        if base is not None and Path(base.path).resolve() == path.resolve():
            return self.state.model
        return load_to_train(path, self.job.model, self.job.device)[0]

    def _log_credits(self, batch: Batch, credits: Credits, advantages: Advantages) -> None:
        for index, trajectory in enumerate(batch.trajectories):
            if trajectory.traj_id is not None and credits.admitted[index]:
                self.sink.credits(trajectory.traj_id, credits.shaped[index].tolist(), advantages.turns[index].tolist())

    def _observe(self, step: int, batch: Batch) -> None:
        outcomes: dict[str, list[tuple[float, int]]] = {}
        for trajectory, sample in zip(batch.trajectories, batch.samples, strict=True):
            if trajectory.admitted:
                outcome = float(trajectory.stop_reason == "success"), len(sample.ids)
                outcomes.setdefault(trajectory.task.key, []).append(outcome)
        if isinstance(self.curriculum, GroupCurriculum):
            ended = [(t.horizon, len(t.turns) * (t.stop_reason == "success")) for t in batch.trajectories if t.admitted]
            self.curriculum.record_outcomes(step, len(batch) // self.config.group, ended)
        for key, group in outcomes.items():
            successes, tokens = zip(*group, strict=True)
            self.curriculum.observe(key, sum(successes) / len(group), sum(tokens) / len(group))

    def _save(self, score: float | None) -> None:
        """Write a checkpoint of the state, after flushing the log to disk."""
        state, step = self.state, self.state.step
        self.sink.flush()
        if state.curriculum is None:
            state.curriculum = self.curriculum.state_dict()
        folder, stage = step_folder(self.root, step), self._stage_of(step)
        saved = write_checkpoint(folder, state.save, stage=stage, step=step, parent=self.parent, score=score)
        if score is not None and (self.best is None or score > self.best.score):
            self.best = Best(path=folder, id=saved.id, step=step, score=score)
        prune(self.root, self.job.keep_checkpoints, self.best.path if self.best else None)
        self.sink.checkpoint(
            CheckpointRecord(saved.id, str(folder), stage, step, saved.sha256, parent=self.parent, score=score)
        )
        self.saved, self.parent = saved, saved.id

    def _rewind(self) -> None:
        """After a restart, void what earlier processes of this stage logged after the resumed step."""
        marker = begun_marker(self.job.out_dir)
        # No rewind for a finished stage, which only returns its result: it would void the log of later stages.
        if marker.exists() and not self._over():
            repeats_first_validation = not self.resumed and self.job.first_step == 1
            step = self.state.step - 1 if repeats_first_validation else self.state.step
            self.sink.event("rewind", stage=self.stage, step=step)
        marker.touch()

    def _check_start(self, continued: bool) -> None:
        job, step = self.job, self.state.step
        if not continued:
            if job.first_step == 1:
                return
            raise TrainingError(
                "checkpoint.wrong_step",
                f"{job.init} has no trainer state to begin step {job.first_step} with. Start at step 1.",
            )
        if not job.first_step - 1 <= step <= (job.last_step if self.resumed else job.first_step - 1):
            raise TrainingError(
                "checkpoint.wrong_step",
                f"{job.init} ends at step {step}, and a stage that begins at step {job.first_step} cannot "
                "continue it. Give the checkpoint of the step before.",
            )

    def _new_state(self, model: Any, tokenizer: Any, base: Base | None) -> TrainState:
        config, job = self.config, self.job
        generator = torch.Generator(job.device).manual_seed(derive_seed(job.seed, "sampling"))
        torch.manual_seed(derive_seed(job.seed, "torch"))
        critic = Critic(model) if config.name == "ppo" else None  # before adapters: all of its weights are trained
        if base is not None:
            adapt(model, base.settings, derive_seed(job.seed, "adapters"))
        optimizer = adamw(model, config.lr, config.betas, config.weight_decay)
        state = TrainState(model, tokenizer, optimizer, generator, kind="rl", base=base)
        if critic is not None:
            state.critic = critic
            state.critic_optimizer = adamw(critic, config.critic_lr, config.betas, config.weight_decay)
        return state

    def _policy(self, temperature: float, top_p: float, *, train: bool) -> LocalPolicy:
        return LocalPolicy(
            self.state.model,
            self.state.tokenizer,
            temperature=temperature,
            top_p=top_p,
            max_tokens=self.config.max_tokens,
            max_response_tokens=self.config.max_response_tokens,
            max_batch=self.job.max_rollout,
            generator=self.state.generator if train else None,
            seed=derive_seed(self.job.seed, "validate"),
            keep_samples=train,
            share_openings=self.config.share_openings,
        )

    def _context(self, step: int, phase: Any) -> RolloutContext:
        return RolloutContext(
            stage=self._stage_of(step), step=step, phase=phase, policy=self.policy.name, checkpoint=self.parent
        )

    def _stage_of(self, step: int) -> str:
        return self.job.stage or self.curriculum.stage_of(max(step, 1))

    def _log_skipped(self, folder: Path, reason: str) -> None:
        self.sink.event("checkpoint_passed_over", path=str(folder), reason=reason)


def _id_of(path: Path) -> str | None:
    return read_state(path).id if (path / "state.json").exists() else None


def _best_of(root: Path, earlier: Best | None) -> Best | None:
    """Return the best validated checkpoint among those on disk and the best of earlier stages."""
    best = earlier
    for folder in sorted(root.glob("step-*")):
        try:
            state = read_state(folder)
        except CheckpointError:
            continue  # damaged: `newest` has logged it
        if state.score is not None and (best is None or state.score > best.score):
            best = Best(path=folder, id=state.id, step=state.step, score=state.score)
    return best
