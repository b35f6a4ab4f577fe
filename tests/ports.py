"""Ports for servers that have to be told theirs before they start."""

from __future__ import annotations

import random
import socket

_OURS = range(20_000, 30_000)
"""Below what Linux hands out by itself (32768 and up) and above Ray's workers: between the look and the server's own start
nobody is given such a port by chance, neither another test's server nor the near end of a connection."""


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    draw = random.SystemRandom()  # not the global generator, which some tests watch
    for port in draw.sample(_OURS, 200):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"No port from {_OURS.start} to {_OURS.stop - 1} is free.")
