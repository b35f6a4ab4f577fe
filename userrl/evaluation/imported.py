"""Import of other tools' conversations.

The id of a run is made from the format and the hash of the file. Importing a file again finds the run it has already.
"""

from __future__ import annotations

import os
from pathlib import Path

from analysis.foreign.formats import AUTO, OURS, conversations, recognised
from userrl.machine.hashes import file_hash
from userrl.machine.home import warehouse_dir
from userrl.reports import people_report
from userrl.reports.import_report import ImportedRun, summary
from userrl.run.keys import refuse_unstorable
from userrl_core.errors import ConfigError
from warehouse.files.layout import run_dir
from warehouse.files.runs import RETIRED
from warehouse.upkeep.exchange.imported import imported_run, store
from warehouse.upkeep.exchange.own_exports import already, bring_in, read_conversations
from warehouse.upkeep.exchange.staging import finish

RESERVED = ("latest", people_report.RUN, "demonstrator")
"""Names that mean something else where a run is named."""


def import_logs(path: str | Path, *, format: str = AUTO, name: str = "") -> tuple[ImportedRun, ...]:
    """Import the conversations of a file as a run of this home, all of them or none.

    format: auto, tau2, tau-bench, inspect, verifiers, nemo-gym, openai-chat, sharegpt or userrl. name: the run's name, by
    default the file's name, in which U+FFFD replaces what is no UTF-8. Importing the same file again changes nothing. Our
    own exports may hold several runs, which keep their ids. Raises ConfigError with the place of the first problem.
    """
    path = Path(path)
    format = recognised(path, format)
    root = warehouse_dir()
    finish(root)
    if format == OURS:
        if name:
            raise ConfigError(
                "argument.conflict", "The runs of an export of userrl keep their names. Leave out --name."
            )
        digest = file_hash(path)
        before = already(root, digest)
        counts = bring_in(root, read_conversations(path), digest=digest)
        return tuple(summary(run, again=run in before) for run in counts)
    run_id = f"import-{format}-{file_hash(path)[:12]}"
    again = imported_run(root, run_id) is not None
    (run_dir(root, run_id) / RETIRED).unlink(missing_ok=True)  # importing a deleted run again lists it again
    if not again:
        name = name or " ".join(os.fsencode(path.stem).decode(errors="replace").split())
        refuse_unstorable(name, "name")
        if name in RESERVED:
            raise ConfigError(
                "argument.conflict", f"'{name}' names no single import in other commands. Give it another --name."
            )
        store(root, run_id, conversations(path, format), format=format, name=name)
    return (summary(run_id, again=again),)
