"""A checkpoint that is played by a rollout engine is shown and says the same tokens as by our own decoder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from curricula.spec import Hardware
from tests.flows.small import played
from tests.places import TESTS
from tests.userrl_core.training.toys import sft_job
from userrl.machine.engine import copies, engine_gpus, engine_plays, who_plays
from userrl_core.training.local.sft import train_sft

ENGINE = TESTS / "userrl_core" / "served" / "engine"


def test_an_engine_plays_where_the_stage_has_gpus_and_its_interpreter_is_named() -> None:
    assert not engine_plays(Hardware(), 8), "vLLM is not in the environment of the flows"
    assert not engine_plays(Hardware(python="/v/bin/python"), 0)
    assert engine_plays(Hardware(python="/v/bin/python"), 1)
    assert not engine_plays(Hardware(python="/v/bin/python", engine="sglang"), 1)
    assert not engine_plays(Hardware(python="/v/bin/python", checkpoint_engine="local"), 8)
    assert engine_plays(Hardware(checkpoint_engine="vllm"), 0)


def test_it_takes_the_gpus_of_training_in_whole_copies() -> None:
    eight = Hardware(python="/v/bin/python", gpus=8, tensor_parallel=2)
    assert [engine_gpus(eight, gpus) for gpus in (8, 16, 5, 1)] == [8, 8, 4, 2]
    assert [copies(eight, gpus) for gpus in (8, 2, 0)] == [4, 1, 1]
    assert engine_gpus(eight.model_copy(update={"checkpoint_engine": "local"}), 8) == 1
    assert who_plays(eight) == "vLLM, 4 copies on 2 GPU each"
    assert who_plays(Hardware(gpus=8)) == "the local decoder"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has read enough to speak in calls."""
    job = sft_job(tmp_path_factory.mktemp("speaker"))
    return train_sft(job.model_copy(update={"sft": job.sft.model_copy(update={"steps": 60})})).checkpoint


@pytest.mark.slow
def test_an_engines_evaluation_is_our_decoders_token_by_token_even_if_the_engine_dies(
    checkpoint: Path, tmp_path: Path
) -> None:
    given = {"checkpoint": str(checkpoint), "recipe": "equalized-r2g", "profile": "laptop", "gyms": ["travel"]}

    def evaluated(engine: str, **env: str) -> list[Any]:
        overrides = {"hardware.checkpoint_engine": engine, "algorithm.max_response_tokens": 150}
        return played(tmp_path / engine, {**given, "tasks": 8, "horizon": 4, "overrides": overrides}, **env)

    ours = evaluated("local")
    folder = tmp_path / "asked"
    folder.mkdir()
    (folder / "die").touch()
    env = {"PYTHONPATH": f"{ENGINE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}", "USERRL_TEST_ENGINE": str(folder)}
    by_engine = evaluated("vllm", **env)
    assert by_engine == ours
    assert len({row[0] for row in ours}) == 8
    assert len(ours) > 16, "conversations of several turns"
    assert not (folder / "die").exists(), "it died at its first request, and was started again"
    asked = [json.loads(line) for line in (folder / "asked.jsonl").read_text().splitlines()]
    assert len(asked) == len(ours), "one request a turn"
    told = json.loads((folder / "arguments.json").read_text())
    assert dict(zip(told[::2], told[1::2], strict=False))["--generation-config"] == "vllm"
