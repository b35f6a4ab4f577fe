"""The profile of a language model, with a random Llama in its place: killed in an RL step it ends with the same bytes."""

import json
from pathlib import Path

import pytest

from tests.flows.small import result, start
from tests.flows.test_survival import ask, killed_in, stage_folder
from tests.llama import llama
from userrl_core.processes import tagged
from userrl_core.training.local.checkpoint import read_state
from userrl_core.training.local.samples import LARGE_VOCABULARY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500), pytest.mark.usefixtures("prepared_module")]
SETTINGS = {
    "model.dtype": "bfloat16",  # two copies of the weights: what is trained, and what speaks
    "demonstrations.episodes": 40,
    "demonstrations.top_k": 30,
    "cold_start.steps": 4,
    "algorithm.batch": 2,
    "algorithm.group": 4,
    "algorithm.max_response_tokens": 160,
    "evaluate.every": 2,
    "evaluate.tasks": 4,
    "evaluate.validation_tasks": 4,
    "stages": [{"steps": 8, "horizon": 4, "mix": {"wish": 1}}],
}


def stage_files(home: Path, stage: str) -> dict[str, str]:
    """Return the files of a stage's last checkpoint with their hashes."""
    ended = json.loads((stage_folder(home, stage) / "result.json").read_text())["value"]
    return dict(read_state(Path(ended["checkpoint"])).files)


def test_a_language_model_killed_in_an_rl_step_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    # With two threads and a large vocabulary, each thread has a micro-batch of its own.
    path = llama(tmp_path / "llama", entries=LARGE_VOCABULARY + 1)
    given = {"profile": "laptop-lm", "overrides": {**SETTINGS, "model.path": str(path)}, "threads": 2}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    summary, _ = result(start(whole, **given))

    token = killed_in(start(killed, **given), killed, "rl-1", step=3)
    again, said = result(start(killed, **given))
    assert tagged(token) == []
    assert "sft: reused" in said
    assert again["table"] == summary["table"]
    assert stage_files(killed, "rl-1") == stage_files(whole, "rl-1"), "optimiser and generators included"
    same = "select step, task_id, attempt, turn, token_ids, reward from turns where phase = 'train' order by all"
    assert ask(killed, same) == ask(whole, same)
    (turns,) = ask(whole, "select count(*) from turns where phase = 'train'")
    assert turns != (0,)
