"""How long a turn may take follows from how long its user may take."""

from __future__ import annotations

from userrl_core.served.health import turn_seconds


def test_a_turn_has_four_times_the_time_of_the_slowest_users_reply() -> None:
    slow = ("openai", {"model": "m", "timeout": 300, "strategy": "react"})
    assert turn_seconds("rule") == 120
    assert turn_seconds(("openai", {"model": "m", "timeout": 5})) == 120
    assert turn_seconds({"tau": slow, "wish": "rule"}) == 1200
