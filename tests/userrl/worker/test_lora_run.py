"""A run that trains adapters, from its demonstrations to its report; in `make test-full`, killed in stage 2 as well."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.flows.small import OVERRIDES, result, start
from tests.flows.test_survival import ask, killed_in, stage_folder
from userrl_core.processes import tagged
from userrl_core.training.local.checkpoint import read_state

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000), pytest.mark.usefixtures("prepared_module")]
STAGES = [{**OVERRIDES["stages"][0], "steps": 3}, {**OVERRIDES["stages"][1], "steps": 20}]
ADAPTED = {
    **OVERRIDES,
    "stages": STAGES,
    "algorithm.lora": {"rank": 4},
    "algorithm.lr": 2e-3,
    "algorithm.kl_coef": 0.01,
}


def checkpoint(home: Path, stage: str) -> Path:
    return Path(json.loads((stage_folder(home, stage) / "result.json").read_text())["value"]["checkpoint"])


def test_a_run_with_adapters_leaves_ordinary_models_and_a_report(tmp_path):
    stages = [{**stage, "steps": 2} for stage in STAGES]
    summary, _ = result(start(tmp_path, overrides={**ADAPTED, "stages": stages}))
    assert (Path(summary["folder"]) / "report.md").is_file()
    assert summary["table"]
    cold = load_file(checkpoint(tmp_path, "sft") / "model.safetensors")
    for stage in ("rl-1", "rl-2"):
        trained = load_file(checkpoint(tmp_path, stage) / "model.safetensors")
        assert {name for name in cold if not cold[name].equal(trained[name])} == {n for n in cold if "_proj." in n}
    assert (checkpoint(tmp_path, "rl-2") / "trainer" / "adapter" / "adapter_model.safetensors").is_file()


@pytest.mark.full  # test_lora.py of training has the interrupted stage, test_survival.py the killed run
def test_a_run_with_adapters_killed_in_stage_two_goes_on_to_the_same_bytes(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    summary, _ = result(start(whole, overrides=ADAPTED))

    token = killed_in(start(killed, overrides=ADAPTED), killed, "rl-2", step=6)
    again, said = result(start(killed, overrides=ADAPTED))
    assert tagged(token) == []
    assert "rl-1: reused" in said
    assert again["table"] == summary["table"]
    same = "select stage, step, task_id, attempt, turn, token_ids, reward from turns where phase = 'train' order by all"
    assert ask(killed, same) == ask(whole, same)
    for stage in ("rl-1", "rl-2"):
        one, other = (read_state(checkpoint(home, stage)).files for home in (whole, killed))
        # The adapters' own file names the folder of their base, which differs between two homes.
        assert {name for name in one if one[name] != other[name]} == {"trainer/adapter/adapter_config.json"}
