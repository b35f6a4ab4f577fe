"""Progress of long work: one updated line on a terminal, otherwise a line every five seconds."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from userrl_core.number_format import number

DISTILL = "distill"
"""The stage that plays demonstrations."""
EVERY_SECONDS = QUIET_SECONDS = 5.0
"""Seconds between two lines where the output is no terminal, and most seconds of silence."""


class ProgressLine:
    """A display of stages' progress on a stream. Called with a stage's name and each line of its progress file."""

    def __init__(self, stream: TextIO | None = None, *, at_once: bool = False) -> None:
        """at_once: whether the first line is shown immediately. Otherwise work of less than five seconds shows none."""
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._heard = time.monotonic()
        self._due = time.monotonic() + (0.0 if self._terminal or at_once else EVERY_SECONDS)

    def __call__(self, stage: str, line: dict[str, Any]) -> None:
        """Show one line, unless another was shown a moment ago."""
        last, self._heard = line["step"] >= line["total"], time.monotonic()
        if time.monotonic() < self._due and not (last and self._terminal):
            return
        self._due = self._heard + (0.0 if self._terminal else EVERY_SECONDS)
        text = progress_text(stage, line)
        print(
            f"\r{text}\x1b[K" + "\n" * last if self._terminal else text,
            end="" if self._terminal else "\n",
            file=self._stream,
        )
        self._stream.flush()

    @contextlib.contextmanager
    def alive(self, work: str) -> Iterator[None]:
        """Print a line while a block is silent for five seconds, and each time the silence has doubled. work: its name."""
        over = threading.Event()
        self._heard = time.monotonic()
        teller = threading.Thread(target=self._tell, args=(work, over), daemon=True)
        teller.start()
        try:
            yield
        finally:
            over.set()
            teller.join()

    def _tell(self, work: str, over: threading.Event) -> None:
        due, last_output = QUIET_SECONDS, self._heard
        while not over.wait(QUIET_SECONDS / 10):
            if last_output != self._heard:
                due, last_output = QUIET_SECONDS, self._heard
            if (silence := time.monotonic() - last_output) >= due:
                due = 2 * silence
                print(f"{chr(10) * self._terminal}{work} ({span(silence)} without news)", file=self._stream, flush=True)

    def say(self, text: str, *args: object) -> None:
        """Print a log line above the progress line."""
        self._heard = time.monotonic()
        print(f"\r\x1b[K{text % args}" if self._terminal else text % args, file=self._stream, flush=True)


def progress_text(stage: str, line: dict[str, Any]) -> str:
    """Format one line: stage, step, speed, mean score, cost and remaining time, as far as they are known."""
    left, speed = line.get("left_seconds"), line.get("per_second")
    parts = [f"{stage} {progress_step(stage, line).removeprefix('step ')}"]
    if speed:
        parts.append(f"{speed:.1f} episodes/s")
    if (score := shown_score(stage, line)) is not None:
        parts.append(f"score {number(score)}")
    if line.get("dollars"):
        parts.append(f"${line['dollars']:.2f}")
    if left is not None and line["step"] < line["total"]:
        parts.append(f"about {span(left)} left")
    return ", ".join(parts)


def span(seconds: float) -> str:
    """Format a duration: ``45 s``, ``12 min``, ``3.5 h``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def log_line(text: str, *args: object) -> None:
    """Print a log line on stderr. text: a format string as for `logging`."""
    print(text % args if args else text, file=sys.stderr, flush=True)


def shown_score(stage: str, line: Mapping[str, Any]) -> float | None:
    """Return the score to show of a stage's progress. A distillation has none before its end: long tasks start first, so those that
    ended are no sample.
    """
    return None if stage == DISTILL and line["step"] < line["total"] else progress_score(line)


def progress_score(line: Mapping[str, Any]) -> float | None:
    """Return the mean score of a step, on the scale of the report's tables.

    An RL stage of an earlier version wrote only the mean return, under ``reward``; that is not a score. Other stages wrote their
    mean score under that name.
    """
    score: float | None = line.get("score")
    return line.get("reward") if score is None and "policy/entropy/mean" not in line else score


def progress_step(stage: str, line: Mapping[str, Any]) -> str:
    """Return how far a stage is: ``200 of 2,000 played`` of a distillation, else ``step 3 of 40``."""
    if stage == DISTILL:
        return f"{line['step']:,} of {line['total']:,} played"
    return f"step {line['step']} of {line['total']}"
