"""The entry point of ``make run``: `flows.cli.quickstart`, with a clean message for Ctrl-C during imports.

The process ends with ``os._exit``. The interpreter would take up to 2.5 s more (at a load of 20) to unload Prefect's
modules, and everything that was started has ended by then.
"""

from __future__ import annotations

import contextlib
import os
import sys


def main() -> int:
    """Return the run's exit status (0 done, 1 failed), or 130 after Ctrl-C."""
    try:
        from flows.cli.quickstart import main as quickstart
    except KeyboardInterrupt:
        print("\nstopped before anything was started")
        return 130
    return quickstart()


if __name__ == "__main__":
    status = main()
    with contextlib.suppress(OSError):  # the reader of stdout is gone
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)
