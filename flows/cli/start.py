"""The program ``userrl``. It starts the SQL process before the imports, so that both run in parallel."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Call the command line. A SQL question is answered in another process, which has its own imports."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # as in every process of ours: `machine.home.QUIET`
    if sys.argv[1:2] == ["sql"]:
        from warehouse.query import sandbox

        sandbox.begin()
    from flows.cli.main import main as command_line

    command_line()
