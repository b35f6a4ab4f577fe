"""Which run is meant, which one goes on, and what became of those that cannot say it themselves."""

import json
import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from flows.cli import main as cli
from flows.evaluate import actor
from flows.machine.slots import alone, held
from flows.run.run import all_runs, claim, delete, find, goes_on_as, identity, load, write_json
from userrl_core.errors import CheckpointError, ConfigError
from warehouse import TurnLog


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    return tmp_path


def make_run(home, name, created, checkpoint=None, state="completed"):
    folder = home / "runs" / name
    write_json(folder / "run.json", {"id": name, "created": created, "name": name})
    write_json(folder / "status.json", {"state": state})
    write_json(folder / "report.json", {"checkpoint": None if checkpoint is None else str(checkpoint)})
    return load(folder)


def make_checkpoint(folder):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def userrl(*command):
    return CliRunner().invoke(cli.app, command)


def test_the_latest_to_evaluate_is_the_newest_run_with_a_checkpoint_however_often_it_is_evaluated(home):
    make_run(home, "old", 1, make_checkpoint(home / "older"))
    make_run(home, "a", 2, make_checkpoint(home / "model"))
    for number in (3, 4):
        who = actor("latest", None, None)
        assert (who.label, who.path) == ("a", str(home / "model"))
        make_run(home, f"evaluate-a-{number}", number)
    with pytest.raises(CheckpointError, match=r"evaluate-a-3 has no checkpoint yet"):
        actor("evaluate-a-3", None, None)


def test_without_a_trained_run_there_is_no_latest_to_evaluate(home):
    make_run(home, "evaluate-x", 1)
    make_run(home, "gone", 2, home / "removed")
    with pytest.raises(ConfigError, match=r"No run in .* has a checkpoint yet; `make run` trains one"):
        actor("latest", None, None)


@pytest.mark.parametrize(
    "torn", [b'{"id": "a", ', b"", b"[]", b"\xff\xfe", b'{"id": "a"}', b'{"id": 3, "created": "x"}']
)
def test_a_run_that_cannot_be_read_hides_no_other(home, torn):
    make_run(home, "a", 1)
    make_run(home, "b", 2)
    (home / "runs" / "a" / "run.json").write_bytes(torn)
    assert [run.id for run in all_runs()] == ["b"]
    assert find("latest").id == "b"
    listed = userrl("runs", "list", "--json")
    assert [row["run"] for row in json.loads(listed.stdout)] == ["b"]
    assert listed.stderr.count("\n") == 1
    assert "a/run.json cannot be read; that run is left out." in listed.stderr
    assert userrl("runs", "show", "b").exit_code == 0


def test_the_newest_generation_goes_on_also_when_an_older_one_was_deleted(home):
    claim("b", {}, fresh=False, flow_run="1")
    for number in range(2, 12):
        assert claim("b", {}, fresh=True, flow_run=str(number)).id == f"b.{number}"
    delete(load(home / "runs" / "b"))
    assert claim("b", {}, fresh=False, flow_run="x").id == "b.11"
    delete(load(home / "runs" / "b.5"))
    assert claim("b", {}, fresh=False, flow_run="x").id == "b.11"
    assert claim("b", {}, fresh=True, flow_run="y").id == "b.12"
    assert not (home / "runs" / "b").exists()


def test_turns_of_a_deleted_run_are_not_joined_by_those_of_its_successor(home):
    run = claim("b", {}, fresh=False, flow_run="1")
    TurnLog.open(home / "warehouse", run.id).close()
    delete(run)
    assert goes_on_as("b") == "b.2", "what a sweep follows is what the trial becomes"
    assert claim("b", {}, fresh=False, flow_run="2").id == goes_on_as("b") == "b.2"
    assert claim("b", {}, fresh=False, flow_run="3").id == "b.2"
    TurnLog.open(home / "warehouse", "bb").close()
    assert claim("bb.2", {}, fresh=False, flow_run="4").id == "bb.2"


def test_a_generation_that_cannot_be_read_is_not_written_over(home):
    claim("b", {}, fresh=False, flow_run="1")
    claim("b", {}, fresh=True, flow_run="2")
    (home / "runs" / "b.2" / "run.json").write_text("{")
    assert claim("b", {}, fresh=False, flow_run="3").id == "b"
    assert claim("b", {}, fresh=True, flow_run="4").id == "b.3"
    assert (home / "runs" / "b.2" / "run.json").read_text() == "{"


def test_a_run_is_running_only_while_a_process_holds_it(home):
    run = make_run(home, "a", 1, state="running")
    program = (
        "import sys\nfrom pathlib import Path\nfrom flows.machine.slots import alone\n"
        "with alone(Path(sys.argv[1]), 'it'):\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(run.lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    assert run.status["state"] == "running"
    assert " running " in userrl("runs", "list").stdout
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not held(run.lock)
    assert run.status["state"] == "died"
    assert userrl("runs", "list").stdout.rstrip().endswith("start it again to continue")
    assert "a: died (its process is gone; start it again to continue)" in userrl("runs", "show", "a").stdout
    assert json.loads(userrl("runs", "list", "--json").stdout)[0]["state"] == "died"


def test_a_run_says_how_its_work_ended_and_a_look_never_keeps_anyone_out(home):
    run = make_run(home, "a", 1)
    with alone(run.lock, "it"):
        with run.at_work():
            assert run.status["state"] == "running"
        assert run.status["state"] == "completed"
        with pytest.raises(ConfigError, match="no"), run.at_work():
            raise ConfigError("no good")
        assert (run.status["state"], run.status["error"]) == ("failed", "no good")
        with pytest.raises(KeyboardInterrupt), run.at_work():
            raise KeyboardInterrupt
        assert run.status["state"] == "stopped"
    for _ in range(50):
        held(run.lock)
        with alone(run.lock, "it"):
            assert held(run.lock)


@pytest.mark.parametrize("name", ["../../../tmp/evil", "/etc/evil", "..", ".", "a/../../b", "\x00", "a\nb", "x" * 500])
def test_a_run_s_name_cannot_leave_the_runs_folder(home, name):
    made = identity({"name": "recipe"}, seed=0, backend="local", name=name, init_from=None)
    run = claim(made, {"name": name}, fresh=False, flow_run="1")
    assert run.folder.parent == home / "runs"
    assert run.folder.name == made
    assert len(made) < 100
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
