"""The readers of dialogue acts: patterns, the encoder of this home in a process of its own, or a served model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from analysis.users.patterns import PatternActs
from curricula.validation import validated
from userrl.audits.served_acts import ServedActs
from userrl.machine.pretrained import ENCODER, encoder_path
from userrl.run.readiness import refuse_missing_key
from userrl_core.errors import ConfigError
from userrl_core.judging.acts import Act, ActReader, Utterance
from userrl_core.served.client import ChatServer

Acts = Literal["auto", "patterns", "encoder", "judge"]


SURE: frozenset[Act] = frozenset({"confirms"})
"""Acts that an utterance also has if the patterns say so. A plain yes is beyond doubt."""


@dataclass(frozen=True, slots=True)
class EncoderProcess:
    """The reader of acts by the encoder, in a process that ends with each reading. folder: of the encoder."""

    folder: Path
    name: str = "encoder"

    def read(self, utterances: Sequence[Utterance]) -> list[frozenset[Act]]:
        """Return the acts of each utterance. Raises ConfigError if the process fails."""
        if not utterances:
            return []
        done = subprocess.run(
            [sys.executable, "-m", "userrl_core.training.local.acts", str(self.folder)],
            input=json.dumps([[utterance.speaker, utterance.before, utterance.text] for utterance in utterances]),
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"},
            check=False,
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason was given"])[-1][:200]
            raise ConfigError(
                "model.not_read",
                f"The encoder could not read the conversations ({reason}). Fetch it again with 'userrl model fetch {ENCODER}', "
                "or give --acts patterns.",
            )
        by_patterns = PatternActs().read(utterances)
        return [
            frozenset(acts) | by_pattern & SURE
            for acts, by_pattern in zip(json.loads(done.stdout), by_patterns, strict=True)
        ]


def reader_of(acts: Acts = "auto", judge: str | Mapping[str, Any] | None = None) -> ActReader:
    """Return a reader. auto: the encoder where this home has it, else patterns. judge: the model that reads, by its name or the
    options of its server. Raises ConfigError without the encoder, or without the judge.
    """
    if (acts == "judge") != (judge is not None):
        raise ConfigError("argument.missing", "A served model reads the acts with both: --acts judge --judge MODEL.")
    if judge is not None:
        server = validated(ChatServer, {"model": judge} if isinstance(judge, str) else dict(judge), "--judge")
        refuse_missing_key(server)
        return ServedActs(server)
    folder = None if acts == "patterns" else encoder_path()
    if folder is not None:
        return EncoderProcess(folder)
    if acts == "encoder":
        raise ConfigError(
            "model.not_fetched", f"The encoder is not in this home. Run 'userrl model fetch {ENCODER}' first."
        )
    return PatternActs()
