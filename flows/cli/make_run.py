"""What ``make run`` calls: `flows.cli.quickstart`, where Ctrl-C is a sentence also while everything is still being imported.

It ends at once: when the interpreter takes down all that Prefect has imported, whoever pressed Ctrl-C waits up to 2.5 s more for
nothing (at a load of 20), for everything that was started has ended by then.
"""

from __future__ import annotations

import contextlib
import os
import sys


def main() -> int:
    """Exit status: the run's (0 done, 1 failed), 130 after Ctrl-C."""
    try:
        from flows.cli.quickstart import main as quickstart
    except KeyboardInterrupt:
        print("\nstopped before anything was started")
        return 130
    return quickstart()


if __name__ == "__main__":
    status = main()
    with contextlib.suppress(OSError):  # nobody reads any more
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)
