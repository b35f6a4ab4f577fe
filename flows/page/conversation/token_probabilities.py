"""The log-probabilities of the tokens of one turn, drawn when a reader asks for them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nicegui import ui

from flows.page import frame
from userrl.machine.home import runs_dir

MOST = 400
"""Tokens that are shown."""


class TokenProbabilities:
    """The button that shows the tokens of one turn with their log-probabilities."""

    def __init__(self, run_id: str, turn: Mapping[str, Any]) -> None:
        self._run_id, self._turn = run_id, turn

    def build(self, container: ui.element) -> None:
        """Draw a button that draws the table in this place."""

        async def show() -> None:
            rows = await frame.asked(lambda: token_rows(self._run_id, self._turn))
            button.delete()
            with container, ui.element("div").classes("overflow-x-auto w-full"):
                self._draw(rows)

        button = ui.button("Token log-probabilities", on_click=show).props("flat dense no-caps size=12px")

    def _draw(self, rows: Sequence[Mapping[str, Any]]) -> None:
        logprobs = [value for value in self._turn["logprobs"] if value is not None]
        ui.label(
            f"{frame.many(len(self._turn['logprobs']), 'token')}: sum of log-probabilities "
            f"{frame.number(sum(logprobs))} nats, as sampled by the policy."
        ).classes("text-sm")
        columns = {"token": "Token", "token_id": "Id", "logprob": "Log-probability", "probability": "Probability"}
        frame.table(
            rows, columns if any(row["token"] for row in rows) else {**columns, "token": "Token (no tokenizer)"}
        )
        if len(self._turn["logprobs"]) > MOST:
            ui.label(f"Only the first {MOST} tokens are shown.").classes("quiet text-sm")


def token_rows(run_id: str, turn: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row per sampled token. Its text is empty if the run's tokenizer is not on this machine."""
    logprobs, token_ids = turn["logprobs"][:MOST], turn["token_ids"] or []
    texts = _texts(run_id, token_ids[:MOST])
    return [
        {
            "id": n,
            "token": texts[n] if n < len(texts) else "",
            "token_id": token_ids[n] if n < len(token_ids) else None,
            "logprob": frame.number(logprob),
            "probability": "–" if logprob is None else frame.number(math.exp(logprob)),
        }
        for n, logprob in enumerate(logprobs)
    ]


def _texts(run_id: str, token_ids: Sequence[int]) -> list[str]:
    path = _tokenizer(runs_dir() / run_id)
    if path is None or not token_ids:
        return []
    from tokenizers import Tokenizer  # imported here: few pages need it

    tokenizer = Tokenizer.from_file(str(path))
    return [repr(tokenizer.decode([token], skip_special_tokens=False))[1:-1] for token in token_ids]


def _tokenizer(run: Path) -> Path | None:
    """Return the tokenizer of a checkpoint of this run. All checkpoints of a run share one tokenizer."""
    return next(iter(run.glob("stages/*/checkpoints/*/tokenizer.json")), None)
