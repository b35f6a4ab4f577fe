"""Conversations whose agent, user and judge are one server that fails in 42 ways.

    python -m tests.userrl_core.served.faulty --conversations 400 --share 0.2 0.3 0.5

Each conversation is also played with a server that never fails. One that was scored in spite of faults must be the same as
there; one that was not scored has no reward for what failed. The ledger in the warehouse must hold as many requests as the server
saw, and no count of tokens that a text of that size cannot have.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mock_server import DemonstratorAgent, MockServer, both, modest_user
from tests.server_faults import FAULTS
from userrl_core.gyms import tasks
from userrl_core.policies.openai import OpenAIPolicy
from userrl_core.records import Task, Trajectory
from userrl_core.rollout import run_episodes
from userrl_core.served.client import ChatServer, close_clients
from warehouse import TurnLog, open_warehouse

GYMS = ("travel", "intention", "persuade", "turtle")
SERVED = ("intention", "persuade", "turtle")
"""Gyms whose user, or judge, is asked over HTTP as well."""
HORIZON = 8
MAX_TOKENS = 200_000
"""More than all attempts of one call here can have."""


@dataclass(frozen=True)
class Outcome:
    """What one share of faults did. wrong: a sentence for each thing that must not be."""

    conversations: int
    requests: int
    injected: Counter[str]
    scored: int
    estimated: int
    wrong: list[str]


def play(conversations: int, share: float, folder: Path, *, timeout: float = 3.0) -> Outcome:
    """Play them against both servers, and compare.

    timeout: of a request, in seconds; a server that hangs gives up after 5. On a busy machine a shorter one may pass before the
    server has read what was sent, and so before it counts.
    """
    chosen = [task for gym in GYMS for task in tasks(gym, "train")[: conversations // len(GYMS)]]
    brain = both(DemonstratorAgent(chosen), modest_user)
    with MockServer(brain) as server:
        expected = {t.task.key: t for t in asyncio.run(_converse(chosen, server, None, 60.0))}
    with (
        MockServer(brain, faults=dict.fromkeys(FAULTS, share / len(FAULTS))) as server,
        TurnLog.open(folder, "faulty") as log,
    ):
        played = asyncio.run(_converse(chosen, server, log, timeout))
        requests, injected = len(server.requests), Counter(server.injected)
    wrong = [sentence for t in played if (sentence := _differs(t, expected[t.task.key]))]
    with open_warehouse(folder) as warehouse:
        question = f"""
            select sum(attempts), count(*) filter (estimated),
                   count(*) filter (prompt_tokens not between 0 and {MAX_TOKENS}
                                    or completion_tokens not between 0 and {MAX_TOKENS} or price < 0),
                   count(*) filter (error is not null and error not like 'HTTP4%' and error not in ('HTTP302', 'Cancelled')
                                    and not (estimated and prompt_tokens > 0))
            from model_calls_all"""
        attempts, estimated, absurd, uncounted = warehouse.sql(question).fetchall()[0]
    if attempts != requests:
        wrong.append(f"the ledger has {attempts} requests, the server saw {requests}")
    if absurd:
        wrong.append(f"{absurd} calls have tokens that cannot be")
    if uncounted:
        wrong.append(f"{uncounted} calls failed after a request was sent, and count none of it")
    return Outcome(len(played), requests, injected, sum(t.admitted for t in played), estimated, wrong)


async def _converse(chosen: list[Task], server: MockServer, log: TurnLog | None, timeout: float) -> list[Trajectory]:
    options = {"base_url": server.base_url, "backoff": 0.001, "retries": 4, "timeout": timeout}
    users: dict[str, Any] = dict.fromkeys(SERVED, ("openai", options))
    try:
        policy = OpenAIPolicy(ChatServer(**options))
        return await run_episodes(chosen, policy, horizon=HORIZON, user=users, sink=log, concurrency=16)
    finally:
        await close_clients()


def _differs(t: Trajectory, expected: Trajectory) -> str:
    """What a fault has changed, "" where it has changed nothing but whether the conversation was scored."""
    if t.admitted:
        same = (t.rewards, t.score, t.stop_reason) == (expected.rewards, expected.score, expected.stop_reason)
        return (
            "" if same else f"{t.task.key}: {t.rewards} {t.stop_reason}, not {expected.rewards} {expected.stop_reason}"
        )
    if t.score is not None or t.return_sum is not None or t.stop_reason != "error":
        return f"{t.task.key}: a score of {t.score} though it was not scored ({t.reject_reason})"
    turns = zip(t.rewards, expected.rewards, strict=False)
    return "" if all(r is None or r == e for r, e in turns) else f"{t.task.key}: {t.rewards}, not {expected.rewards}"


def main() -> int:
    """Play each share; 1 when anything was wrong."""
    parser = argparse.ArgumentParser(description="Play conversations against a server that fails.")
    parser.add_argument("--conversations", type=int, default=400)
    parser.add_argument("--share", type=float, nargs="+", default=[0.2, 0.3, 0.5])
    given = parser.parse_args()
    wrong = 0
    for share in given.share:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            outcome = play(given.conversations, share, Path(folder))
        print(
            f"{share:4.0%}: {outcome.conversations} conversations, {outcome.requests} requests, "
            f"{outcome.injected.total()} faults of {len(outcome.injected)} kinds, {outcome.scored} scored, "
            f"{outcome.estimated} calls estimated, {len(outcome.wrong)} wrong ({time.monotonic() - began:.0f} s)",
            *outcome.wrong[:10],
            sep="\n  ",
        )
        wrong += len(outcome.wrong)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
