"""A key that is given by mistake is stored nowhere; a home that cannot be written is one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from curricula.validation import validated
from tests.flows.small import environment
from tests.makers import raises
from tests.ports import free_port
from userrl.run.keys import refuse_keys
from userrl.run.request import TrainRequest

KEY = "sk-proj-not-to-be-found-anywhere-4711"
OPTIONS = {"demonstrations.user": {"kind": "openai", "options": {"api_key": KEY}}}
CALL = """
import json, sys
from userrl_core.errors import UserRLError
from flows.train import train
try:
    train(**json.loads(sys.argv[1]))
except UserRLError as error:
    sys.exit(error.line)
"""


@pytest.mark.parametrize(
    ("parameters", "place"),
    [
        ({"overrides": OPTIONS}, "overrides.demonstrations.user.options.api_key"),
        ({"overrides": {"gyms.travel.user.options.api_key": "short"}}, "overrides.gyms.travel.user.options.api_key"),
        ({"name": KEY}, "name"),
        ({"overrides": {"demonstrations.user": {"options": {"api_key_env": KEY}}}}, "api_key_env"),
        ({"overrides": {"x": [{"extra_body": {"Authorization": "Bearer x"}}]}}, "overrides.x.extra_body.Authorization"),
    ],
)
def test_a_key_among_a_flows_parameters_is_refused_and_not_repeated(parameters: dict[str, object], place: str) -> None:
    with raises("recipe.holds_key", place) as caught:
        refuse_keys(parameters)
    assert KEY not in str(caught.value)
    with raises("recipe.holds_key"):
        validated(TrainRequest, parameters, "train")


COMMIT = "f197b02ab3c4d5e6f708192a3b4c5d6e7f809102"


@pytest.mark.parametrize(
    "value",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "AIza" + "Sy0" * 11 + "ab",
        "ghp_" + "a1B2" * 9,
        "github_pat_11ABCDEFG0" + "a1" * 30,
        "nvapi-" + "aB3-" * 12,
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
        "xoxb-123456789012-abcdefABCDEF",
        "hf_" + "abcDEF123" * 4,
        "http://someone:hunter2@gpu-host:8000/v1",
    ],
)
def test_keys_of_known_services_are_refused_wherever_they_are(value: str) -> None:
    for parameters in ({"name": value}, {"overrides": {"x.options": {"note": f"use {value} here"}}}):
        with raises("recipe.holds_key") as caught:
            refuse_keys(parameters)
        assert value not in str(caught.value)


@pytest.mark.parametrize("name", ["key", "passwd", "judge.password", "credentials", "wandb_api_key"])
def test_a_field_with_the_name_of_a_key_is_refused(name: str) -> None:
    with raises("recipe.holds_key"):
        refuse_keys({"overrides": {name: "short"}})


def test_forty_hex_digits_are_a_key_under_a_name_of_wandb_alone() -> None:
    refuse_keys(
        {"name": COMMIT, "overrides": {"init_from": f"runs/{COMMIT}", "gyms.errand.tasks": [COMMIT, COMMIT[:20] * 3]}}
    )
    with raises("recipe.holds_key"):
        refuse_keys({"overrides": {"wandb": {"login": COMMIT}}})


def test_what_only_reminds_of_a_key_is_no_key() -> None:
    overrides = {
        "api_key_env": "MY_KEY",
        "token_field": "max_tokens",
        "init": "hf-internal-testing/tiny",
        "n": 3,
        "password": "",
    }
    refuse_keys({"recipe": "equalized-r2g", "overrides": overrides, "budget": None})


@pytest.mark.slow
def test_a_key_in_a_direct_call_of_train_reaches_no_file(tmp_path: Path) -> None:
    given = '{"recipe": "equalized-r2g", "overrides": {"demonstrations.user": {"kind": "openai", "options": {"api_key": "%s"}}}}'
    (tmp_path / "prefect").mkdir()
    command = [sys.executable, "-c", CALL, given % KEY]
    ended = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr.count("contains a key")) == (1, 1)
    assert KEY not in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    assert [file for file in tmp_path.rglob("*") if file.is_file() and KEY.encode() in file.read_bytes()] == []


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize("module", ["flows.cli.quickstart", "flows.cli.main server"])
def test_a_home_that_cannot_be_written_is_one_sentence(module: str) -> None:
    command = [sys.executable, "-m", *module.split()]
    environment = {**os.environ, "USERRL_HOME": "/sys/userrl", "USERRL_PORT": str(free_port())}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "set USERRL_HOME to another folder" in ended.stderr


@pytest.mark.usefixtures("prepared")
def test_a_run_whose_warehouse_cannot_be_written_ends_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "warehouse").symlink_to("/sys/userrl")
    program = "from userrl.run.plan import plan_run; from userrl.run.request import TrainRequest\n"
    program += "with plan_run(TrainRequest(profile='laptop')).begin(): pass"
    environment = {**os.environ, "USERRL_HOME": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert f"ConfigError: Nothing can be written to {tmp_path / 'warehouse'}" in ended.stderr
    assert not (tmp_path / "runs").exists()
