"""``userrl.scan``: labels of conversations and turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from userrl.audits.scan import ScanResult


def scan(
    run: str = "latest",
    *,
    name: str,
    with_: Literal["pattern", "function", "judge"] = "pattern",
    on: Literal["conversation", "turn"] = "conversation",
    pattern: str | None = None,
    function: str | None = None,
    rubric: str | None = None,
    model: str = "gpt-4o",
    base_url: str | None = None,
    phase: str = "evaluate",
    progress: bool = True,
) -> ScanResult:
    """Label each conversation or turn of a run, and store the labels in the table ``labels``.

    pattern: a regular expression. function: the name of an entry point in the group ``userrl.scanners``. rubric: the question
    for a judge model, which answers yes or no. A judge's labels are stored one by one, and repeating the call asks only for the
    missing ones. progress: show a judge's progress on stderr. Raises ConfigError with one sentence.
    """
    from userrl.api.progress import ProgressLine
    from userrl.audits.scan import scan_run
    from userrl.machine.home import quiet_process
    from userrl_core.served.client import ChatServer

    quiet_process()
    server = ChatServer(model=model, base_url=base_url) if with_ == "judge" else None
    return scan_run(
        run,
        name=name,
        with_=with_,
        on=on,
        pattern=pattern,
        function=function,
        rubric=rubric,
        server=server,
        phase=phase,
        progress=ProgressLine() if progress else None,
    )
