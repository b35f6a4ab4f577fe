"""``userrl``: the command line. A command's module is imported only when the command is called.

Help is plain text (``rich_markup_mode=None``), because importing rich takes as long as everything else.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from flows.cli.options import refuse_unread
from userrl_core.errors import UserRLError

COMMANDS = {
    "train": ("training.train", "Train a recipe in this terminal."),
    "report": ("looking.report", "Show a run's results: demonstrator, SFT and RL side by side on held-out tasks."),
    "evaluate": (
        "measuring.evaluate",
        "Evaluate a checkpoint, a served model or the demonstrator on held-out tasks or a suite.",
    ),
    "compare": ("measuring.compare", "Compare B, C ... with A: runs over their tasks, recipes over their seeds."),
    "reproduce": ("measuring.reproduce", "Run the arms of a claim on this machine, as child processes."),
    "cross-play": (
        "measuring.cross_play",
        "Train one agent per population of users, and evaluate each on every population.",
    ),
    "plan-study": (
        "measuring.plan_study",
        "Print runs, CPU- and GPU-hours, tokens, storage and the critical path of studies.",
    ),
    "protocol": ("measuring.protocol", "Show what an evaluation was played with, and what differs from another."),
    "reverify": ("measuring.reverify", "Score stored conversations again under another judge or changed rules."),
    "scan": ("measuring.scan", "Label conversations or turns by a pattern, an installed function or a judge model."),
    "audit": (
        "measuring.audit",
        "Audit the training signal and the users: credit rules, turn judges, simulated users.",
    ),
    "doctor": (
        "doctor",
        "Check packages, server, work pool, limits, disk, GPU, user model and warehouse, and say how to fix each problem.",
    ),
    "play": ("looking.play", "Play one task in the terminal, as the agent or as the user."),
    "show": ("looking.show", "Print one conversation with the reward, shaped credit, advantage and cost of each turn."),
    "branch": (
        "looking.branch",
        "Continue a stored conversation from one turn several times, with new random draws or another reply.",
    ),
    "view": ("looking.view", "Show runs, conversations and groups in a browser until Ctrl-C, also while runs write."),
    "bundle": ("looking.bundle", "Write a static copy of a run's page: report, widest groups and fifty conversations."),
    "runs": ("runs", "Runs of this home: list, show, stop, delete."),
    "checkpoints": (
        "looking.checkpoints",
        "List a run's checkpoints on disk: step, validation score, size, whether transformers loads them, and path.",
    ),
    "plot": ("looking.plot", "Draw training and validation scores by step."),
    "push": ("looking.push", "Push a checkpoint to the Hugging Face hub, with a model card made from the report."),
    "recipe": ("training.recipe", "Show recipes and profiles."),
    "tasks": ("tasks", "List, check, generate and import tasks."),
    "model": ("models", "Fetch pretrained models, and list them."),
    "import": ("looking.imports", "Import conversations of another tool as a run of kind imported."),
    "sql": ("looking.sql", "Run one SQL query."),
    "warehouse": ("warehouse", "Compact, check and export the warehouse."),
    "up": (
        "up",
        "Start the Prefect server with a worker and all deployments until Ctrl-C, and show the flow runs of the worker.",
    ),
    "server": ("server", "Start the Prefect server of this home until Ctrl-C."),
    "deploy": ("deployments.deploy", "Register the deployments of prefect.yaml on the server, a line each."),
    "start": (
        "deployments.launch",
        "Start a deployment on the running server and show its stages, steps and scores until it ends.",
    ),
    "sweep": ("training.sweep", "Sweeps: run, status, best recipe, report."),
    "schedule": ("deployments.schedule", "Schedules of deployments: list, on, off."),
    "serve-user": ("serve", "Serve a model as simulated user until Ctrl-C."),
    "serve-model": ("serve", "Serve a model over OpenAI's protocol from our own decoder, until Ctrl-C."),
    "serve-gym": (
        "serve",
        "Serve a gym over HTTP until Ctrl-C, with AgentGym's routes (create, reset, step, observation, close) and OpenEnv's.",
    ),
    "serve-tools": ("serve", "Serve a domain's tools as REST routes and MCP tools until Ctrl-C."),
}
"""The module of each command under this folder, and the line on it in the help text: its `first_sentence`, which is repeated
here so that the help text imports no command. The module holds a function of the command's name, or an ``app``.
"""


FULL = (errno.ENOSPC, errno.EDQUOT)
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, *FULL)
"""Error numbers that a person can act on: permissions, a read-only or full disk."""


class Commands(TyperGroup):
    """A command group that knows all names and imports a command when it is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = dict.fromkeys(COMMANDS)  # typer looks for "did you mean" among these

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options before the command."""
        _ungiven_is_false(self, ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command. An error of ours ends it with one sentence and exit status 1."""
        try:
            return super().invoke(ctx)
        except UserRLError as error:
            from flows.cli.terminal import error_line

            print(error_line(error), file=sys.stderr)
            raise typer.Exit(1) from None

    def list_commands(self, ctx: Any) -> list[str]:
        """Return every command, in the order of the help text."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of this name, or None."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"flows.cli.{COMMANDS[cmd_name][0]}")
        group = getattr(module, "app", None)
        if group is None:
            group = typer.Typer(add_completion=False)
            group.command(cmd_name)(getattr(module, cmd_name, None) or getattr(module, f"{cmd_name}_"))
        group.rich_markup_mode = None
        command = get_command(group)
        inner = command.commands.get(cmd_name, command) if isinstance(command, TyperGroup) else command
        inner.name = cmd_name
        commands = inner.commands.values() if isinstance(inner, TyperGroup) else ()
        for below in commands:
            below.short_help = first_sentence(below.help)  # otherwise cut at the end of the line
        for nested in (inner, *commands) if ctx is not None else ():
            _ungiven_is_false(nested, ctx)
            refuse_unread(nested)
        return inner

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


def _ungiven_is_false(command: Any, ctx: Any) -> None:
    """Set the default of --help and the options of completion: typer imports pydantic to make a bool of None."""
    for option in command.get_params(ctx):
        if option.default is None and not option.expose_value:
            option.default = False


def first_sentence(help_text: str | None) -> str:
    """Return what a list of commands says about one."""
    return re.split(r"(?<=[^.][.?!])\s", " ".join((help_text or "").split()), maxsplit=1)[0]


app = typer.Typer(
    name="userrl",
    help="Train agents that learn by talking to users. Runs and data are stored in .userrl/ here, or in $USERRL_HOME.",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(requested: bool) -> None:
    if requested:
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
    if isinstance(sys.stdout, io.TextIOWrapper) and codecs.lookup(sys.stdout.encoding).name != "utf-8":
        # Such a terminal lacks the lines and dashes of tables.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except UnicodeEncodeError as error:
        print(
            f"error: {ascii(error.object)[:200]} is not text in UTF-8. Write it in UTF-8. [argument.malformed]",
            file=sys.stderr,
        )
        sys.exit(1)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        file = None if error.filename is None else Path(str(error.filename))
        typed = file is not None and not _in_home(file) and any(file.name in word for word in sys.argv[1:])
        if error.errno not in REFUSED and not typed:
            raise  # a fault of ours, not of a path that was given
        from flows.cli.terminal import plain

        name = plain(str(error.filename2 or error.filename or "the home")[:200])
        if typed and error.errno not in FULL:
            print(f"error: {name}: {error.strerror}. Give another path. [file.unreadable]", file=sys.stderr)
            sys.exit(1)
        remedy = "Free space" if error.errno in FULL else "Make it writable"
        print(
            f"error: {name}: {error.strerror}. {remedy}, or set USERRL_HOME to another folder. [file.not_writable]",
            file=sys.stderr,
        )
        sys.exit(1)


def _in_home(path: Path) -> bool:
    """Return whether a path is below the home, whose remedy is another home and not another path."""
    return path.absolute().is_relative_to(Path(os.environ.get("USERRL_HOME") or ".userrl").absolute())


if __name__ == "__main__":
    main()
