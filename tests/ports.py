"""Free ports for servers that need a fixed one before they start."""

from __future__ import annotations

import random
import socket

_OURS = range(20_000, 30_000)
"""Below the ephemeral ports of Linux (32768 and up) and above those of Ray's workers: between this check and the start of the
server no other process is assigned such a port by chance."""


def free_port() -> int:
    """A port of the loopback interface on which nobody listens."""
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
