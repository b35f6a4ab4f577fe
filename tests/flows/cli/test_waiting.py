"""What a person sees of a run that waits, of a stage that is reused, and of a report while another run trains."""

import json
import os
import socket
import subprocess
import sys
from datetime import timedelta
from types import SimpleNamespace
from uuid import uuid4

import psutil
import pytest
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.states import Crashed, Running
from prefect.types._datetime import now
from typer.testing import CliRunner

from flows.cli.flow_runs import waited_for
from flows.cli.main import app
from flows.cli.watch import Screen
from flows.trials.launchers import DeploymentLauncher
from sweeps.space import load_space
from tests.makers import raises
from tests.warehouse.makers import play
from userrl.machine.slots import alone, lock_file, slots, take
from userrl.reports.plots import plot_curves
from userrl.reports.run_report import RunReport
from userrl.run.run import RunDescription, claim, delete, holder_of, set_waiting
from userrl.trials.processes import ProcessLauncher
from userrl_core.file_lock import acquire, locked
from userrl_core.json_files import write_json
from warehouse import TurnLog


def test_a_long_run_id_moves_the_whole_column(tmp_path, monkeypatch):
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    begin("short")
    begin("a-name-of-fifty-characters-and-a-few-more-than-that")
    head, *rows, _ = CliRunner().invoke(app, ["runs", "list"]).output.splitlines()
    assert {row.index("equalized-r2g") for row in rows} == {head.index("recipe")}


def test_a_plot_of_an_evaluation_asks_for_a_run_that_was_trained(tmp_path, monkeypatch):
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    run = begin("evaluation")
    with TurnLog.open(tmp_path / "warehouse", run.id) as log:
        play(log, [1.0], phase="evaluate", score=1.0)
    with raises("run.no_curve", "Wait for the first one, or name a run that was trained by RL."):
        plot_curves(["latest"], tmp_path / "curve.svg")


def begin(name):
    return claim(f"{name}-s0-0123456789", RunDescription(name=name, recipe="equalized-r2g"), fresh=False, flow_run=name)


def test_a_wait_for_a_slot_names_the_run_that_holds_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    first, second = begin("first"), begin("second")
    folder = tmp_path / "slots"
    with alone(first.lock, "it"), take(folder, 1, slots()[:1]):
        place = lock_file(folder, slots()[0].name)
        assert holder_of(place) == f"run {first.id}"
        with alone(second.lock, "it"):
            second.set_status("running", stage="sft")
            set_waiting(second.folder, f"{slots()[0].name} by {holder_of(place)}")
            # Both runs are this process's, so the first by age is named.
            screen = Screen()
            screen.update(second)
            screen.update(second)
            shown = CliRunner().invoke(app, ["runs", "show", second.id]).output
            table = CliRunner().invoke(app, ["runs", "list"]).output
            listed = json.loads(CliRunner().invoke(app, ["runs", "list", "--json"]).output)
    sentence = f"waits for a training slot and starts by itself; in use: {slots()[0].name} by run {first.id}"
    assert capsys.readouterr().out.count(sentence) == 1
    assert sentence in shown
    assert shown.startswith(f"{second.id}: waiting sft\n")
    assert [line.split()[3] for line in table.splitlines() if line.startswith(second.id)] == ["waiting"]
    assert [row["waits"] for row in listed if row["run"] == second.id] == [f"{slots()[0].name} by run {first.id}"]
    assert holder_of(place) == f"process {os.getpid()}"
    set_waiting(second.folder, None)
    assert second.status.waits is None


def test_a_sweep_or_a_claim_says_once_that_its_run_waits_for_a_slot(tmp_path, monkeypatch):
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    said = []
    launcher = ProcessLauncher(load_space("gamma"), said.append)
    trial = begin("trial")
    handle = f"{os.getpid()}:{psutil.Process().create_time()}:{trial.id}"
    assert (launcher.status(handle), said) == ("running", [])
    set_waiting(trial.folder, "cpu-0 by run other")
    assert launcher.status(handle) == launcher.status(handle) == "running"
    (sentence,) = said
    assert sentence.startswith(f"run {trial.id} waits for a training slot and starts by itself; in use: cpu-0 by run")


def test_a_sweep_through_prefect_says_once_that_its_trial_waits_for_a_slot(tmp_path, monkeypatch):
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    said = []
    flow_run = FlowRun(flow_id=uuid4(), state=Running())
    launcher = DeploymentLauncher(load_space("gamma"), said.append)
    launcher._client = SimpleNamespace(read_flow_run=lambda _: flow_run)  # in place of Prefect's client of a server
    trial = claim("a-s0-0123456789", RunDescription(name="a", recipe="r"), fresh=False, flow_run=str(flow_run.id))
    assert (launcher.status(str(flow_run.id)), said) == ("running", [])
    set_waiting(trial.folder, "cpu-0 by run other")
    assert launcher.status(str(flow_run.id)) == launcher.status(str(flow_run.id)) == "running"
    (sentence,) = said
    assert sentence.startswith(f"run {trial.id} waits for a training slot and starts by itself; in use: cpu-0 by run")


@pytest.mark.parametrize(
    ("host", "status"), [(socket.gethostname(), "failed"), ("node-2", "running"), (None, "running")]
)
def test_a_process_id_is_looked_up_only_on_the_machine_where_the_trial_began(tmp_path, monkeypatch, host, status):
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    since = now("UTC") - timedelta(seconds=60)
    flow_run = FlowRun(flow_id=uuid4(), state=Running(timestamp=since), infrastructure_pid=str(process.pid))
    crashed = []
    launcher = DeploymentLauncher(load_space("gamma"), print)
    launcher._client = SimpleNamespace(  # in place of Prefect's client of a server
        read_flow_run=lambda _: flow_run, set_flow_run_state=lambda run, state, force: crashed.append(state.type)
    )
    record = tmp_path / "flow-runs" / str(flow_run.id)
    claim("a-s0-0123456789", RunDescription(name="a", recipe="r"), fresh=False, flow_run=record.name)
    assert json.loads(record.read_text())["host"] == socket.gethostname()
    write_json(record, {"run": "a-s0-0123456789"} | ({"host": host} if host else {}))
    assert launcher.status(record.name) == status
    assert crashed == [StateType.CRASHED] * (status == "failed")


def test_a_trial_that_userrl_runs_stop_had_to_kill_is_cancelled_too(tmp_path, monkeypatch):
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    flow_run = FlowRun(flow_id=uuid4(), state=Crashed())
    launcher = DeploymentLauncher(load_space("gamma"), print)
    launcher._client = SimpleNamespace(read_flow_run=lambda _: flow_run)  # in place of Prefect's client of a server
    trial = claim("a-s0-0123456789", RunDescription(name="a"), fresh=False, flow_run=str(flow_run.id))
    assert launcher.status(str(flow_run.id)) == "failed"
    trial.ask_to_stop()
    assert launcher.status(str(flow_run.id)) == "cancelled"
    delete(trial)
    assert launcher.status(str(flow_run.id)) == "failed"


def test_what_waits_for_the_lock_of_a_file_says_so_before_it_waits(tmp_path):
    said, holder = [], acquire(tmp_path / "lock")

    def waiting():
        said.append("waiting")
        os.close(holder)

    with locked(tmp_path / "lock", waiting):
        assert said == ["waiting"]
    with locked(tmp_path / "lock", waiting):
        assert said == ["waiting"]


def test_userrl_up_names_the_run_that_a_flow_run_waits_for(tmp_path, monkeypatch):
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    flow_run = FlowRun(flow_id=uuid4(), state=Running())
    run = claim("a-s0-0123456789", RunDescription(name="a", recipe="r"), fresh=False, flow_run=str(flow_run.id))
    assert waited_for(flow_run) == ""
    with alone(run.lock, "it"):
        run.set_status("running", stage="sft")
        set_waiting(run.folder, "cpu-0 by run b")
        assert "in use: cpu-0 by run b" in waited_for(flow_run)
        set_waiting(run.folder, None)
        assert waited_for(flow_run) == ""
    assert waited_for(FlowRun(flow_id=uuid4(), state=Running())) == ""


def test_a_reused_stage_says_so_once_and_an_earlier_reuse_is_not_told_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    run = begin("reusing")
    for stage in ("distill", "sft"):
        run.stage(stage).mkdir(parents=True)
    earlier = run.stage("sft") / "reused"
    earlier.touch()
    os.utime(earlier, (1, 1))
    screen = Screen()
    (run.stage("distill") / "reused").touch()
    screen.update(run)
    screen.update(run)
    assert capsys.readouterr().out.splitlines() == ["distill      reused: finished earlier with the same inputs"]


def test_the_latest_report_is_the_newest_there_is_while_another_run_trains(tmp_path, monkeypatch):
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    finished = begin("finished")
    report = RunReport(run=finished.id, recipe="r", profile=None, seed=0, warehouse="w", folder="f")
    (finished.folder / "report.json").write_text(report.model_dump_json())
    training = begin("training")
    training.set_status("running", stage="rl-1")
    done = CliRunner().invoke(app, ["report"])
    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, f"# {finished.id}")
    assert f"{training.id} has no report yet" in done.stderr


def test_a_log_of_a_long_stage_stays_short(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    run = begin("long")
    (folder := run.stage("rl-1")).mkdir(parents=True)
    clock = iter(range(100, 10_000_000, 10))
    monkeypatch.setattr("flows.cli.watch.time.monotonic", lambda: next(clock))
    screen = Screen()
    with (folder / "progress.jsonl").open("w") as progress:
        for step in range(1, 361):  # an hour, a step every ten seconds
            progress.write(json.dumps({"step": step, "total": 360, "seconds": 10.0 * step}) + "\n")
            progress.flush()
            screen.update(run)
    steps = [int(line.split("step")[1].split("/")[0]) for line in capsys.readouterr().out.splitlines()]
    assert steps == [6, 18, 42, 90, 186, 360]
