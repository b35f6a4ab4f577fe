"""A worker for the tests of the fork server: says its words, then ends, fails or waits as its argument asks."""

from __future__ import annotations

import os
import signal
import sys
import time

from userrl_core.fork_server import serve
from userrl_core.processes import die_with_parent


def main(arguments: list[str]) -> int:
    """``--fork-server FD``, or ``wait``, ``raise``, or an exit status."""
    if arguments[0] == "--fork-server":
        serve(int(arguments[1]), main)
        return 0
    die_with_parent()
    print("said by", os.getpid(), "with", os.environ.get("EXTRA"), flush=True)
    if arguments[0] == "wait":
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(600)
    if arguments[0] == "raise":
        raise ValueError("as asked")
    return int(arguments[0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
