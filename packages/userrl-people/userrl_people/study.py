"""People as users and as agents (UserRL appendix F and table 5): tasks are handed out evenly, and every answer is kept.

A conversation with a person is logged like any other: turns, trajectory, seconds of each answer. An event ``person`` adds
consent, pseudonym, rating and comment. Afterwards the simulated user plays the same task against the same other side (or
the scripted agent, if the person was the agent). So the two can be compared on the same tasks, with the query
``people_beside_simulated``.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from userrl.reports.people_report import RUN
from userrl_core.episode import Episode, EpisodeRules
from userrl_core.errors import ConfigError, PolicyError
from userrl_core.gyms import make
from userrl_core.gyms.human_user import Console
from userrl_core.policies.base import BatchPolicy, Policy
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import RolloutContext, Task, Trajectory, Turn
from userrl_core.rollout import run_episodes
from userrl_core.seeding import derive_seed
from userrl_core.served.client import close_clients
from userrl_people.apart import PlayerProcess
from userrl_people.human_policy import HumanPolicy
from userrl_people.others import DEMONSTRATOR_SKILL, Other, Side, check_side
from warehouse import TurnLog, Warehouse, open_warehouse
from warehouse.files.runs import retire_run

PERSON = "human"
"""A person's policy name and user name."""

PATIENCE = 86_400.0
"""Seconds that a person may think: in effect unlimited."""

AfterTurn = Callable[[Turn, Trajectory, bool], None]
"""Called with each turn, the conversation so far, and whether the turn was the last."""

HANDED_OUT = """
SELECT task_id, count(*) AS n, count(*) FILTER (list_contains($own, traj_id)) AS own FROM trajectories
WHERE run_id = $run AND gym = $gym AND (CASE WHEN $side = 'agent' THEN policy ELSE user_name END) = 'human'
      AND (CASE WHEN $side = 'agent' THEN user_name ELSE policy END) = $other AND admitted
GROUP BY task_id
"""


@dataclass(frozen=True, slots=True)
class ConversationSetup:
    """One conversation to hold. side: the person's part. horizon: maximum number of turns, unless the other side sets it."""

    task: Task
    side: Side
    other: Other
    horizon: int = 16
    seed: int = 0

    @property
    def turns(self) -> int:
        """The maximum number of turns."""
        return self.other.horizon or self.horizon

    @property
    def other_name(self) -> str:
        """The other side's name in the warehouse."""
        return self.other.user_name if self.side == "agent" else self.other.policy_name


class Study:
    """A study that hands out tasks and holds conversations. It is thread-safe, and writes nothing before the first
    conversation.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._handing_out = threading.Lock()
        """Held while a task is chosen, and while a finished conversation is being stored."""
        self._log: TurnLog | None = None
        self._warehouse: Warehouse | None = None
        self._open: Counter[tuple[str, Side, str, str]] = Counter()
        self._own: dict[str, list[int]] = {}
        self._players: list[PlayerProcess] = []
        """Checkpoints that currently play the agent."""

    def hand_out(self, gym: str, side: Side, other: Other, *, split: str = "test", person: str = "") -> Task:
        """Return the task that this person, and then all people, have had least often in this part with this other side.

        The task counts as handed out until `hold` ends, so people who start together get different tasks. Raises
        ConfigError for a gym or split without tasks, and for a part that people cannot play.
        """
        check_side(gym, side)
        candidates = other.tasks(gym, split)
        if not candidates:
            raise ConfigError("task.none_left", f"Gym '{gym}' has no {split} tasks. Try another --split.")
        name = other.user_name if side == "agent" else other.policy_name
        with self._handing_out:
            counts = self._counts(gym, side, name, person)
            task = min(
                candidates,
                key=lambda t: (
                    counts.get(t.id, (0, 0))[1],
                    counts.get(t.id, (0, 0))[0] + self._open[gym, side, name, t.id],
                    derive_seed("people", gym, t.id),
                ),
            )
            self._open[gym, side, name, task.id] += 1
        return task

    def hold(
        self,
        setup: ConversationSetup,
        console: Console,
        *,
        person: str = "",
        after_turn: AfterTurn = lambda turn, so_far, last: None,
    ) -> Trajectory:
        """Hold the conversation, log it, and play its simulated counterpart. Blocks until the person has finished or left.

        Raises ConfigError if the other side is unavailable. If its process dies, the conversation ends without a score.
        """
        with contextlib.ExitStack() as stack:
            try:
                check_side(setup.task.gym, setup.side)
                agent = HumanPolicy(console) if setup.side == "agent" else stack.enter_context(self._met(setup.other))
                trajectory, log = self._hold(setup, agent, console, after_turn)
            except BaseException:
                with self._handing_out:
                    self._end(setup)
                raise
            with self._handing_out:  # a choice of task must see this conversation as open or stored, never as neither
                if trajectory.admitted:
                    self._own.setdefault(person, []).append(trajectory.traj_id or 0)
                try:
                    log.flush()
                finally:
                    self._end(setup)
            if trajectory.admitted and setup.other.free:
                self._play_counterpart(
                    setup, agent if setup.side == "user" else ScriptedPolicy(DEMONSTRATOR_SKILL), log
                )
                log.flush()
        return trajectory

    def tell(self, trajectory: Trajectory, **fields: Any) -> None:
        """Store a person's data for a conversation: person, side, consent, rating, comment."""
        self._opened().event("person", stage=trajectory.context.stage, traj_id=trajectory.traj_id, **fields)

    def note(self, kind: str, **fields: Any) -> None:
        """Store an event about a person or a study, on disk on return."""
        log = self._opened()
        log.event(kind, stage="play", **fields)
        log.flush()

    def stop(self) -> None:
        """End the processes that play the agent. Their conversations end without a score, and keep their turns."""
        with self._lock:
            players = list(self._players)
        for player in players:
            player.stop("the page was closed")

    def close(self) -> None:
        """Seal the log."""
        with self._lock:
            if self._log is not None:
                self._log.close()
            if self._warehouse is not None:
                self._warehouse.close()
            self._log = self._warehouse = None

    @contextlib.contextmanager
    def _met(self, other: Other) -> Iterator[Policy | BatchPolicy]:
        """Yield the other side as the agent. A separate process ends with the conversation."""
        policy = other.policy()
        if not isinstance(policy, PlayerProcess):
            yield policy
            return
        with self._lock:
            self._players.append(policy)
        try:
            yield policy
        finally:
            with self._lock:
                self._players.remove(policy)
            policy.close()

    def _hold(
        self, setup: ConversationSetup, policy: Policy | BatchPolicy, console: Console, after_turn: AfterTurn
    ) -> tuple[Trajectory, TurnLog]:
        """Return the conversation, and the log that holds it unflushed."""
        gym = setup.task.gym
        user = (PERSON, {"console": console}) if setup.side == "user" else setup.other.user()
        log = self._opened()
        log.tasks([setup.task])
        episode = Episode(
            make(gym, setup.task, user, **setup.other.options(gym)),
            EpisodeRules(setup.turns, "continue", PATIENCE, setup.other.prompt_style, setup.other.turns_left),
            seed=derive_seed("play", setup.seed),
            context=_context(policy, setup),
            group=f"{setup.side}/{setup.task.key}",
            user=PERSON if setup.side == "user" else setup.other.user_name,
            sink=log,
        )
        try:
            asyncio.run(_play(episode, policy, after_turn))
        except BaseException:  # also Ctrl-C: a started conversation must not look as if it were in progress
            if episode.trajectory.traj_id is not None:
                episode.fail(PolicyError("people.left", "the conversation was stopped"))
                log.flush()
            raise
        return episode.trajectory, log

    def _end(self, setup: ConversationSetup) -> None:
        """Stop counting the conversation as open. The caller must hold the lock for handing out."""
        key = setup.task.gym, setup.side, setup.other_name, setup.task.id
        self._open[key] = max(0, self._open[key] - 1)

    def _opened(self) -> TurnLog:
        with self._lock:
            if self._log is None:
                self._log = TurnLog.open(self._root, RUN, run_fields={"name": RUN, "recipe": RUN})
                retire_run(self._root, RUN)  # `latest` means the newest experiment, never this run
            return self._log

    def _counts(self, gym: str, side: Side, other: str, person: str) -> dict[str, tuple[int, int]]:
        """Count the conversations of each task, and how many of them this person had."""
        if not self._root.is_dir():
            return {}
        with self._lock:
            warehouse = self._warehouse = self._warehouse or open_warehouse(self._root)
        person_events = warehouse.rows(
            "SELECT (fields->>'traj_id')::BIGINT AS id FROM events WHERE run_id = $run AND kind = 'person' "
            "AND fields->>'person' = $person AND $person <> ''",
            run=RUN,
            person=person,
        )
        own_ids = [*(row["id"] for row in person_events), *self._own.get(person, [])]
        rows = warehouse.rows(HANDED_OUT, run=RUN, gym=gym, side=side, other=other, own=own_ids)
        return {row["task_id"]: (row["n"], row["own"]) for row in rows}

    def _play_counterpart(self, setup: ConversationSetup, policy: Policy | BatchPolicy, log: TurnLog) -> None:
        asyncio.run(
            run_episodes(
                [setup.task],
                policy,
                horizon=setup.turns,
                sink=log,
                user="rule",
                context=_context(policy, setup),
                seed=setup.seed,
                gym_config={setup.task.gym: setup.other.options(setup.task.gym)},
                on_format_error="continue",
                prompt_style=setup.other.prompt_style,
                turns_left=setup.other.turns_left,
            )
        )


def _context(policy: Policy | BatchPolicy, setup: ConversationSetup) -> RolloutContext:
    checkpoint = setup.other.checkpoint if setup.side == "user" else None
    return RolloutContext(stage="play", phase="play", policy=policy.name, checkpoint=checkpoint)


async def _play(episode: Episode, policy: Policy | BatchPolicy, after_turn: AfterTurn) -> None:
    try:
        if isinstance(policy, BatchPolicy):
            await policy.play([episode])
            return
        messages = episode.start()
        session = policy.session(episode.gym, derive_seed("policy", episode.trajectory.seed))
        while messages:
            began = time.perf_counter()
            try:
                reply = await session.act(messages)
            except PolicyError as error:
                episode.fail(error)
                break
            messages = await episode.submit(reply, time.perf_counter() - began)
            after_turn(episode.trajectory.turns[-1], episode.trajectory, not messages)
    finally:
        await episode.gym.aclose()
        await close_clients()
