"""Distillation: collect demonstrations, keep the best, write chats for SFT (UserRL section 4.1, appendix E)."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curricula.pool import MAX_PER_GYM
from curricula.recipe import Recipe
from userrl.machine.hashes import file_hash
from userrl.run.job import ProgressWriter, StageJob
from userrl.run.results import DistillResult
from userrl.run.stored import stored_conversations
from userrl.run.tasks import demonstrated_gyms, demonstration_tasks, gym_config, users_of
from userrl.worker.played import continues
from userrl_core.distill import Selection, read_chats, select_top_k, write_chats
from userrl_core.errors import TrainingError
from userrl_core.json_files import write_json
from userrl_core.policies import BatchPolicy, Policy, ScriptedPolicy
from userrl_core.policies.openai import OpenAIPolicy
from userrl_core.records import RolloutContext, Trajectory, mean_score
from userrl_core.rollout import run_episodes
from userrl_core.seeding import content_hash
from userrl_core.served.client import shown_address
from userrl_core.served.health import check_server, check_users, served_users
from userrl_core.sharegpt import read_conversations
from userrl_core.sink import Sink
from userrl_core.user_path import user_path

NO_REPLY = ("policy: ", "user: ", "judge: ")
"""How the reason of a conversation begins that was rejected because a model gave no reply."""
MOST_UNANSWERED = 0.25
"""Share of such conversations above which distillation fails."""


def demonstrator(recipe: Recipe) -> Policy:
    """Return the demonstrating policy: ``scripted``, or a model behind an OpenAI-compatible server."""
    setup = recipe.demonstrations
    if setup.policy == "scripted":
        return ScriptedPolicy(setup.skill)
    server = setup.chat_server
    return OpenAIPolicy(
        server.model_copy(update={"base_url": server.base_url or os.environ.get("OPENAI_BASE_URL") or None})
    )


def distill(job: StageJob, sink: Sink, progress: ProgressWriter) -> DistillResult:
    """Play, select and write demonstrations. The result counts the dropped ones by reason."""
    recipe, setup = job.recipe, job.recipe.demonstrations
    if recipe.cold_start.data is not None:
        return _given(job, user_path(recipe.cold_start.data))
    policy = demonstrator(recipe)
    plan = {gym: _attempts(recipe, gym, job.seed) for gym in demonstrated_gyms(recipe)}
    before = _played_before(job, sink, plan)
    if len(before) < sum(len(tasks) * n for tasks, n in plan.values()):
        if isinstance(policy, OpenAIPolicy):
            check_server(policy.server, "demonstrator")
        check_users(users_of(recipe, tuple(plan), role="demonstrate"))
    played = play(job, policy, plan, sink, progress, horizon=setup.horizon, role="demonstrate", before=before)
    _refuse_unanswered(job, played)
    chosen = select_top_k(played, setup.top_k)
    if not chosen.kept:
        why = ", ".join(f"{count} {reason}" for reason, count in chosen.dropped.items()) or "none was played"
        raise TrainingError(
            "demonstrations.too_few",
            f"No demonstration of {policy.name} can be used for training ({why}). See the turns of stage distill.",
        )
    return keep(job, policy.name, played, chosen, sink)


def _played_before(job: StageJob, sink: Sink, plan: Mapping[str, tuple[list[Any], int]]) -> list[Trajectory]:
    """Return the admitted demonstrations of earlier attempts at this job. They were paid for, and are not played again."""
    setup, users = job.recipe.demonstrations, users_of(job.recipe, tuple(plan), role="demonstrate")
    servers = [*served_users(users), *([] if setup.policy == "scripted" else [setup.chat_server])]
    asks_default = any(server.base_url is None for server in servers)
    address = shown_address(os.environ.get("OPENAI_BASE_URL") or "") if asks_default else ""
    keys = [content_hash([key, address]) if address else key for key in job.accepted_keys]
    if not continues(job, sink, keys, "distill"):
        return []
    planned = {(task.key, attempt) for tasks, n in plan.values() for task in tasks for attempt in range(n)}
    stored = stored_conversations(job.run_id, "distill", None, folder=job.warehouse)
    return [t for t in stored if t.context.stage == job.stage and (t.task.key, t.attempt) in planned]


def _refuse_unanswered(job: StageJob, played: Sequence[Trajectory]) -> None:
    """Raise TrainingError if served models failed in many conversations."""
    reasons = Counter(t.reject_reason for t in played if (t.reject_reason or "").startswith(NO_REPLY))
    if reasons.total() > MOST_UNANSWERED * len(played):
        raise TrainingError(
            "demonstrations.unanswered",
            f"{reasons.total()} of {len(played)} demonstrations have no score, because a model did not answer "
            f"({reasons.most_common(1)[0][0]}). Start the same command again: only these are played again. Or train on the others: "
            f"userrl warehouse export chats.jsonl --format messages --phase distill --run {job.run_id}, then "
            "cold_start.data=chats.jsonl.",
        )


def play(
    job: StageJob,
    policy: Policy | BatchPolicy,
    plan: Mapping[str, tuple[list[Any], int]],
    sink: Sink,
    progress: ProgressWriter,
    *,
    horizon: int | None,
    role: str,
    before: Sequence[Trajectory] = (),
) -> list[Trajectory]:
    """Play the policy on each gym's tasks, each task the given number of times. Return all, gym by gym.

    horizon: None uses the evaluation's. role: the role of the users. before: conversations of earlier attempts.
    """
    recipe = job.recipe
    total = sum(len(tasks) * n for tasks, n in plan.values())
    finished = list(before)

    def count(trajectory: Trajectory) -> None:
        finished.append(trajectory)
        if len(finished) % 50 == 0 or len(finished) == total:
            progress(len(finished), total, score=mean_score(t.score for t in finished if t.admitted))

    for tasks, _ in plan.values():
        sink.tasks(tasks)
    # All gyms together, so that a served demonstrator stays busy while the last conversations of one gym end.
    played = asyncio.run(
        run_episodes(
            [task for tasks, _ in plan.values() for task in tasks],
            policy,
            horizon=horizon or recipe.evaluate.horizon,
            n={gym: n for gym, (_, n) in plan.items()},
            sink=sink,
            user=users_of(recipe, tuple(plan), role=role),
            context=RolloutContext(stage=job.stage, phase="distill", policy=policy.name),
            seed=job.seed,
            gym_config=gym_config(recipe),
            on_format_error=recipe.on_format_error,
            prompt_style=recipe.model.prompt_style,
            turns_left=recipe.model.turns_left,
            progress=count,
            skip={(trajectory.task.key, trajectory.attempt) for trajectory in before},
        )
    )
    return [trajectory for gym in plan for trajectory in (*before, *played) if trajectory.task.gym == gym]


def keep(
    job: StageJob,
    policy: str,
    played: list[Trajectory],
    chosen: Selection,
    sink: Sink,
    *,
    earlier: Path | None = None,
    trained_in: str = "sft",
) -> DistillResult:
    """Write the chosen conversations and their tasks into the stage's folder, log them, and return the result.

    earlier: chats of an earlier stage, which come first in the file. trained_in: the supervised stage that follows.
    """
    chats, used = job.folder / "chats.jsonl", job.folder / "used_tasks.json"
    write_chats(chats, chosen.kept)
    if earlier is not None:
        chats.write_bytes(earlier.read_bytes() + chats.read_bytes())
    sink.demonstrations((t.traj_id for t in chosen.kept if t.traj_id is not None), stage=trained_in)
    write_json(used, {"tasks": sorted(chosen.task_keys)})
    return DistillResult(
        chats=chats,
        used_tasks=used,
        policy=policy,
        played=len(played),
        kept=len(chosen.kept),
        dropped=chosen.dropped,
        mean=mean_score(t.score for t in played if t.admitted),
        mean_kept=mean_score(t.score for t in chosen.kept if t.admitted),
        by_gym=chosen.by_gym,
        turns=sum(len(t.turns) for t in played),
        files={path: file_hash(path) for path in (chats, used)},
        sha256=content_hash(trained_on(chats)),
    )


def trained_on(chats: Path) -> list[dict[str, Any]]:
    """Return the chats of a file without what no training reads. An id is new whenever a demonstration is played."""
    return [
        {name: value for name, value in chat.items() if name not in ("traj_id", "score")} for chat in read_chats(chats)
    ]


def _given(job: StageJob, source: Path) -> DistillResult:
    """Use conversations of a file instead of demonstrations. Nothing is played, and no task leaves the RL set."""
    unread: Counter[str] = Counter()
    conversations = read_conversations(source, job.recipe.played_gyms, unread)
    chats, used = job.folder / "chats.jsonl", job.folder / "used_tasks.json"
    chats.parent.mkdir(parents=True, exist_ok=True)
    chats.write_text("".join(json.dumps(chat, ensure_ascii=False) + "\n" for chat in conversations), encoding="utf-8")
    write_json(used, {"tasks": []})
    return DistillResult(
        chats=chats,
        used_tasks=used,
        policy=f"file {source.name}",
        played=0,
        kept=len(conversations),
        dropped={},
        mean=None,
        mean_kept=None,
        by_gym={},
        unread=dict(unread.most_common()),
        turns=sum(message["role"] == "assistant" for chat in conversations for message in chat["messages"]),
        files={path: file_hash(path) for path in (chats, used)},
        sha256=content_hash(trained_on(chats)),
    )


def _attempts(recipe: Recipe, gym: str, seed: int) -> tuple[list[Any], int]:
    """Return tasks to demonstrate and attempts at each: as many as requested, without using up the gym."""
    setup = recipe.demonstrations
    tasks = demonstration_tasks(recipe, gym, seed)
    limit = max(1, int(len(tasks) * MAX_PER_GYM)) if recipe.stages else len(tasks)
    if setup.episodes is None:
        return tasks[:limit], setup.attempts
    n = max(setup.attempts, -(-setup.episodes // limit))
    return tasks[: max(1, setup.episodes // n)], n
