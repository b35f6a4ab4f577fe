"""One stored conversation, and one group of them, as documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from userrl.machine.foreign_text import plain_json
from userrl.reports.document import Block, Document, Folded, Heading, Inline, Link, TableBlock, Text, TurnBlock
from userrl.reports.wording import attempt, ended, opening_words, outcome
from userrl_core.number_format import NULL, number
from warehouse.query.browse import StoredConversation, shared_turns

LONGEST = 20_000
"""Characters shown of one text."""

Row = Mapping[str, Any]
Linked = Callable[[Row], Inline]
"""Returns the name of a conversation, with a link where its page exists."""


def conversation_document(conversation: StoredConversation, links: Sequence[Inline] = ()) -> Document:
    """Return the replay of a conversation. links: shown under the title."""
    row = conversation.trajectory
    blocks: list[Block] = [
        *_links(links),
        Text(
            f"{outcome(row, conversation.turns, sentence=True)}. {_place(row)}{attempt(row)}, agent {row['policy']}, "
            f"user {row['user_name'] or NULL}, task {row['task_id']}."
        ),
        *_opening(conversation),
        *turn_blocks(conversation.turns),
    ]
    return Document(conversation_title(row), tuple(blocks))


def conversation_title(row: Row) -> str:
    """Name a conversation by its gym and the opening words of its task."""
    return f"{row['gym']}: {opening_words(row['messages'], row['task_id'])}"


def group_document(members: Sequence[StoredConversation], linked: Linked, links: Sequence[Inline] = ()) -> Document:
    """Return a group: its attempts in a table, then the best and the worst of them turn by turn."""
    first = members[0].trajectory
    blocks: list[Block] = [
        *_links(links),
        Text(f"{_place(first)}task {first['task_id']}."),
    ]
    scored = [member for member in members if member.trajectory["score"] is not None]
    best = max(scored, key=lambda member: member.trajectory["score"], default=None)
    worst = min(scored, key=lambda member: member.trajectory["score"], default=None)
    if best is not None and worst is not None and best is not worst:
        shared = shared_turns(best.turns, worst.turns)
        blocks.append(Text(f"The best and the worst attempt have the same first {shared} turns."))
    credited = any(member.mean_advantage is not None for member in members)
    blocks.append(
        TableBlock(
            ("attempt", "outcome", "score", "turns", *(("mean advantage",) if credited else ())),
            tuple(
                (
                    linked(member.trajectory),
                    ended(member.trajectory["stop_reason"], member.turns),
                    number(member.trajectory["score"]),
                    str(member.trajectory["turns"]),
                    *((number(member.mean_advantage, sign=True),) if credited else ()),
                )
                for member in members
            ),
        )
    )
    for name, member in (("Best", best), ("Worst", worst)):
        if member is not None:
            blocks += [Heading(f"{name}: {attempt(member.trajectory)}"), *turn_blocks(member.turns)]
    return Document(f"Group of {conversation_title(first)}", tuple(blocks))


def turn_blocks(turns: Sequence[Row]) -> Iterator[Block]:
    """Yield the turns. Credit that is the same in all turns is said once."""
    said_once = []
    for name, label in (("shaped", "Shaped credit"), ("advantage", "Advantage")):
        if len(turns) > 1 and turns[0][name] is not None and len({turn[name] for turn in turns}) == 1:
            said_once.append(name)
            yield Text(f"{label} {number(turns[0][name], sign=True)} in every turn.")
    largest = max([1.0, *(abs(turn["reward"] or 0.0) for turn in turns)])
    for turn in turns:
        title = [f"Turn {turn['turn']}", turn["choice"] or "no readable call"]
        if turn["reward"] is not None or turn["flags"] is not None:  # an imported turn has neither
            title.append(f"reward {number(turn['reward'], sign=True)}")
        for name, label in (("shaped", "shaped credit"), ("advantage", "advantage")):
            if turn[name] is not None and name not in said_once:
                title.append(f"{label} {number(turn[name], sign=True)}")
        yield TurnBlock(
            turn["turn"],
            " · ".join(title),
            _cut(turn["content"] if turn["choice"] else turn["message"]) or "(nothing)",
            _cut(turn["observation"]) or "(no reply)",
            _cut(turn["thought"]),
            None if turn["reward"] is None else turn["reward"] / largest,
        )


def _place(row: Row) -> str:
    """Return stage, step and phase; "" for an imported conversation, which has no stage."""
    return "" if row["stage"] is None else f"Stage {row['stage']}, step {row['step']}, phase {row['phase']}, "


def _links(links: Sequence[Inline]) -> Iterator[Block]:
    if links:
        parts: list[Inline] = [links[0]]
        for link in links[1:]:
            parts += ["   ", link]
        yield Text(tuple(parts))


def _opening(conversation: StoredConversation) -> Iterator[Block]:
    for message in orjson.loads(conversation.trajectory["messages"] or "[]"):
        role, text = str(message["role"]), _cut(str(message["content"]))
        if role == "system":
            yield Folded("System prompt of the agent", (Text(text),))
        else:
            yield Text(f"First message ({role}): {text}")
    if conversation.task is not None:
        yield Folded(
            "Task, with the user's hidden information", (Text(_cut(plain_json(conversation.task))),), is_open=True
        )


def _cut(text: str | None) -> str:
    text = text or ""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} … (cut; {len(text):,} characters in all)"


def page_link(row: Row, address: str) -> Link:
    """Return a link to a conversation's page, named by its attempt."""
    return Link(attempt(row), address)
