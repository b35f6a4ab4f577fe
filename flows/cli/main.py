"""``userrl``: the command line. A command's module is imported only when the command is called."""

from __future__ import annotations

import errno
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from flows.cli.terminal import error_line, plain
from userrl_core.errors import UserRLError

COMMANDS = {
    "train": "training.train",
    "report": "looking.report",
    "evaluate": "measuring.evaluate",
    "compare": "measuring.compare",
    "reproduce": "measuring.reproduce",
    "cross-play": "measuring.cross_play",
    "plan-study": "measuring.plan_study",
    "reverify": "measuring.reverify",
    "scan": "measuring.scan",
    "audit": "measuring.audit",
    "doctor": "doctor",
    "play": "looking.play",
    "show": "looking.show",
    "branch": "looking.branch",
    "view": "looking.view",
    "bundle": "looking.bundle",
    "runs": "runs",
    "checkpoints": "looking.checkpoints",
    "plot": "looking.plot",
    "push": "looking.push",
    "recipe": "training.recipe",
    "tasks": "tasks",
    "model": "models",
    "import": "looking.imports",
    "sql": "looking.sql",
    "warehouse": "warehouse",
    "server": "server",
    "sweep": "training.sweep",
    "schedule": "schedule",
    "serve-user": "serve",
    "serve-model": "serve",
    "serve-gym": "serve",
    "serve-tools": "serve",
}
"""The module of each command under this folder. It holds a function of the command's name, or an ``app``."""


REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC)
"""Error numbers that a person can act on: permissions, a read-only or full disk."""


class Commands(TyperGroup):
    """A command group that knows all names and imports a command when it is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = dict.fromkeys(COMMANDS)  # typer looks for "did you mean" among these

    def list_commands(self, ctx: Any) -> list[str]:
        """Return every command, in the order of the help text."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of this name, or None."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"flows.cli.{COMMANDS[cmd_name]}")
        group = getattr(module, "app", None)
        if group is None:
            group = typer.Typer(add_completion=False)
            group.command(cmd_name)(getattr(module, cmd_name, None) or getattr(module, f"{cmd_name}_"))
        command = get_command(group)
        inner = command.commands.get(cmd_name, command) if isinstance(command, TyperGroup) else command
        inner.name = cmd_name
        return inner


app = typer.Typer(
    name="userrl",
    help="Train agents that learn by talking to users. Runs and data are stored in .userrl/ here, or in $USERRL_HOME.",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        from userrl.machine.code_version import code_version

        commit = code_version()
        print(f"userrl {version('userrl')}" + (f" (commit {commit})" if commit else ""))
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None: ...


def main() -> None:
    """Run the command line. Exit status: 0 done, 1 failed (one sentence on stderr), 2 wrong call.

    `userrl compare --policy` also returns 3 (FAIL) and 4 (INCONCLUSIVE).
    """
    try:
        app()
    except UserRLError as error:
        print(error_line(error), file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        print(
            f"error: {plain(str(error.filename))}: {error.strerror}. Make it writable, or set USERRL_HOME to "
            "another folder. [file.not_writable]",
            file=sys.stderr,
        )
        sys.exit(1)


if __name__ == "__main__":
    main()
