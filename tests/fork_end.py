"""The end of a forked process of tests: what an interpreter does at its own end."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn


def end_after(work: Callable[[], None], tell: Callable[[int], None] = lambda code: None) -> NoReturn:
    """Do the work, and end this process with the status of an interpreter that did it. tell: called with the status."""
    code = 1
    try:
        work()
        code = 0
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # what an interpreter does with what nobody caught
        traceback.print_exc()
    finally:
        try:
            threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as at the end of an interpreter
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            try:
                tell(code)
            finally:
                os._exit(code)
