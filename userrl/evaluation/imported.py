"""Import of other tools' conversations.

The id of a run is made from the format and the hash of the file. Importing a file again finds the run it has already.
"""

from __future__ import annotations

from pathlib import Path

from analysis.foreign.formats import AUTO, OURS, conversations, recognised
from userrl.machine.hashes import file_hash
from userrl.machine.home import warehouse_dir
from userrl.reports.import_report import ImportedRun, summary
from warehouse.files.layout import run_dir
from warehouse.files.runs import RETIRED
from warehouse.upkeep.exchange.imported import imported_run, store
from warehouse.upkeep.exchange.own_exports import already, bring_in, read_conversations
from warehouse.upkeep.exchange.staging import finish


def import_file(path: Path, *, format: str = AUTO, name: str = "") -> tuple[ImportedRun, ...]:
    """Import a file into this home's warehouse, all of it or nothing.

    Returns one run. Our own exports may hold several, which keep their ids. name: the run's name, by default the file's
    name. Raises ConfigError for a file that cannot be imported.
    """
    format = recognised(path, format)
    root = warehouse_dir()
    finish(root)
    if format == OURS:
        digest = file_hash(path)
        before = already(root, digest)
        counts = bring_in(root, read_conversations(path), digest=digest)
        return tuple(summary(run, again=run in before) for run in counts)
    run_id = f"import-{format}-{file_hash(path)[:12]}"
    again = imported_run(root, run_id) is not None
    (run_dir(root, run_id) / RETIRED).unlink(missing_ok=True)  # importing a deleted run again lists it again
    if not again:
        store(root, run_id, conversations(path, format), format=format, name=name or path.stem)
    return (summary(run_id, again=again),)
