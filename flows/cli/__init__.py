"""The command line."""

import sys
from types import TracebackType


def _without_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        print("\nstopped", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


# Here, because Ctrl-C may come while the command's modules are imported, before any function of theirs runs.
sys.excepthook = _without_traceback
