"""The reader of acts by an encoder: its features, its head's shape, and the process that answers lines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from userrl.audits.acts import reader_of
from userrl_core.errors import ConfigError
from userrl_core.judging.acts import ACTS
from userrl_core.training.local.acts import HASHED, HEAD, _hashed, masked
from userrl_core.training.local.encoder import LAYERS


def test_the_head_has_a_row_for_each_act_and_a_column_for_each_feature() -> None:
    head = load_file(HEAD)
    assert head["weight"].shape == (len(ACTS), len(LAYERS) * 384 + HASHED + 5)
    assert all(np.isfinite(tensor).all() for tensor in head.values())
    assert ((head["threshold"] > 0) & (head["threshold"] < 1)).all()


def test_addresses_dates_and_identifiers_are_masked() -> None:
    assert masked("Move B115 to 2026-08-12, ann.lee@mail.org, order #W1234.") == (
        "Move A1 to May 5, someone@mail.com, order A1."
    )


def test_hashed_words_have_length_one_and_nothing_has_none() -> None:
    assert np.linalg.norm(_hashed("Yes, please do!")) == pytest.approx(1.0)
    assert not _hashed("").any()


def test_without_the_encoder_patterns_read_and_the_encoder_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    assert reader_of("auto").name == reader_of("patterns").name == "patterns"
    with pytest.raises(ConfigError, match="userrl model fetch"):
        reader_of("encoder")
