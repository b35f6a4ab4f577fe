"""The held-out evaluation: every actor on the same test tasks at the same horizon."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from curricula.recipe import Recipe
from flows.run.job import Actor, Job, ProgressWriter
from flows.worker.device import device, threads
from flows.worker.distill import demonstrator
from flows.worker.tasks import evaluation_gyms, gym_config, test_tasks, users_of
from userrl_core.policies import BatchPolicy, Policy
from userrl_core.records import Flag, Task, Trajectory, Where
from userrl_core.rollout import run_episodes
from userrl_core.sink import Sink


def evaluate(job: Job, recipe: Recipe, sink: Sink, progress: ProgressWriter) -> dict[str, Any]:
    """Mean score per actor and gym, with standard errors, turns and format errors."""
    tasks = test_tasks(recipe)
    sink.tasks(tasks)
    total = len(job.actors) * len(tasks) * recipe.evaluate.attempts
    done: list[Trajectory] = []

    def tell(trajectory: Trajectory) -> None:
        done.append(trajectory)
        if len(done) % 50 == 0 or len(done) == total:
            scores = [t.score for t in done[-50:] if t.score is not None]
            progress(len(done), total, reward=sum(scores) / len(scores) if scores else None)

    table = {actor.label: _play(job, recipe, actor, tasks, sink, tell) for actor in job.actors}
    numbers = {
        f"evaluate/{actor}/{gym}": row["score"]
        for actor, gyms in table.items()
        for gym, row in gyms.items()
        if row["score"] is not None
    }
    sink.metrics(numbers, stage=job.stage, step=max((actor.step for actor in job.actors), default=0))
    return {
        "table": table,
        "horizon": recipe.evaluate.horizon,
        "tasks": len(tasks),
        "turns": sum(len(t.turns) for t in done),
        "files": {},
        "sha256": "",
        "step": max((actor.step for actor in job.actors), default=0),
    }


def _play(
    job: Job, recipe: Recipe, actor: Actor, tasks: list[Task], sink: Sink, tell: Any
) -> dict[str, dict[str, float | int | None]]:
    policy = _policy(job, recipe, actor)
    where = Where(stage=job.stage, step=actor.step, phase="evaluate", policy=policy.name, checkpoint=actor.id)
    played = asyncio.run(
        run_episodes(
            tasks,
            policy,
            horizon=recipe.evaluate.horizon,
            n=recipe.evaluate.attempts,
            sink=sink,
            user=users_of(recipe, evaluation_gyms(recipe), role="evaluate"),
            where=where,
            seed=job.seed,
            gym_config=gym_config(recipe),
            on_format_error=recipe.on_format_error,
            prompt_style=recipe.model.prompt_style,
            progress=tell,
        )
    )
    gyms = list(dict.fromkeys(task.gym for task in tasks))
    return {gym: _row([t for t in played if t.task.gym == gym]) for gym in gyms}


def _policy(job: Job, recipe: Recipe, actor: Actor) -> Policy | BatchPolicy:
    if actor.kind == "demonstrator":
        return demonstrator(recipe)
    if actor.kind == "served":
        from userrl_core.policies.openai import OpenAIPolicy
        from userrl_core.served.client import ChatServer

        base_url = actor.options.get("base_url") or os.environ.get("OPENAI_BASE_URL") or None
        server = ChatServer(model=actor.path, **{**actor.options, "base_url": base_url})
        return OpenAIPolicy(server)
    from userrl_core.training.local.model import load_model
    from userrl_core.training.local.policy import LocalPolicy
    from userrl_core.training.local.threads import fix_threads
    from userrl_core.training.local.tokenizer import load_tokenizer

    fix_threads(threads())
    return LocalPolicy(
        load_model(actor.path, recipe.model, device()),
        load_tokenizer(actor.path),
        temperature=recipe.evaluate.temperature,
        max_tokens=recipe.algorithm.max_tokens,
        max_response_tokens=recipe.algorithm.max_response_tokens,
        seed=job.seed,
        name=actor.label,
    )


def _row(played: list[Trajectory]) -> dict[str, float | int | None]:
    """Means over admitted attempts; ``rejected`` counts the others. format_errors: share with a reply without a readable call."""
    scored = [t for t in played if t.admitted and t.score is not None]
    n = len(scored)
    if n == 0:
        return {
            "score": None,
            "stderr": None,
            "turns": None,
            "format_errors": None,
            "attempts": 0,
            "rejected": len(played),
        }
    scores = [t.score for t in scored if t.score is not None]
    mean = sum(scores) / n
    spread = (sum((score - mean) ** 2 for score in scores) / (n - 1)) ** 0.5 if n > 1 else 0.0
    turns = sum(len(t.turns) for t in scored)
    return {
        "score": mean,
        "stderr": spread / n**0.5,
        "turns": turns / n,
        "format_errors": sum(any(turn.flags & Flag.FORMAT_ERROR for turn in t.turns) for t in scored) / n,
        "attempts": n,
        "rejected": len(played) - n,
    }
