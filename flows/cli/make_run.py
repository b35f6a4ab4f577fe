"""What ``make run`` calls: `flows.cli.quickstart`, where Ctrl-C is a sentence also while everything is still being imported."""

from __future__ import annotations

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
    sys.exit(main())
