"""A static copy of a run's page: its report, the widest groups, and conversations drawn by seed. It needs no server.

Pages contain no script, load nothing, and link to each other by relative addresses. A conversation with a person, or of a
task that is not our own, is left out unless it is asked for.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from userrl.machine.output_files import writing
from userrl.reports import run_summary
from userrl.reports.document import Block, Document, Folded, Heading, Inline, Link, TableBlock, Text
from userrl.reports.import_report import ImportedRun, import_document
from userrl.reports.run_document import run_document
from userrl.reports.run_report import RunReport
from userrl.reports.wording import attempt, outcome
from userrl_core.errors import ConfigError
from userrl_core.json_files import read_json, write_json
from userrl_core.number_format import number
from userrl_core.replaced_file import write_text
from userrl_sharing.conversation_document import (
    conversation_document,
    conversation_title,
    group_document,
    page_link,
)
from warehouse import Warehouse
from warehouse.query import browse
from warehouse.query.browse import StoredConversation

DRAWN = 50
"""Conversations drawn by seed."""
GROUPS = 10
"""Groups with the largest differences in score."""
MAX_MEMBERS = 16
"""Conversations of one group."""
MAX_BYTES = 20_000_000
"""Bytes of a bundle. A conversation that would exceed it is left out."""
INDEX_BYTES = 2_000_000
"""Bytes kept free for the page with the report."""
CONTENTS = "bundle.json"
"""The list of a bundle's files. It tells a bundle from any other folder."""
UNFINISHED = f".{CONTENTS}.*.tmp"
"""The list that a killed process was writing."""
INDEX = "index.html"

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shared:
    """Permission to share conversations of people who consented, and conversations of imported tasks."""

    people: bool = False
    imported: bool = False

    @property
    def condition(self) -> str:
        """SQL that keeps the trajectories that may be shared. A null source counts as imported."""
        simulated = "coalesce(policy, '') <> 'human' AND coalesce(user_name, '') <> 'human'"
        people = f"({simulated} OR traj_id IN (FROM consented()))" if self.people else simulated
        return people if self.imported else f"{people} AND source IS NOT DISTINCT FROM 'ours'"


@dataclass(slots=True)
class BundleFiles:
    """The files of a bundle by name, with their total size."""

    pages: dict[str, str] = field(default_factory=dict)
    size: int = 0
    left_out: int = 0
    """Conversations that did not fit."""

    def add(self, name: str, document: Document) -> bool:
        """Add a page. Returns False, and adds nothing, if there is no room."""
        text = document.html()
        size = len(text.encode())
        if self.size + size > MAX_BYTES - INDEX_BYTES:
            return False
        self.pages[name] = text
        self.size += size
        return True


@dataclass(frozen=True, slots=True)
class Bundled:
    """A written bundle: its folder, its number of groups and conversations, and its size in bytes."""

    folder: Path
    groups: int
    conversations: int
    size: int
    left_out: int


def write_bundle(
    report: RunReport | ImportedRun, warehouse: Warehouse, folder: Path, *, seed: int, shared: Shared
) -> Bundled:
    """Write the bundle of a run into a folder: a new one, an empty one, or one with an earlier bundle.

    Raises ConfigError if the folder holds anything else, or cannot be written.
    """
    with writing(folder):
        check_target(folder)
    run_blocks = _run_blocks(report, warehouse)
    files = BundleFiles()
    groups = list(_groups(report.run, warehouse, files, shared))
    drawn, total = _drawn(report.run, warehouse, seed, shared)
    added = _add_conversations(warehouse, [row["traj_id"] for row in drawn], report.run, files)
    listed = [row for row in drawn if row["traj_id"] in added]
    blocks = [
        *run_blocks[: _details(run_blocks)],
        *_group_table(groups),
        *_drawn_table(listed, total, seed, files, shared, _held_back(report.run, warehouse, shared)),
        *_folded(run_blocks[_details(run_blocks) :]),
    ]
    files.pages[INDEX] = Document(report.run, tuple(blocks)).html()
    with writing(folder):
        size = write_files(files, folder)
    conversations = sum(name.startswith("conversations/") for name in files.pages)
    return Bundled(folder, len(groups), conversations, size, files.left_out)


def check_target(folder: Path) -> None:
    """Raise ConfigError for a folder that holds anything but a bundle, finished or killed."""
    others = folder.is_dir() and {*folder.iterdir()} - {*folder.glob(UNFINISHED)}
    if folder.is_file() or (others and not (folder / CONTENTS).is_file()):
        raise ConfigError("export.bad_target", f"{folder} holds other files. Give --out a new or an empty folder.")


def _run_blocks(report: RunReport | ImportedRun, warehouse: Warehouse) -> list[Block]:
    """Return the blocks of the run's page, without the paths of this machine."""
    if isinstance(report, ImportedRun):
        return list(import_document(report).blocks)
    paths = list(run_summary.where(report))
    return [block for block in run_document(report, warehouse).blocks if block not in paths]


def _details(blocks: Sequence[Block]) -> int:
    """Return the index of the first section after the curves."""
    headings = [n for n, block in enumerate(blocks) if isinstance(block, Heading)]
    return next((n for n in headings if blocks[n] != Heading("Learning curves")), len(blocks))


def _folded(blocks: Sequence[Block]) -> Iterator[Block]:
    """Fold each section under its heading."""
    starts = [n for n, block in enumerate(blocks) if isinstance(block, Heading)]
    for start, end in zip(starts, [*starts, len(blocks)][1:], strict=True):
        heading = blocks[start]
        assert isinstance(heading, Heading)
        yield Folded(heading.text, tuple(blocks[start + 1 : end]))


def _groups(run: str, warehouse: Warehouse, files: BundleFiles, shared: Shared) -> Iterator[Row]:
    """Add the pages of the widest groups and of their conversations. Yields the rows of their table."""
    for row in browse.spread_groups(warehouse, run, limit=GROUPS, condition=shared.condition):
        allowed = _allowed(warehouse, browse.group(warehouse, row["best_id"]), shared)
        ends = {row["best_id"], row["worst_id"]}
        allowed.sort(key=lambda member: member.trajectory["traj_id"] not in ends)
        members = sorted(allowed[:MAX_MEMBERS], key=lambda member: member.trajectory["attempt"])
        page_ids = _add_conversations(warehouse, [member.trajectory["traj_id"] for member in members], run, files)

        def linked(trajectory: Any, page_ids: set[int] = page_ids) -> Inline:
            traj_id = trajectory["traj_id"]
            return page_link(trajectory, f"../{_page(traj_id)}") if traj_id in page_ids else attempt(trajectory)

        document = group_document(members, linked, [Link(run, f"../{INDEX}")])
        if ends <= page_ids and files.add(f"groups/{row['best_id']}.html", document):
            yield row


def _allowed(warehouse: Warehouse, members: Sequence[StoredConversation], shared: Shared) -> list[StoredConversation]:
    ids = [member.trajectory["traj_id"] for member in members]
    text = f"SELECT traj_id FROM trajectories WHERE list_contains($ids, traj_id) AND {shared.condition}"
    allowed = {row["traj_id"] for row in warehouse.rows(text, ids=ids)}
    return [member for member in members if member.trajectory["traj_id"] in allowed]


def _add_conversations(warehouse: Warehouse, traj_ids: Sequence[int], run: str, files: BundleFiles) -> set[int]:
    """Add the pages of conversations. Returns the ids that the bundle has."""
    missing = [traj_id for traj_id in traj_ids if _page(traj_id) not in files.pages]
    added = set(traj_ids) - set(missing)
    for traj_id, conversation in browse.conversations(warehouse, run, missing).items():
        if files.add(_page(traj_id), conversation_document(conversation, [Link(run, f"../{INDEX}")])):
            added.add(traj_id)
        else:
            files.left_out += 1
    return added


def _drawn(run: str, warehouse: Warehouse, seed: int, shared: Shared) -> tuple[list[Row], int]:
    """Return conversations drawn by seed, in the order of steps, and the number of all candidates."""
    text = f"SELECT traj_id FROM trajectories WHERE run_id = $run AND {shared.condition} ORDER BY traj_id"
    ids = [row["traj_id"] for row in warehouse.rows(text, run=run)]
    chosen = random.Random(seed).sample(ids, min(DRAWN, len(ids)))
    rows = warehouse.stored("trajectories", chosen) if chosen else []
    return sorted(rows, key=lambda row: (row["step"] or 0, row["traj_id"])), len(ids)


def _held_back(run: str, warehouse: Warehouse, shared: Shared) -> int:
    """Return the number of the run's conversations that may not be shared."""
    text = f"SELECT count(*) AS n FROM trajectories WHERE run_id = $run AND NOT ({shared.condition})"
    return int(warehouse.rows(text, run=run)[0]["n"])


def _page(traj_id: int) -> str:
    return f"conversations/{traj_id}.html"


def _group_table(groups: Sequence[Row]) -> Iterator[Block]:
    yield Heading("Conversations worth reading")
    if not groups:
        yield Text("No group has a difference in score that can be shown.")
        return
    staged = any(row["stage"] is not None for row in groups)  # an imported run has no stages
    yield TableBlock(
        ("task", *(("stage", "step") if staged else ()), "conversations", "best", "worst"),
        tuple(
            (
                Link(conversation_title(row), f"groups/{row['best_id']}.html"),
                *((row["stage"], str(row["step"])) if staged else ()),
                str(row["n"]),
                Link(number(row["best"]), _page(row["best_id"])),
                Link(number(row["worst"]), _page(row["worst_id"])),
            )
            for row in groups
        ),
        "The group with the largest difference in score of each gym and stage.",
    )


def _drawn_table(
    rows: Sequence[Row], total: int, seed: int, files: BundleFiles, shared: Shared, held_back: int
) -> Iterator[Block]:
    yield Heading(f"{len(rows)} conversations drawn by seed {seed}")
    notes = [f"Drawn from {total:,} conversations."]
    if held_back:
        kinds = [
            name for name, lifted in (("people", shared.people), ("imported tasks", shared.imported)) if not lifted
        ]
        notes.append(f"{held_back:,} conversations of {' or '.join(kinds)} are not shared.")
    if files.left_out:
        notes.append(f"{files.left_out} conversations were left out: a bundle has at most {MAX_BYTES:,} bytes.")
    staged = any(row["stage"] is not None for row in rows)
    yield TableBlock(
        ("conversation", *(("stage", "step", "phase") if staged else ()), "agent", "outcome"),
        tuple(
            (
                Link(conversation_title(row), _page(row["traj_id"])),
                *((row["stage"] or "", str(row["step"]), row["phase"]) if staged else ()),
                row["policy"],
                outcome(row, sentence=True),
            )
            for row in rows
        ),
        " ".join(notes),
    )


def write_files(files: BundleFiles, folder: Path) -> int:
    """Replace an earlier bundle by these files. Returns their total size.

    The list is written first, with the old names and the new ones: a folder whose bundle was killed is still one of ours.
    """
    earlier = [name for name in (read_json(folder / CONTENTS) or {}).get("files", ()) if _is_ours(name)]
    write_json(folder / CONTENTS, {"files": sorted({*earlier, *files.pages})})
    pages = [folder / name for name in earlier]
    drafts = [draft for page in pages for draft in page.parent.glob(f".{page.name}.*.tmp")]
    for path in (*pages, *drafts, *folder.glob(UNFINISHED)):
        path.unlink(missing_ok=True)
    for name, text in files.pages.items():
        write_text(folder / name, text)
    write_json(folder / CONTENTS, {"files": sorted(files.pages)})
    return sum((folder / name).stat().st_size for name in (*files.pages, CONTENTS))


def _is_ours(name: Any) -> bool:
    """Return whether a listed name is one that a bundle writes. A list from elsewhere must not delete other files."""
    if name == INDEX:
        return True
    kind, _, page = str(name).partition("/")
    return kind in ("groups", "conversations") and page.removesuffix(".html").isdecimal()
