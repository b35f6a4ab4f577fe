"""Outages of served users and judges."""

from __future__ import annotations

import time
from collections.abc import Iterable

from userrl_core.errors import TrainingError
from userrl_core.judging.judge import judge_server
from userrl_core.records import Trajectory
from userrl_core.rewards.judge import UNJUDGED
from userrl_core.served.health import served_users, until_it_answers, user_was_down
from userrl_core.training.jobs import RlJob


class Outages:
    """The served users and the judge that did not answer in the last conversations.

    Training waits for them: further conversations would have no score.
    """

    def __init__(self, job: RlJob) -> None:
        self._users = [("user model", server) for server in served_users(job.users)]
        judge = None if job.judge is None else judge_server(job.judge)
        self._judges = [] if judge is None else [("judge of turns", judge)]
        self._patience = job.patience
        self._user_was_down = self._judge_was_down = False

    def notice(self, trajectories: Iterable[Trajectory]) -> None:
        """Look for conversations that ended because their user or judge did not answer."""
        played = list(trajectories)
        self._user_was_down = any(user_was_down(t) for t in played)
        self._judge_was_down = any(t.judgement is not None and t.judgement.category == UNJUDGED for t in played)

    async def wait(self) -> None:
        """Return once all servers that were down answer. Raises TrainingError when the job's patience is over."""
        down = (self._users if self._user_was_down else []) + (self._judges if self._judge_was_down else [])
        deadline = time.monotonic() + self._patience
        for role, server in down:
            if not await until_it_answers(server, deadline):
                raise TrainingError(
                    "model.server_down",
                    f"The {role} {server.model} has not answered for {self._patience:g} s. Restart its "
                    "server and start the same run again. Training continues from its last checkpoint.",
                )
