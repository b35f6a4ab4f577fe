"""``userrl``: the command line. Light to start: every command imports what it needs when it is called."""

from __future__ import annotations

import sys
from importlib import import_module

import typer

from flows.cli.terminal import plain
from userrl_core.errors import UserRLError

app = typer.Typer(
    name="userrl",
    help="Train agents that learn by talking to users. State lies under .userrl/ here, or in $USERRL_HOME.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

COMMANDS = ("report", "evaluate", "doctor", "runs", "recipe", "tasks", "sql", "warehouse", "play", "sweep", "serve")
"""Modules beside this one: each holds a function of its own name, or an ``app`` with several commands."""


def _mount() -> None:
    """Add every command."""
    for name in COMMANDS:
        module = import_module(f"flows.cli.{name}")
        group = getattr(module, "app", None)
        if group is None:
            app.command(name)(getattr(module, name))
            continue
        commands = [command.name or getattr(command.callback, "__name__", "") for command in group.registered_commands]
        # One command of the module's name, or several that begin with it (serve-gym, serve-user): no group between.
        flat = all(command == name or command.startswith(f"{name}-") for command in commands)
        app.add_typer(group, name=None if flat else name)


def main() -> None:
    """Exit status: 0 done, 1 failed (one sentence on stderr), 2 wrong call."""
    try:
        app()
    except UserRLError as error:
        print(f"error: {plain(str(error))}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        sys.exit(1)


_mount()

if __name__ == "__main__":
    main()
