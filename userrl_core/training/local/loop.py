"""One stage of reinforcement learning: play, credit, update, validate, keep (DESIGN.md, "Training").

A step is: draw tasks, play every task `group` times in lock-step, turn rewards into advantages, update, now and then
validate greedily at the run's final horizon, log, and last of all write a checkpoint. Whatever was logged after the
newest checkpoint when a process died is declared void (``rewind``) and played again, to the same tokens.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from userrl_core.errors import CheckpointError, TrainingError
from userrl_core.records import CheckpointRecord, Task, Trajectory, Where
from userrl_core.rewards import Credits
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
from userrl_core.training.local.diagnostics import conversation_metrics
from userrl_core.training.local.logprobs import reference_logprobs
from userrl_core.training.local.optimizer import adamw, set_lr
from userrl_core.training.local.policy import LocalPolicy
from userrl_core.training.local.state import TrainState, load_checkpoint
from userrl_core.training.local.threads import fix_threads
from userrl_core.training.local.update import items_of, minibatches, update_policy
from userrl_core.training.protocols import Curriculum, Progress


def train_rl(job: RlJob, curriculum: Curriculum, sink: Sink, progress: Progress | None = None) -> StageResult:
    """Run the stage to its last step; started again, it goes on from its newest checkpoint, bit for bit.

    curriculum: as it was made; its state is loaded from the checkpoint. Runs its own event loop.
    Raises CheckpointError for an unusable start, TrainingError for one from which this stage cannot go on.
    """
    fix_threads(job.threads)
    return asyncio.run(_Stage(job, curriculum, sink, progress).run())


class _Stage:
    """The state of one stage's process."""

    def __init__(self, job: RlJob, curriculum: Curriculum, sink: Sink, progress: Progress | None) -> None:
        self.job, self.curriculum, self.sink, self.progress = job, curriculum, sink, progress
        self.config = job.algorithm
        self.root = job.out_dir / "checkpoints"
        self.root.mkdir(parents=True, exist_ok=True)
        found = newest(self.root, report=self._passed_over)
        self.resumed = found is not None
        start = found[0] if found else job.init
        model, tokenizer = load_checkpoint(start, job.model, job.device)
        self.state = self._new_state(model, tokenizer)
        self.best = job.best
        self.saved: CheckpointState | None = found[1] if found else None
        self.parent = self.saved.id if self.saved else _id_of(job.init)
        # A run's first stage takes a model from wherever it comes, and nothing else.
        continued = (self.resumed or job.first_step > 1) and self.state.restore(start)
        self._check_start(continued)
        if self.state.curriculum is not None:
            curriculum.load_state_dict(self.state.curriculum)
        self.stage = self._name_of(job.first_step)
        if found:
            self.best = _best_of(self.root, job.best)
        self.reference = load_checkpoint(job.reference, job.model, job.device)[0] if job.reference else None
        self.user_was_down = False
        self.policy = self._policy(self.config.temperature, self.config.top_p, train=True)

    async def run(self) -> StageResult:
        job = self.job
        self._declare_void()
        metrics: dict[str, float] = {}
        if not self.resumed and job.first_step == 1 and job.validation:
            score, values = await self._validate(0)
            self.sink.metrics(values, stage=self.stage, step=0)
            self._save(score)
        moved = self.state.step >= job.last_step
        while self.state.step < job.last_step:
            step = self.state.step + 1
            metrics = await self._step(step)
            moved = moved or metrics["policy/updates/count"] > 0
            score = None
            if job.validation and (step % job.validate_every == 0 or step == job.last_step):
                score, values = await self._validate(step)
                metrics |= values
            self.sink.metrics(metrics, stage=self._name_of(step), step=step)
            if score is not None or step % job.checkpoint_every == 0 or step == job.last_step:
                self._save(score)
            if self.progress is not None:
                self.progress(step, job.total_steps or job.last_step, metrics)
        if not moved and not self.resumed:
            # A result, not an error: a model without a cold start may find every group alike, and reports show that.
            self.sink.event("nothing_learnt", stage=self.stage, step=self.state.step)
        if self.saved is None:
            raise TrainingError(f"Stage {self.stage} ended without a checkpoint.")
        return StageResult(
            checkpoint=step_folder(self.root, self.saved.step),
            id=self.saved.id,
            sha256=self.saved.sha256,
            step=self.saved.step,
            best=self.best,
            metrics=metrics,
        )

    async def _step(self, step: int) -> dict[str, float]:
        """One training step; the state has it behind itself when this returns."""
        began = time.perf_counter()
        horizon = self.curriculum.horizon(step, self.state.history)
        batch, credits, resampled = await self._collect(step, horizon)
        played = time.perf_counter()
        advantages = advantages_for(self.config, batch, credits, self.job.credit, self.state.critic)
        self._log_credits(batch, credits, advantages)
        metrics = self._update(step, batch, advantages)
        updated = time.perf_counter()
        self._observe(batch)
        metrics |= conversation_metrics(batch.trajectories, "rollout")
        metrics |= credits.diagnostics.metrics() | advantages.metrics | self.curriculum.metrics()
        metrics |= {
            "groups/resampled/count": float(resampled),
            "groups/trained/share": float(advantages.trains.mean()) if len(batch) else 0.0,
            "curriculum/horizon/value": float(horizon),
        }
        self.curriculum.record(step, metrics)
        outcome = {name: metrics.get(f"rollout/{name}/mean") for name in ("success", "return_sum")}
        self.state.history.append({"step": step, **outcome})
        self.state.step = step
        self.state.curriculum = self.curriculum.state_dict()
        sampled = sum(sample.agent_tokens for sample in batch.samples)
        return metrics | {
            "seconds/rollout/sum": played - began,
            "seconds/update/sum": updated - played,
            "rollout/tokens/per_second": sampled / max(played - began, 1e-9),
        }

    async def _collect(self, step: int, horizon: int) -> tuple[Batch, Credits, int]:
        """The step's attempts; with filter resample, groups without a signal make room for further draws, up to the limit."""
        batch = await self._play(step, horizon, self.curriculum.draw(step, self.config.batch))
        credits = batch.credits(self.job.credit)
        resampled = 0
        for _ in range(self.job.credit.resample_limit if self.job.credit.filter == "resample" else 0):
            missing = self.config.batch - len({g for g, s in zip(batch.groups, credits.signal, strict=True) if s})
            seen = {trajectory.task.key for trajectory in batch.trajectories}
            fresh = [t for t in self.curriculum.draw(step, missing) if t.key not in seen] if missing > 0 else []
            if not fresh:
                break
            batch = batch + await self._play(step, horizon, fresh)
            credits = batch.credits(self.job.credit)
            resampled += len(fresh)
        return batch, credits, resampled

    async def _play(self, step: int, horizon: int, tasks: list[Task]) -> Batch:
        self.sink.tasks(tasks)
        trajectories = await self._episodes(self.policy, tasks, horizon, self._where(step, "train"), self.config.group)
        groups = [index // self.config.group for index in range(len(trajectories))]
        return Batch(trajectories, self.policy.take_samples(), groups)

    async def _validate(self, step: int) -> tuple[float | None, dict[str, float]]:
        """Attempts at the validation tasks; the mean score, None when no attempt could be scored."""
        began = time.perf_counter()
        self.sink.tasks(self.job.validation)
        where = self._where(step, "validate")
        policy = self._policy(self.job.validation_temperature, 1.0, train=False)
        played = await self._episodes(policy, self.job.validation, self.job.validation_horizon, where, 1)
        metrics = conversation_metrics(played, "validate")
        metrics["seconds/validate/sum"] = time.perf_counter() - began
        return metrics.get("validate/score/mean"), metrics

    async def _episodes(
        self, policy: LocalPolicy, tasks: list[Task], horizon: int, where: Where, n: int
    ) -> list[Trajectory]:
        await self._until_users_are_back()
        played = await run_episodes(
            tasks,
            policy,
            horizon=horizon,
            n=n,
            sink=self.sink,
            user=self.job.users,
            where=where,
            seed=self.job.seed,
            gym_config=self.job.gym_config,
            on_format_error=self.job.on_format_error,
            prompt_style=self.job.model.prompt_style,
        )
        self.user_was_down = any(user_was_down(trajectory) for trajectory in played)
        return played

    async def _until_users_are_back(self) -> None:
        """After attempts that a served user did not answer: wait for it, since playing on would score nothing."""
        if not self.user_was_down:
            return
        deadline = time.monotonic() + self.job.patience
        for server in served_users(self.job.users):
            if not await until_it_answers(server, deadline):
                raise TrainingError(
                    f"The user model {server.model} has not answered for {self.job.patience:g} s; bring it back and start "
                    "the same run again: training goes on from its last checkpoint."
                )

    def _update(self, step: int, batch: Batch, advantages: Advantages) -> dict[str, float]:
        config, state = self.config, self.state
        scale = min(1.0, step / config.warmup_steps) if config.warmup_steps else 1.0
        set_lr(state.optimizer, config.lr * scale)
        used = batch.where(advantages.trains)
        reference = self._reference(used)
        full: list[Any] = [None] * len(batch)
        for row, logprobs in zip(np.flatnonzero(advantages.trains).tolist(), reference or [], strict=False):
            full[row] = logprobs
        items = items_of(batch, advantages, full if reference else None)
        order = minibatches(items, config, derive_seed(self.job.seed, "update", step))
        metrics: dict[str, float] = {"policy/lr/value": config.lr * scale}
        if isinstance(state.critic, Critic) and state.critic_optimizer is not None and advantages.returns is not None:
            returns = [row for row, train in zip(advantages.returns, advantages.trains, strict=True) if train]
            metrics |= update_critic(state.critic, state.critic_optimizer, used.samples, returns, config, order)
        if config.name == "ppo" and step <= config.critic_warmup:
            order = []
        return metrics | update_policy(state.model, state.optimizer, items, config, order)

    def _reference(self, used: Batch) -> list[torch.Tensor] | None:
        if self.reference is None or not len(used):
            return None
        ids, turns = [s.ids for s in used.samples], [s.turns for s in used.samples]
        return reference_logprobs(self.reference, ids, turns, self.config.temperature, self.config.micro_batch)

    def _log_credits(self, batch: Batch, credits: Credits, advantages: Advantages) -> None:
        for index, trajectory in enumerate(batch.trajectories):
            if trajectory.traj_id is not None and credits.admitted[index]:
                self.sink.credits(trajectory.traj_id, credits.shaped[index].tolist(), advantages.turns[index].tolist())

    def _observe(self, batch: Batch) -> None:
        """Tell the sampler how each group went."""
        outcomes: dict[str, list[float]] = {}
        for trajectory in batch.trajectories:
            if trajectory.admitted:
                outcomes.setdefault(trajectory.task.key, []).append(float(trajectory.stop_reason == "success"))
        for key, values in outcomes.items():
            self.curriculum.observe(key, sum(values) / len(values))

    def _save(self, score: float | None) -> None:
        """Write a checkpoint of the state; everything logged so far is on disk before it exists."""
        state, step = self.state, self.state.step
        self.sink.flush()
        if state.curriculum is None:
            state.curriculum = self.curriculum.state_dict()
        folder, stage = step_folder(self.root, step), self._name_of(step)
        saved = write_checkpoint(folder, state.save, stage=stage, step=step, parent=self.parent, score=score)
        if score is not None and (self.best is None or score > self.best.score):
            self.best = Best(path=folder, id=saved.id, step=step, score=score)
        prune(self.root, self.job.keep_checkpoints, self.best.path if self.best else None)
        self.sink.checkpoint(
            CheckpointRecord(saved.id, str(folder), stage, step, saved.sha256, parent=self.parent, score=score)
        )
        self.saved, self.parent = saved, saved.id

    def _declare_void(self) -> None:
        """A process of this stage began before: what it logged after the step we continue from does not count."""
        marker = begun_marker(self.job.out_dir)
        # A stage that was finished is only asked for its result; what later stages logged stands.
        if marker.exists() and self.state.step < self.job.last_step:
            first_validates_again = not self.resumed and self.job.first_step == 1
            step = self.state.step - 1 if first_validates_again else self.state.step
            self.sink.event("rewind", stage=self.stage, step=step)
        marker.touch()

    def _check_start(self, continued: bool) -> None:
        """Refuse a checkpoint from which the stage cannot go on."""
        job, at = self.job, self.state.step
        if not continued:
            if job.first_step == 1:
                return
            raise TrainingError(
                f"{job.init} holds no trainer state to begin step {job.first_step} with; start at step 1."
            )
        if not job.first_step - 1 <= at <= (job.last_step if self.resumed else job.first_step - 1):
            raise TrainingError(
                f"{job.init} ends at step {at}; a stage that begins at step {job.first_step} cannot continue it."
            )

    def _new_state(self, model: Any, tokenizer: Any) -> TrainState:
        config, job = self.config, self.job
        generator = torch.Generator(job.device).manual_seed(derive_seed(job.seed, "sampling"))
        torch.manual_seed(derive_seed(job.seed, "torch"))
        state = TrainState(
            model, tokenizer, adamw(model, config.lr, config.betas, config.weight_decay), generator, kind="rl"
        )
        if config.name == "ppo":
            critic = Critic(model)
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
        )

    def _where(self, step: int, phase: Any) -> Where:
        return Where(stage=self._name_of(step), step=step, phase=phase, policy=self.policy.name, checkpoint=self.parent)

    def _name_of(self, step: int) -> str:
        """The stage that a step is recorded under."""
        return self.job.stage or self.curriculum.stage_of(max(step, 1))

    def _passed_over(self, folder: Path, why: str) -> None:
        self.sink.event("checkpoint_passed_over", path=str(folder), reason=why)


def _id_of(path: Path) -> str | None:
    return read_state(path).id if (path / "state.json").exists() else None


def _best_of(root: Path, earlier: Best | None) -> Best | None:
    """The best validated checkpoint among those on disk and the one of earlier stages."""
    best = earlier
    for folder in sorted(root.glob("step-*")):
        try:
            state = read_state(folder)
        except CheckpointError:
            continue  # not whole: `newest` has said so
        if state.score is not None and (best is None or state.score > best.score):
            best = Best(path=folder, id=state.id, step=state.step, score=state.score)
    return best
