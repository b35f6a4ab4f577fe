"""Whether a process lives, asked while it may be ending."""

import psutil


def alive(pid: int) -> bool:
    """Not gone, and not merely waiting to be buried by whoever started it."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
