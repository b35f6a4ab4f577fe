"""Which run is meant, which one goes on, and what became of those that cannot say it themselves."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from curricula import Recipe
from curricula import load as load_recipe
from flows.cli import main as cli
from flows.cli.arguments import run_names
from tests.makers import raises
from userrl.evaluation.planned import actor_of
from userrl.machine.home import warehouse_dir
from userrl.machine.slots import alone, held
from userrl.reports.run_report import read_report
from userrl.reports.run_summary import run_summary
from userrl.run.run import (
    Run,
    RunDescription,
    RunInfo,
    all_runs,
    claim,
    delete,
    find,
    goes_on_as,
    holder_of,
    identity,
    load,
    run_fields,
)
from userrl.stages.stop import stop
from userrl_core.errors import ConfigError, TrainingError
from userrl_core.json_files import write_json
from warehouse import TurnLog
from warehouse.files.runs import find_run, register_run


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


def test_a_home_that_was_copied_names_its_own_checkpoint_and_paths(home):
    run = make_run(home, "a", 1, "/elsewhere/home/runs/a/stages/rl-1/checkpoints/step-000010")
    assert str(run.checkpoint) == "/elsewhere/home/runs/a/stages/rl-1/checkpoints/step-000010"
    copied = make_checkpoint(run.folder / "stages" / "rl-1" / "checkpoints" / "step-000010")
    assert run.checkpoint == copied
    folder = "/elsewhere/home/runs/a"
    there = {"checkpoint": f"{folder}/{copied.relative_to(run.folder)}", "warehouse": "/elsewhere/home/warehouse"}
    about = {"run": "a", "recipe": "r", "profile": None, "seed": 0, "folder": folder, **there}
    write_json(run.folder / "report.json", about)
    report = read_report(run)
    assert (report.checkpoint, report.folder, report.warehouse) == (str(copied), str(run.folder), f"{home}/warehouse")
    assert "/elsewhere" not in run_summary(report).markdown()


def test_a_report_that_cannot_be_read_is_a_sentence(home):
    with raises("file.damaged", "report.json"):
        read_report(make_run(home, "a", 1))


def test_the_latest_is_the_newest_run_that_is_no_evaluation_however_often_it_is_evaluated(home):
    make_run(home, "old", 1, make_checkpoint(home / "older"))
    make_run(home, "a", 2, make_checkpoint(home / "model"))
    for number in (3, 4):
        actor = actor_of("latest")
        assert (actor.label, actor.path) == ("a", str(home / "model"))
        make_run(home, f"evaluate-a-{number}", number)
    make_run(home, "distill", 5)
    assert find("latest").id == "a"
    with raises("run.no_checkpoint"):
        actor_of("evaluate-a-3")


def test_a_latest_run_without_a_checkpoint_is_said_and_no_other_is_evaluated_in_its_place(home):
    make_run(home, "evaluate-x", 1)
    with raises("run.no_checkpoint"):
        actor_of("latest")
    make_run(home, "old", 2, make_checkpoint(home / "model"))
    make_run(home, "gone", 3, home / "removed")
    with raises("checkpoint.missing"):
        actor_of("latest")


def test_the_report_the_evaluation_and_sql_mean_the_same_run(home):
    recipe = Recipe(name="x")
    runs = {}
    for name in ("alpha", "beta", "evaluate-beta"):
        runs[name] = claim(f"{name}-s0-1", RunDescription(name=name), fresh=False, flow_run=name)
    # Registered in another order than they were begun: one waited for a slot.
    for name in ("evaluate-beta", "beta", "alpha"):
        fields = run_fields(recipe, name=name, created=runs[name].info.created)
        register_run(home / "warehouse", runs[name].id, fields)

    def meant(text):
        ids = {find(text).id, find_run(home / "warehouse", text)["run_id"]}
        assert len(ids) == 1
        return ids.pop()

    assert [meant(text) for text in ("latest", "alpha", "beta-s", "evaluate-beta")] == [
        "beta-s0-1",
        "alpha-s0-1",
        "beta-s0-1",
        "evaluate-beta-s0-1",
    ]
    delete(runs["beta"])
    assert meant("latest") == "alpha-s0-1"
    assert find_run(home / "warehouse", "beta-s0-1")["run_id"] == "beta-s0-1", "its turns are there, under its whole id"


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
    assert "a/run.json cannot be read; this run is skipped." in listed.stderr
    assert userrl("runs", "show", "b").exit_code == 0


@pytest.mark.parametrize("share", [0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9])
def test_a_changed_letter_in_the_record_of_a_run_is_named_and_changes_no_value(home, share):
    make_run(home, "a", 1)
    run = claim("b", RunDescription(name="b", recipe="b", resolved={"seed": 1}), fresh=False, flow_run="1")
    file, info = run.folder / "run.json", run.info
    whole = file.read_bytes()
    letters = [place for place, byte in enumerate(whole) if chr(byte).isalnum()]
    place = letters[int(share * len(letters))]
    file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    listed = userrl("runs", "list", "--json")
    assert [row["run"] for row in json.loads(listed.stdout)] == ["a"]
    assert "b/run.json cannot be read; this run is skipped." in listed.stderr
    file.write_bytes(whole)
    assert load(run.folder).info == info


def test_a_changed_record_is_refused_as_a_recipe_too(home):
    run = claim(
        "b", RunDescription(name="b", recipe="b", resolved=Recipe(name="b").resolved()), fresh=False, flow_run="1"
    )
    file = run.folder / "run.json"
    file.write_text(file.read_text().replace('"name": "b"', '"name": "c"', 1))
    for read in (lambda: load(run.folder), lambda: load_recipe(str(file), None)):
        with raises("file.damaged", "b/run.json"):
            read()


def test_a_record_without_a_checksum_is_read_as_before(home):
    make_run(home, "a", 1)
    assert load(home / "runs" / "a").info.name == "a"


def test_what_a_killed_deletion_left_is_no_run_and_goes_with_the_next_deletion(home):
    make_run(home, "a", 1)
    make_run(home, "b", 2)
    (home / "runs" / "b").rename(home / "runs" / ".deleted-b-4242")
    (home / "runs" / ".b.deleted").mkdir()
    assert [run.id for run in all_runs()] == ["a"]
    assert run_names("") == ["latest", "a"]
    delete(find("a"))
    assert list((home / "runs").iterdir()) == []


def test_a_run_whose_folder_is_a_link_is_deleted_and_retired(home):
    run = make_run(home, "a", 1)
    register_run(home / "warehouse", "a", {"name": "a"})
    run.folder.rename(home / "disk")
    run.folder.symlink_to(home / "disk")
    delete(run)
    assert list((home / "runs").iterdir()) == []
    assert (home / "disk" / "report.json").is_file()
    with raises("run.no_such_run"):
        find_run(home / "warehouse", "latest")


def test_a_run_is_retired_before_its_folder_is_touched(home, monkeypatch):
    run = make_run(home, "a", 1)
    register_run(home / "warehouse", "a", {"name": "a"})

    def killed(folder):
        raise KeyboardInterrupt

    monkeypatch.setattr("userrl.run.run.remove_folder", killed)
    with pytest.raises(KeyboardInterrupt):
        delete(run)
    with raises("run.no_such_run"):
        find_run(home / "warehouse", "latest")


def test_the_newest_generation_goes_on_also_when_an_older_one_was_deleted(home):
    claim("b", RunDescription(), fresh=False, flow_run="1")
    for number in range(2, 12):
        assert claim("b", RunDescription(), fresh=True, flow_run=str(number)).id == f"b.{number}"
    delete(load(home / "runs" / "b"))
    assert claim("b", RunDescription(), fresh=False, flow_run="x").id == "b.11"
    delete(load(home / "runs" / "b.5"))
    assert claim("b", RunDescription(), fresh=False, flow_run="x").id == "b.11"
    assert claim("b", RunDescription(), fresh=True, flow_run="y").id == "b.12"
    assert not (home / "runs" / "b").exists()


def test_turns_of_a_deleted_run_are_not_joined_by_those_of_its_successor(home):
    run = claim("b", RunDescription(), fresh=False, flow_run="1")
    TurnLog.open(home / "warehouse", run.id).close()
    delete(run)
    assert goes_on_as("b") == "b.2", "what a sweep follows is what the trial becomes"
    assert claim("b", RunDescription(), fresh=False, flow_run="2").id == goes_on_as("b") == "b.2"
    assert claim("b", RunDescription(), fresh=False, flow_run="3").id == "b.2"
    TurnLog.open(home / "warehouse", "bb").close()
    assert claim("bb.2", RunDescription(), fresh=False, flow_run="4").id == "bb.2"


def test_a_generation_that_cannot_be_read_is_not_written_over(home):
    claim("b", RunDescription(), fresh=False, flow_run="1")
    claim("b", RunDescription(), fresh=True, flow_run="2")
    (home / "runs" / "b.2" / "run.json").write_text("{")
    assert claim("b", RunDescription(), fresh=False, flow_run="3").id == "b"
    assert claim("b", RunDescription(), fresh=True, flow_run="4").id == "b.3"
    assert (home / "runs" / "b.2" / "run.json").read_text() == "{"


def worker(run):
    """Start a process that holds the run's lock and sees no request to stop."""
    program = (
        "import sys\nfrom pathlib import Path\nfrom userrl.machine.slots import alone\n"
        "with alone(Path(sys.argv[1]), 'it'):\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(run.lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    return process


def test_a_process_that_sees_no_request_to_stop_is_ended_also_if_an_earlier_version_wrote_its_lock(home):
    run = make_run(home, "a", 1, state="running")
    process = worker(run)
    run.lock.write_text(json.dumps({"pid": process.pid}))
    stop(run, 0.0)
    assert (held(run.lock), run.status.state) == (False, "stopped")
    process.communicate()


def test_a_run_is_running_only_while_a_process_holds_it(home):
    run = make_run(home, "a", 1, state="running")
    process = worker(run)
    assert run.status.state == "running"
    assert " running " in userrl("runs", "list").stdout
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not held(run.lock)
    assert run.status.state == "died"
    assert "start it again to continue\n" in userrl("runs", "list").stdout
    assert "a: died (its process is gone; start it again to continue)" in userrl("runs", "show", "a").stdout
    assert json.loads(userrl("runs", "list", "--json").stdout)[0]["state"] == "died"


def test_a_run_of_another_machine_is_asked_to_stop_and_no_process_of_this_one_is_ended_for_it(home):
    run = make_run(home, "a", 1, state="running")
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        with alone(run.lock, "it"), alone(home / "slot.lock", "it"):
            (home / "slot.lock").write_text(json.dumps({"pid": bystander.pid}))  # as earlier versions wrote it
            run.lock.write_text(json.dumps({"pid": bystander.pid, "host": "node-2"}))
            assert holder_of(home / "slot.lock") == f"process {bystander.pid}"
            with raises("run.in_use", f"process {bystander.pid} on node-2"):
                stop(run, 0.0)
        assert (run.folder / "stop").exists()
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_run_says_how_its_work_ended_and_a_look_never_keeps_anyone_out(home):
    run = make_run(home, "a", 1)
    with alone(run.lock, "it"):
        with run.at_work():
            assert run.status.state == "running"
        assert run.status.state == "completed"
        with raises("recipe.invalid_value"), run.at_work():
            raise ConfigError("recipe.invalid_value", "no good")
        assert (run.status.state, run.status.error) == ("failed", "no good")
        with pytest.raises(KeyboardInterrupt), run.at_work():
            raise KeyboardInterrupt
        assert run.status.state == "stopped"
    for _ in range(50):
        held(run.lock)
        with alone(run.lock, "it"):
            assert held(run.lock)


@pytest.mark.parametrize("code", ["run.stopped", "budget.spent"])
def test_a_run_that_a_person_or_its_budget_stopped_has_not_failed_and_is_the_latest(home, code):
    make_run(home, "a", 1)
    run = make_run(home, "b", 2)
    with alone(run.lock, "it"), raises(code), run.at_work():
        raise TrainingError(code, "Start it again to continue.")
    assert (run.status.state, run.status.code, run.status.error) == ("stopped", code, "Start it again to continue.")
    assert find("latest").id == "b"


def test_a_run_that_failed_before_rl_is_not_the_latest_until_it_goes_on(home):
    older, newer = make_run(home, "a", 1), make_run(home, "b", 2)
    for run in (older, newer):
        TurnLog.open(warehouse_dir(), run.id, run_fields={"created": run.info.created}).close()

    def latest():
        return find("latest").id, find_run(warehouse_dir(), "latest")["run_id"]

    assert latest() == ("b", "b")
    with raises("recipe.invalid_value"), newer.at_work():
        raise ConfigError("recipe.invalid_value", "no good")
    assert latest() == ("a", "a")
    with newer.at_work():
        assert latest() == ("b", "b")
        newer.stage("rl-1").mkdir(parents=True)
    with raises("recipe.invalid_value"), newer.at_work():
        raise ConfigError("recipe.invalid_value", "no good")
    assert latest() == ("b", "b")


@pytest.mark.parametrize("name", ["../../../tmp/evil", "/etc/evil", "..", ".", "a/../../b", "\x00", "a\nb", "x" * 500])
def test_a_run_s_name_cannot_leave_the_runs_folder(home, name):
    made = identity({"name": "recipe"}, seed=0, backend="local", name=name, init_from=None)
    run = claim(made, RunDescription(name=name), fresh=False, flow_run="1")
    assert run.folder.parent == home / "runs"
    assert run.folder.name == made
    assert len(made) < 100
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def test_a_profile_that_is_a_file_is_named_and_not_printed_as_a_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "stages" / "sft").mkdir(parents=True)
    info = RunInfo(id="a", created=0.0, recipe="naive-sum", profile="laptop")
    assert Run("a", tmp_path, info).restart.endswith("train/naive-sum -p seed=0 -p profile=laptop")
    mine = Run("a", tmp_path, replace(info, profile="mine")).restart
    assert "(including name, overrides and the profile's file)" in mine
    assert mine.endswith("train/naive-sum -p seed=0")
