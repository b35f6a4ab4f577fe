"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def run_names(incomplete: str) -> list[str]:
    """Return the runs of this home that begin with a text, newest first, for completion in a shell."""
    from userrl.machine.home import runs_dir

    files = sorted(runs_dir().glob("[!.]*/run.json"), key=lambda file: file.stat().st_mtime, reverse=True)
    return [name for name in ("latest", *(file.parent.name for file in files)) if name.startswith(incomplete)]


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
RunName = Annotated[
    str,
    typer.Argument(help="A run's id or the beginning of it, a run's name, or latest.", autocompletion=run_names),
]
Html = Annotated[
    str | None,
    typer.Option("--html", metavar="FILE", help="Also write one HTML file; FILE.md writes Markdown with its figures."),
]


Host = Annotated[str, typer.Option("--host", help="Address to listen on.")]
Names = Annotated[
    list[str] | None, typer.Option("--name", help="A host name that other machines use for it; may be repeated.")
]


def parse_user(text: str) -> Any:
    """Return a user as a request takes it: a kind, or a mapping with kind and options. Raises ConfigError for broken JSON."""
    return name_or_json(text, 'Give a user as {"kind": ..., "options": {...}}.')


def name_or_json(text: str, remedy: str) -> Any:
    """Return a name as it is, and JSON as `json_object` does."""
    return json_object(text, remedy) if text.startswith("{") else text


def json_object(text: str, remedy: str) -> Any:
    """Return the value of an argument in JSON. Raises ConfigError for broken JSON and for a key that is given twice."""
    from userrl_core.chats.stream import value_of
    from userrl_core.chats.values import BrokenFile
    from userrl_core.errors import ConfigError

    shown = text if len(text) <= 80 else f"{text[:80]}..."
    try:
        return value_of(text.encode(errors="surrogatepass"), shown)
    except BrokenFile as error:
        raise ConfigError("argument.malformed", f"{error.fact} {remedy}") from None
