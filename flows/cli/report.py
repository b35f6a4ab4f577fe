"""``userrl report``: what a run achieved."""

from __future__ import annotations

import json

from flows.cli.arguments import Json, RunName
from flows.cli.terminal import plain


def report(run: RunName = "latest", as_json: Json = False) -> None:
    """Show what a run achieved: demonstrator, SFT and RL side by side on held-out tasks."""
    from flows.run.run import find, read_json
    from userrl_core.errors import ConfigError

    found = find(run)
    summary = read_json(found.folder / "report.json")
    if summary is None:
        raise ConfigError(f"Run {found.id} has no report yet; it is {found.status['state']}.")
    if as_json:
        print(json.dumps(summary, indent=1))
        return
    print(plain((found.folder / "report.md").read_text()), end="")
