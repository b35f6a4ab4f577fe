"""A gym served by ``userrl serve-gym``, for clients of other projects."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def served_gym(gym: str) -> Iterator[str]:
    """Serve a gym on a free port, and give its address. Exits if nothing answers within ten minutes."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    command = [sys.executable, "-m", "flows.cli.main", "serve-gym", gym, "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        server.stdout.readline()  # it says that it is about to listen
        try:
            wait_for_port(port)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def wait_for_port(port: int) -> None:
    """Wait until something answers on a port. Exits if nothing does within ten minutes."""
    for _ in range(3000):
        with socket.socket() as probe:
            probe.settimeout(0.2)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    sys.exit(f"Nothing answers on port {port}.")
