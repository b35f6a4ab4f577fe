"""The program ``userrl``: what can go on beside the imports is begun before them."""

from __future__ import annotations

import sys


def main() -> None:
    """Call the command line. A question in SQL is answered in another process, which has imports of its own."""
    if sys.argv[1:2] == ["sql"]:
        from warehouse.query import sandbox

        sandbox.begin()
    from flows.cli.main import main as command_line

    command_line()
