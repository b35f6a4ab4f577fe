"""Availability of served users: while one is down, training waits instead of playing trajectories without a score."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from userrl_core.errors import ConfigError, UserRLError
from userrl_core.records import Trajectory
from userrl_core.served.client import ChatServer, client_for, shown_address

PROBE_TIMEOUT = 60.0
"""Seconds that a server may take for a probe, or its own time-out where that is longer."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds between two probes; doubles from the first to the longest."""


def served_user(users: Any, gym: str) -> ChatServer | None:
    """Return the server of a gym's user; None for other users."""
    user = users.get(gym, "rule") if isinstance(users, Mapping) else users
    if isinstance(user, str):
        return ChatServer() if user == "openai" else None
    if not isinstance(user, (tuple, list)) or user[0] != "openai":  # None is the rule user, and an object plays itself
        return None
    with suppress(ValidationError):  # whoever makes the user says what is wrong with its options
        return ChatServer(**{key: value for key, value in user[1].items() if key in ChatServer.model_fields})
    return None


def served_users(users: Any) -> set[ChatServer]:
    """Return the servers of all users of a stage."""
    gyms = list(users) if isinstance(users, Mapping) else [""]
    return {server for server in (served_user(users, gym) for gym in gyms) if server is not None}


def turn_seconds(users: Any, agent: ChatServer | None = None) -> float:
    """Return the maximum seconds of one turn: four times as long as the slowest of users and served agent may take to reply."""
    return 4 * max(server.timeout for server in (agent or ChatServer(), ChatServer(), *served_users(users)))


def user_was_down(trajectory: Trajectory) -> bool:
    """Return True if the trajectory was rejected because its user or judge gave no usable reply."""
    reason = trajectory.reject_reason or ""
    return not trajectory.admitted and reason.startswith(("user:", "judge:"))


def check_users(users: Any) -> None:
    """Probe every served user, several times because one answer may be lost. Raises ConfigError for one that is down."""
    for server in served_users(users):
        check_server(server, "user model")


def check_server(server: ChatServer, role: str, tries: int = 3) -> None:
    """Probe a server. role: as named in the error message. Raises ConfigError for a server that is down, or without a key."""
    for attempt in range(1, tries + 1):
        # Only the first try takes as long as a slow server may need: one that never answers is noticed after it.
        probed = server if attempt == 1 else server.model_copy(update={"timeout": PROBE_TIMEOUT})
        try:
            asyncio.run(probe(probed, role))
            return
        except ConfigError:
            if attempt == tries:
                raise


async def probe(server: ChatServer, role: str = "user model") -> None:
    """Send one short request. Raises ConfigError when the server does not answer."""
    single_attempt = server.model_copy(
        update={
            "retries": 0,
            "timeout": max(PROBE_TIMEOUT, server.timeout),
            "max_tokens": 16,
            "concurrency": 1,
        }
    )
    try:
        # In the role of a policy: any text will do, including reasoning that is cut at these few tokens.
        await client_for(single_attempt).complete(
            [{"role": "user", "content": "Answer with ok."}], role="policy", ledger=[]
        )
    except UserRLError as error:
        address = shown_address(server.base_url) if server.base_url else "its default address"
        start = (
            "Start it with 'userrl serve-user' first" if role == "user model" else "Start it, or correct its address"
        )
        key = f"Check the key in {server.api_key_env}"
        refusals = {"HTTP 401": key, "HTTP 403": key, "HTTP 404": "Check the model's name and the address"}
        remedy = next((text for status, text in refusals.items() if status in str(error)), None)
        raise ConfigError(
            "model.server_down",
            f"The {role} {server.model} at {address} {'does not answer' if remedy is None else 'refuses a request'} "
            f"({error}). {remedy or start}.",
        ) from error


async def until_it_answers(server: ChatServer, deadline: float) -> bool:
    """Wait for the server. Return True once it answers, False when ``deadline`` (monotonic seconds) passes first."""
    pause = FIRST_PAUSE
    while time.monotonic() < deadline:
        try:
            await probe(server)
        except ConfigError:
            await asyncio.sleep(min(pause, max(deadline - time.monotonic(), 0.0)))
            pause = min(2 * pause, LONGEST_PAUSE)
        else:
            return True
    return False
