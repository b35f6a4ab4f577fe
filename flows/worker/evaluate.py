"""The held-out evaluation: every actor on the same test tasks at the same horizon."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from flows.machine.slots import threads
from flows.run.job import Actor, ProgressWriter, StageJob, server_of
from flows.run.results import EvaluateResult, GymScore
from flows.run.tasks import evaluation_gyms, gym_config, test_tasks, users_of
from flows.worker.device import device
from flows.worker.distill import demonstrator
from userrl_core.policies import BatchPolicy, Policy
from userrl_core.policies.openai import OpenAIPolicy
from userrl_core.records import Flag, RolloutContext, Task, Trajectory
from userrl_core.rollout import run_episodes
from userrl_core.served.health import check_server, check_users
from userrl_core.sink import Sink


def evaluate(job: StageJob, sink: Sink, progress: ProgressWriter) -> EvaluateResult:
    """Mean score per actor and gym, with standard errors, turns and format errors."""
    recipe = job.recipe
    _check_servers(job)
    tasks = test_tasks(recipe)
    sink.tasks(tasks)
    total = len(job.actors) * len(tasks) * recipe.evaluate.attempts
    ended: list[Trajectory] = []

    def count(trajectory: Trajectory) -> None:
        ended.append(trajectory)
        if len(ended) % 50 == 0 or len(ended) == total:
            scores = [t.score for t in ended[-50:] if t.score is not None]
            progress(len(ended), total, reward=sum(scores) / len(scores) if scores else None)

    played = {actor.label: _play(job, actor, tasks, sink, count) for actor in job.actors}
    table = {label: _rows(trajectories, lambda task: task.gym) for label, trajectories in played.items()}
    tiers = {label: _rows(_in_tiers(trajectories), tier_label) for label, trajectories in played.items()}
    scores = {
        f"evaluate/{actor}/{gym}": row.score
        for actor, gyms in table.items()
        for gym, row in gyms.items()
        if row.score is not None
    }
    step = max((actor.step for actor in job.actors), default=0)
    sink.metrics(scores, stage=job.stage, step=step)
    turns = sum(len(t.turns) for t in ended)
    return EvaluateResult(
        table=table, tiers=tiers, horizon=recipe.evaluate.horizon, tasks=len(tasks), turns=turns, step=step
    )


def _check_servers(job: StageJob) -> None:
    """Raise ConfigError before the first episode when a served policy, user or judge does not answer."""
    for actor in job.actors:
        if actor.kind == "served":
            check_server(server_of(actor), "served model")
    if any(actor.kind == "demonstrator" for actor in job.actors) and isinstance(
        policy := demonstrator(job.recipe), OpenAIPolicy
    ):
        check_server(policy.server, "demonstrator")
    check_users(users_of(job.recipe, evaluation_gyms(job.recipe), role="evaluate"))


def _play(
    job: StageJob, actor: Actor, tasks: list[Task], sink: Sink, count: Callable[[Trajectory], None]
) -> list[Trajectory]:
    recipe, policy = job.recipe, _policy(job, actor)
    where = RolloutContext(stage=job.stage, step=actor.step, phase="evaluate", policy=policy.name, checkpoint=actor.id)
    return asyncio.run(
        run_episodes(
            tasks,
            policy,
            horizon=recipe.evaluate.horizon,
            n=recipe.evaluate.attempts,
            sink=sink,
            user=users_of(recipe, evaluation_gyms(recipe), role="evaluate"),
            context=where,
            seed=job.seed,
            gym_config=gym_config(recipe, evaluation=True),
            on_format_error=recipe.on_format_error,
            prompt_style=recipe.model.prompt_style,
            progress=count,
        )
    )


def tier_label(task: Task) -> str:
    """A tier as tables call it, such as ``errand depth-3``."""
    return f"{task.gym} {task.tier}"


def _in_tiers(played: list[Trajectory]) -> list[Trajectory]:
    """Those at gyms whose tasks have more than one tier: where there is one, the gym's row says it."""
    tiers = Counter(gym for gym, _ in {(t.task.gym, t.task.tier) for t in played})
    return [t for t in played if tiers[t.task.gym] > 1]


def _rows(played: list[Trajectory], label: Callable[[Task], str]) -> dict[str, GymScore]:
    labels = dict.fromkeys(label(t.task) for t in played)
    return {row: _row([t for t in played if label(t.task) == row]) for row in labels}


def _policy(job: StageJob, actor: Actor) -> Policy | BatchPolicy:
    recipe = job.recipe
    if actor.kind == "demonstrator":
        return demonstrator(recipe)
    if actor.kind == "served":
        return OpenAIPolicy(server_of(actor))
    from userrl_core.training.local.model import load_model
    from userrl_core.training.local.policy import LocalPolicy
    from userrl_core.training.local.threads import fix_threads
    from userrl_core.training.local.tokenizer import load_tokenizer

    fix_threads(threads(recipe.hardware.threads))
    return LocalPolicy(
        load_model(actor.path, recipe.model, device()),
        load_tokenizer(actor.path),
        temperature=recipe.evaluate.temperature,
        top_p=recipe.evaluation_top_p,
        max_tokens=recipe.algorithm.max_tokens,
        max_response_tokens=recipe.algorithm.max_response_tokens,
        seed=job.seed,
        name=actor.label,
    )


def _row(played: list[Trajectory]) -> GymScore:
    scored = [(t, t.score) for t in played if t.admitted and t.score is not None]
    n = len(scored)
    reasons = Counter(_reason(t.reject_reason) for t in played if not t.admitted)
    most_frequent = dict(reasons.most_common(TOP_REASONS))
    if n == 0:
        return GymScore(rejected=len(played), reasons=most_frequent)
    mean = sum(score for _, score in scored) / n
    spread = (sum((score - mean) ** 2 for _, score in scored) / (n - 1)) ** 0.5 if n > 1 else 0.0
    return GymScore(
        score=mean,
        stderr=spread / n**0.5,
        turns=sum(len(t.turns) for t, _ in scored) / n,
        format_errors=sum(any(turn.flags & Flag.FORMAT_ERROR for turn in t.turns) for t, _ in scored) / n,
        attempts=n,
        rejected=len(played) - n,
        reasons=most_frequent,
    )


TOP_REASONS, LONGEST_REASON = 3, 200


def _reason(text: str | None) -> str:
    """A reason on one line."""
    return " ".join((text or "no reason is known").split())[:LONGEST_REASON]
