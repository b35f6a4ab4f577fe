"""A judge model that labels conversations or turns by a rubric.

Each label is stored when its call returns, because calls cost money. A scan that was killed continues where it stopped: units
with a label of the same model and rubric are not judged again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field

from userrl.audits.labels import Label, LabelWriter, ScannedConversation, Unit
from userrl_core.errors import UserRLError
from userrl_core.records import ModelCall, total_price
from userrl_core.seeding import content_hash
from userrl_core.served.client import ChatServer, client_for, close_clients
from userrl_core.served.quoting import DATA_RULE, quote
from warehouse import Warehouse

SHOWN_RUBRIC = 160
"""Characters of a rubric in the name of its labeller; a longer one is identified by its hash as well."""

Progress = Callable[[str, dict[str, Any]], None]


class JudgedLabel(BaseModel):
    """The judge's reply."""

    reason: str = Field(default="", max_length=2000)
    """Why, in a sentence or two."""

    label: Literal["yes", "no"]
    """Whether the rubric applies."""


_RULES = """You label conversations between a user and an agent by one rubric.

Answer yes if the rubric applies to {what}, else no. First give the reason, then the label.

# Rubric
{rubric}

{rule}"""


def judge_name(model: str, rubric: str) -> str:
    """Return the labeller's name: the model and its rubric."""
    if len(rubric) <= SHOWN_RUBRIC:
        return f"{model}: {rubric}"
    return f"{model}: {rubric[:SHOWN_RUBRIC]}... ({content_hash(rubric)[:8]})"


def labels_so_far(warehouse: Warehouse, run_id: str, name: str, labeller: str) -> list[Label]:
    """Return the decided labels that this judge has stored in a label set."""
    text = """SELECT traj_id, turn, value, coalesce(reason, '') AS reason, price FROM labels
              WHERE run_id = $run AND name = $name AND source = 'judge' AND labeller = $labeller AND value IS NOT NULL"""
    return [Label(**row) for row in warehouse.rows(text, run=run_id, name=name, labeller=labeller)]


def judge_labels(
    conversations: Sequence[ScannedConversation],
    rubric: str,
    server: ChatServer,
    on: Unit,
    *,
    done: Sequence[Label],
    writer: LabelWriter,
    progress: Progress | None = None,
) -> list[Label]:
    """Judge what has no label yet, and store each label as it comes. Returns the new labels.

    done: labels from an earlier scan. progress: called with ``judge`` and the numbers of `ProgressLine`.
    """
    labelled = {(label.traj_id, label.turn) for label in done}
    units = [
        (conversation, number)
        for conversation in conversations
        for number in ([turn.turn for turn in conversation.turns] if on == "turn" else [0])
    ]
    missing = [unit for unit in units if (unit[0].traj_id, unit[1]) not in labelled]
    return asyncio.run(_judge(missing, len(units), rubric, server, writer, progress))


async def _judge(
    missing: Sequence[tuple[ScannedConversation, int]],
    total: int,
    rubric: str,
    server: ChatServer,
    writer: LabelWriter,
    progress: Progress | None,
) -> list[Label]:
    labels: list[Label] = []
    dollars, began = 0.0, time.monotonic()
    try:
        for coming in asyncio.as_completed([_label(unit, turn, rubric, server) for unit, turn in missing]):
            label = await coming
            writer.write([label])
            labels.append(label)
            dollars += label.price or 0.0
            if progress is not None:
                left = (time.monotonic() - began) / len(labels) * (len(missing) - len(labels))
                step = total - len(missing) + len(labels)
                progress("judge", {"step": step, "total": total, "dollars": dollars, "left_seconds": left})
    finally:
        await close_clients()
    return labels


async def _label(conversation: ScannedConversation, turn: int, rubric: str, server: ChatServer) -> Label:
    subject = "the conversation" if turn == 0 else f"turn {turn} of the conversation"
    transcript = "\n\n".join(
        f"[Turn {scanned_turn.turn}]\nAgent: {quote(scanned_turn.message)}\nWhat came back: {quote(scanned_turn.observation)}"
        for scanned_turn in conversation.turns
        if turn == 0 or scanned_turn.turn <= turn
    )
    messages = [
        {"role": "system", "content": _RULES.format(what=subject, rubric=rubric, rule=DATA_RULE)},
        {"role": "user", "content": f"{transcript}\n\nDoes the rubric apply to {subject}?"},
    ]
    calls: list[ModelCall] = []
    try:
        answer = await client_for(server).complete(messages, role="judge", ledger=calls, schema=JudgedLabel)
    except UserRLError as error:
        return Label(conversation.traj_id, turn, None, str(error)[:200], total_price(call.price for call in calls))
    judged = JudgedLabel.model_validate(answer.parsed, from_attributes=True)
    return Label(conversation.traj_id, turn, judged.label, judged.reason, total_price(call.price for call in calls))
