"""The readers of dialogue acts: patterns, or the encoder of this home in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from analysis.users.patterns import PatternActs
from userrl.machine.pretrained import ENCODER, encoder_path
from userrl_core.errors import ConfigError
from userrl_core.judging.acts import Act, ActReader, Utterance

Acts = Literal["auto", "patterns", "encoder"]


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


def reader_of(acts: Acts = "auto") -> ActReader:
    """Return a reader. auto: the encoder where this home has it, else patterns. Raises ConfigError without the encoder."""
    folder = None if acts == "patterns" else encoder_path()
    if folder is not None:
        return EncoderProcess(folder)
    if acts == "encoder":
        raise ConfigError(
            "model.not_fetched", f"The encoder is not in this home. Run 'userrl model fetch {ENCODER}' first."
        )
    return PatternActs()
