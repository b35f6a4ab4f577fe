"""While a served user is down, training pauses: attempts wait for it instead of being scored with nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from userrl_core.errors import ConfigError, UserRLError
from userrl_core.records import Trajectory
from userrl_core.served.client import ChatServer, client_for

PROBE_TIMEOUT = 60.0
PAUSE = 5.0


def served_user(users: Any, gym: str) -> ChatServer | None:
    """The server that plays the user of a gym; None for rule users."""
    user = users.get(gym, "rule") if isinstance(users, Mapping) else users
    if isinstance(user, str):
        return ChatServer() if user == "openai" else None
    kind, options = user
    if kind != "openai":
        return None
    known = {key: value for key, value in options.items() if key in ChatServer.model_fields}
    return ChatServer(**known)


def served_users(users: Any) -> set[ChatServer]:
    """All servers that play users in a stage."""
    gyms = list(users) if isinstance(users, Mapping) else [""]
    return {server for server in (served_user(users, gym) for gym in gyms) if server is not None}


def user_was_down(trajectory: Trajectory) -> bool:
    """Whether an attempt could not be scored because its user or judge gave no answer."""
    reason = trajectory.reject_reason or ""
    return not trajectory.admitted and reason.startswith(("user:", "judge:"))


def check_users(users: Any, tries: int = 3) -> None:
    """Probe every served user, a few times since one answer may be lost. Raises ConfigError for one that gives none."""
    for server in served_users(users):
        for attempt in range(1, tries + 1):
            try:
                asyncio.run(probe(server))
                break
            except ConfigError:
                if attempt == tries:
                    raise


async def probe(server: ChatServer) -> None:
    """One short exchange. Raises ConfigError when the server gives no answer."""
    brief = server.model_copy(update={"retries": 0, "timeout": PROBE_TIMEOUT, "max_tokens": 16, "concurrency": 1})
    try:
        # As a policy: any words show that the server lives, also a thought that these few tokens do not finish.
        await client_for(brief).complete([{"role": "user", "content": "Answer with ok."}], role="policy", ledger=[])
    except UserRLError as error:
        place = server.base_url or "its default address"
        raise ConfigError(
            f"The user model {server.model} at {place} does not answer ({error}); start it with 'userrl serve-user' first."
        ) from error


async def until_it_answers(server: ChatServer, deadline: float) -> bool:
    """Wait for the server; True once it answers, False when ``deadline`` (monotonic seconds) passes first."""
    while time.monotonic() < deadline:
        try:
            await probe(server)
        except ConfigError:
            await asyncio.sleep(min(PAUSE, max(deadline - time.monotonic(), 0.0)))
        else:
            return True
    return False
