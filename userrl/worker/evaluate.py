"""The held-out evaluation: every actor on the same test tasks at the same horizon."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain

from curricula import Recipe
from userrl.run.fingerprint import continued_protocol, fingerprints
from userrl.run.job import Actor, ProgressWriter, StageJob, server_of
from userrl.run.results import EvaluateResult, GymScore
from userrl.run.tasks import evaluation_gyms, gym_config, test_tasks, users_of
from userrl.worker.checkpoint_policy import checkpoint_speaks
from userrl.worker.distill import demonstrator
from userrl.worker.played import Played, begin, stored_protocols
from userrl_core.policies import BatchPolicy, Policy
from userrl_core.policies.native import NativePolicy
from userrl_core.policies.openai import OpenAIPolicy
from userrl_core.records import RolloutContext, Task, Trajectory
from userrl_core.rollout import run_episodes
from userrl_core.served.client import ChatServer
from userrl_core.served.health import check_server, check_users
from userrl_core.sink import Sink

PROGRESS_SECONDS = 1.0
FIRST_ETA = 20
"""Number of finished conversations before an ETA is shown. The first ones of a batch end late, and together."""


def evaluate(job: StageJob, sink: Sink, progress: ProgressWriter) -> EvaluateResult:
    """Return the mean score per actor and gym, with standard errors, turns and format errors.

    Scores from earlier attempts at the same job are reused. Rejected conversations are repeated.
    """
    recipe = job.recipe
    # A gym of the training that is not in the recipe's evaluation is played with its training's settings.
    plays = [(family, test_tasks(family, job.seed)) for family in (recipe, *job.families)]
    tasks = [task for _, some in plays for task in some]
    attempts_needed = {(task.key, attempt) for task in tasks for attempt in range(recipe.evaluate.attempts)}
    earlier = [
        conversation
        for conversation in begin(job, sink)
        if (conversation.task, conversation.attempt) in attempts_needed
    ]
    earlier_of = _by_actor(job, earlier)
    missing = {label: len(tasks) * recipe.evaluate.attempts - len(some) for label, some in earlier_of.items()}
    counter = _Counter(progress, len(earlier), len(earlier) + sum(missing.values()))
    playing = [actor for actor in job.actors if missing[actor.label]]
    _check_servers(job, playing)
    sink.tasks(tasks)
    stored = stored_protocols(job)
    for actor in job.actors:
        policy, continued = _name(job, actor), {conversation.gym for conversation in earlier_of[actor.label]}
        rows = [row for family, some in plays for row in fingerprints(family, actor, some)]
        rows = [
            continued_protocol(row, stored.get((policy, actor.id, row["gym"]), {})) if row["gym"] in continued else row
            for row in rows
        ]
        sink.protocols({"policy": policy, "checkpoint": actor.id, **row} for row in rows if row)
    for actor in playing:
        before = {(conversation.task, conversation.attempt) for conversation in earlier_of[actor.label]}
        with _speaks(job, actor) as speak:
            for family, some in plays:
                if any(
                    (task.key, attempt) not in before for task in some for attempt in range(recipe.evaluate.attempts)
                ):
                    _play(job, family, actor, speak(family), some, sink, counter, before)
    counter.last()
    every = [*earlier, *counter.played]
    played = _by_actor(job, every)
    table = {label: _rows(some, lambda conversation: conversation.gym) for label, some in played.items()}
    tiers = {
        label: _rows(_in_tiers(some), lambda conversation: tier_label(conversation.gym, conversation.tier))
        for label, some in played.items()
    }
    solved = {label: _solved(some) for label, some in played.items()}
    scores = {
        f"evaluate/{actor}/{gym}": row.score
        for actor, gyms in table.items()
        for gym, row in gyms.items()
        if row.score is not None
    }
    step = max((actor.step for actor in job.actors), default=0)
    sink.metrics(scores, stage=job.stage, step=step)
    turns = sum(conversation.turns for conversation in every)
    return EvaluateResult(
        table=table,
        tiers=tiers,
        solved=solved,
        horizon=recipe.evaluate.horizon,
        tasks=len(tasks),
        turns=turns,
        step=step,
    )


def _by_actor(job: StageJob, played: list[Played]) -> dict[str, list[Played]]:
    """Return the conversations of each actor, by its label."""
    by_policy: defaultdict[tuple[str, str | None], list[Played]] = defaultdict(list)
    for conversation in played:
        by_policy[conversation.policy, conversation.checkpoint].append(conversation)
    return {actor.label: by_policy[_name(job, actor), actor.id] for actor in job.actors}


def _name(job: StageJob, actor: Actor) -> str:
    return demonstrator(job.recipe).name if actor.kind == "demonstrator" else actor.label


class _Counter:
    """A counter of finished conversations that writes a progress line about once a second."""

    def __init__(self, progress: ProgressWriter, before: int, total: int) -> None:
        """before: number of conversations from earlier attempts."""
        self.played: list[Played] = []
        self._progress, self._before, self._total = progress, before, total
        self._began = self._due = time.monotonic()
        self._dollars = 0.0

    def __call__(self, trajectory: Trajectory) -> None:
        self.played.append(Played.of(trajectory))
        calls = chain(trajectory.unfinished_calls, *(turn.model_calls for turn in trajectory.turns))
        self._dollars += sum(call.price or 0.0 for call in calls)
        if time.monotonic() >= self._due:
            self._write()

    def last(self) -> None:
        """Write the last line, when all are played."""
        self._write()

    def _write(self) -> None:
        now = time.monotonic()
        self._due = now + PROGRESS_SECONDS
        now_playing = self.played[-1].policy if self.played else ""
        scores = [
            conversation.score
            for conversation in self.played
            if conversation.policy == now_playing and conversation.score is not None
        ]
        rate = len(self.played) / max(now - self._began, 1e-3)
        done = self._before + len(self.played)
        self._progress(
            done,
            self._total,
            score=sum(scores) / len(scores) if scores else None,
            per_second=rate,
            left_seconds=(self._total - done) / rate if len(self.played) >= FIRST_ETA else None,
            dollars=self._dollars,
        )


def _check_servers(job: StageJob, actors: list[Actor]) -> None:
    """Raise ConfigError before the first episode if a served policy, user or judge does not answer."""
    for server in {server_of(actor) for actor in actors if actor.kind == "served"}:
        check_server(server, "served model")
    if any(actor.kind == "demonstrator" for actor in actors) and isinstance(
        policy := demonstrator(job.recipe), OpenAIPolicy
    ):
        check_server(policy.server, "demonstrator")
    if actors:
        for recipe in (job.recipe, *job.families):
            check_users(users_of(recipe, evaluation_gyms(recipe), role="evaluate"))


def _play(
    job: StageJob,
    recipe: Recipe,
    actor: Actor,
    policy: Policy | BatchPolicy,
    tasks: list[Task],
    sink: Sink,
    count: _Counter,
    skip: set[tuple[str, int]],
) -> None:
    where = RolloutContext(stage=job.stage, step=actor.step, phase="evaluate", policy=policy.name, checkpoint=actor.id)
    asyncio.run(
        run_episodes(
            tasks,
            policy,
            horizon=recipe.evaluate.horizon,
            n=recipe.evaluate.attempts,
            concurrency=job.options.concurrency or CONCURRENCY,
            sink=sink,
            user=users_of(recipe, evaluation_gyms(recipe), role="evaluate"),
            context=where,
            seed=job.seed,
            gym_config=gym_config(recipe, evaluation=True),
            on_format_error=recipe.on_format_error,
            prompt_style="native" if actor.native else recipe.model.prompt_style,
            turns_left=recipe.model.turns_left,
            progress=count,
            skip=skip,
        )
    )


CONCURRENCY = 64
"""Default number of parallel conversations."""


def tier_label(gym: str, tier: str) -> str:
    """Name a tier as tables do, such as ``errand depth-3``."""
    return f"{gym} {tier}"


def _in_tiers(played: list[Played]) -> list[Played]:
    """Return the conversations at gyms with more than one tier. With one tier, the gym's row is enough."""
    tiers = Counter(gym for gym, _ in {(conversation.gym, conversation.tier) for conversation in played})
    return [conversation for conversation in played if tiers[conversation.gym] > 1]


def _rows(played: list[Played], label: Callable[[Played], str]) -> dict[str, GymScore]:
    labels = dict.fromkeys(label(conversation) for conversation in played)
    return {row: _row([conversation for conversation in played if label(conversation) == row]) for row in labels}


def _solved(played: list[Played]) -> dict[str, tuple[float, ...]]:
    """Return the share solved within 1, 2 ... horizon turns, by gym, and by tier if there are several.

    An agent that does not see its remaining turns acts the same at every horizon until it ends. So one evaluation at a large
    horizon gives the score at each shorter one.
    """
    labelled = [(conversation.gym, conversation) for conversation in played] + [
        (tier_label(conversation.gym, conversation.tier), conversation) for conversation in _in_tiers(played)
    ]
    admitted: dict[str, list[Played]] = {}
    for label, conversation in labelled:
        if conversation.admitted:
            admitted.setdefault(label, []).append(conversation)
    ends = {
        label: [conversation.turns for conversation in some if conversation.solved] for label, some in admitted.items()
    }
    return {
        label: tuple(sum(end <= turns for end in ends[label]) / len(some) for turns in range(1, some[0].horizon + 1))
        for label, some in admitted.items()
    }


@contextmanager
def _speaks(job: StageJob, actor: Actor) -> Iterator[Callable[[Recipe], Policy | BatchPolicy]]:
    """Provide the actor under a family's recipe while the block runs."""
    if actor.kind == "demonstrator":
        yield demonstrator
    elif actor.kind == "served":
        server = _sampled(job, server_of(actor))
        policy = NativePolicy(server, name=actor.label) if actor.native else OpenAIPolicy(server, name=actor.label)
        yield lambda recipe: policy
    else:
        with checkpoint_speaks(job, actor.path) as speak:
            yield lambda recipe: speak(
                recipe,
                temperature=recipe.evaluate.temperature,
                top_p=recipe.evaluation_top_p,
                seed=job.seed,
                name=actor.label,
            )


def _sampled(job: StageJob, server: ChatServer) -> ChatServer:
    """Return the server with the evaluation's sampling settings and requested concurrency."""
    evaluate, concurrency = job.recipe.evaluate, job.options.concurrency
    sampling = {"temperature": evaluate.temperature, "top_p": evaluate.top_p if evaluate.temperature > 0 else None}
    # The actor's own settings take precedence.
    sampling_changes = {key: value for key, value in sampling.items() if key not in server.model_fields_set}
    return server.model_copy(update={**sampling_changes, **({"concurrency": concurrency} if concurrency else {})})


def _row(played: list[Played]) -> GymScore:
    scored = [
        (conversation, conversation.score)
        for conversation in played
        if conversation.admitted and conversation.score is not None
    ]
    n, scores_by_task = len(scored), defaultdict[str, list[float]](list)
    for conversation, score in scored:
        scores_by_task[conversation.task].append(score)
    reasons = Counter(_reason(conversation.reject_reason) for conversation in played if not conversation.admitted)
    most_frequent = dict(reasons.most_common(TOP_REASONS))
    if n == 0:
        return GymScore(rejected=len(played), reasons=most_frequent)
    return GymScore(
        score=sum(score for _, score in scored) / n,
        stderr=_standard_error([sum(scores) / len(scores) for scores in scores_by_task.values()]),
        turns=sum(conversation.turns for conversation, _ in scored) / n,
        format_errors=sum(conversation.format_error for conversation, _ in scored) / n,
        attempts=n,
        rejected=len(played) - n,
        reasons=most_frequent,
    )


def _standard_error(means: list[float]) -> float | None:
    """Return the standard error of the mean over tasks, None for one task. means: the mean score of each task's attempts."""
    n = len(means)
    if n < 2:
        return None
    mean = sum(means) / n
    error: float = (sum((value - mean) ** 2 for value in means) / (n - 1)) ** 0.5 / n**0.5
    return error


TOP_REASONS, LONGEST_REASON = 3, 200


def _reason(text: str | None) -> str:
    return " ".join((text or "unknown reason").split())[:LONGEST_REASON]
