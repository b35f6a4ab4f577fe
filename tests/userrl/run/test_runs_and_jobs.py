"""Run identity, stage results, progress lines."""

import pytest

from curricula import Recipe
from tests.makers import raises
from userrl.machine.hashes import file_hash
from userrl.run.job import Actor, Inputs, ProgressWriter, StageJob
from userrl.run.results import TrainResult
from userrl.run.run import RunDescription, all_runs, claim, delete, find, identity, of_flow_run
from userrl_core.json_files import GrowingLines, read_json, write_json


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def after(sha256):
    return Inputs(before=TrainResult(checkpoint="c", sha256=sha256))


def make_job(tmp_path, **changes):
    given = {
        "kind": "rl",
        "stage": "rl-1",
        "run_id": "r",
        "folder": tmp_path / "stage",
        "warehouse": tmp_path / "warehouse",
        "recipe": Recipe(name="x"),
        "inputs": after("a"),
    }
    return StageJob(**(given | changes))


def test_what_decides_the_result_is_in_the_key_and_nothing_else(tmp_path):
    job = make_job(tmp_path)
    assert job.key == make_job(tmp_path, options={"wandb": "off"}).key
    assert job.key == make_job(tmp_path, folder=tmp_path / "elsewhere").key
    for change in (
        {"seed": 1},
        {"recipe": Recipe(name="y")},
        {"inputs": after("b")},
        {"actors": [Actor(label="RL", kind="checkpoint", sha256="c")]},
    ):
        assert job.key != make_job(tmp_path, **change).key


def test_a_result_holds_only_while_its_files_are_unchanged(tmp_path):
    job = make_job(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"weights")
    result = TrainResult(checkpoint=tmp_path, step=3, files={weights: file_hash(weights)})
    job.finish(result)
    assert job.result() == result
    assert make_job(tmp_path, seed=1).result() is None
    weights.write_bytes(b"other weights")
    assert job.result() is None
    weights.unlink()
    assert job.result() is None


def test_an_unreadable_result_is_no_result(tmp_path):
    job = make_job(tmp_path)
    job.folder.mkdir()
    (job.folder / "result.json").write_text('{"key": ')
    assert job.result() is None


def test_progress_lines_survive_a_torn_end(tmp_path):
    path = tmp_path / "progress.jsonl"
    writer = ProgressWriter(path)
    writer(1, 10, reward=0.5)
    with path.open("a") as file:
        file.write('{"step": 2, "to')  # killed here
    reader = GrowingLines(path)
    assert [line["step"] for line in reader] == [1]
    ProgressWriter(path)(2, 10, reward=None)
    assert [line["step"] for line in reader] == [2]
    assert list(reader) == []


def test_the_same_parameters_are_the_same_run_and_fresh_is_another():
    base = identity({"name": "x"}, seed=1, backend="local", name="", init_from=None)
    assert base == identity({"name": "x"}, seed=1, backend="local", name="", init_from=None)
    assert base != identity({"name": "x"}, seed=2, backend="local", name="", init_from=None)
    first = claim(base, RunDescription(), fresh=False, flow_run="one")
    assert claim(base, RunDescription(), fresh=False, flow_run="two").id == first.id == base
    second = claim(base, RunDescription(), fresh=True, flow_run="three")
    assert second.id == f"{base}.2"
    assert claim(base, RunDescription(), fresh=True, flow_run="three").id == second.id  # a retry of that flow run
    assert claim(base, RunDescription(), fresh=False, flow_run="four").id == second.id  # the newest goes on
    outside = [claim(base, RunDescription(), fresh=True, flow_run=None).id for _ in range(2)]
    assert outside == [f"{base}.3", f"{base}.4"]  # without a flow run there is nothing to retry
    assert of_flow_run("three").id == second.id
    assert of_flow_run("unknown") is None


def test_runs_are_found_by_id_beginning_name_and_latest(home):
    with raises("run.no_such_run"):
        find("latest")
    a = claim("alpha-s0-1", RunDescription(name="alpha"), fresh=False, flow_run="a")
    b = claim("beta-s0-2", RunDescription(name="beta"), fresh=False, flow_run="b")
    assert [run.id for run in all_runs()] == [a.id, b.id]
    assert find("latest").id == b.id
    assert find("alpha").id == find("alpha-s0").id == a.id
    with raises("run.no_such_run", "'alpha-s0-2'", "did you mean"):
        find("alpha-s0-2")
    delete(a)
    assert [run.id for run in all_runs()] == [b.id]
    assert sorted(path.name for path in (home / "runs").iterdir()) == [b.id]


def test_a_name_with_slashes_stays_inside_the_runs_folder(home):
    base = identity({"name": "x"}, seed=0, backend="local", name="../../etc/passwd", init_from=None)
    run = claim(base, RunDescription(), fresh=False, flow_run="x")
    assert run.folder.resolve().parent == (home / "runs").resolve()


@pytest.mark.parametrize(
    ("name", "value"), [("seed", "3"), ("seed", True), ("resolved", []), ("profile", 1), ("id", None), ("created", "x")]
)
def test_a_run_whose_record_has_a_value_of_another_type_is_skipped_and_named(home, capsys, name, value):
    sound, damaged = (claim(f"{of}-s0-1", RunDescription(name=of), fresh=False, flow_run=of) for of in "ab")
    record = read_json(damaged.folder / "run.json")
    record.pop("crc")  # as runs of early versions are stored
    write_json(damaged.folder / "run.json", {**record, name: value})
    assert [run.id for run in all_runs()] == [sound.id]
    assert str(damaged.folder) in capsys.readouterr().err
    write_json(sound.folder / "status.json", {"state": 3, "updated": None})
    assert sound.status.state == "new"


def test_a_job_survives_its_file(tmp_path):
    job = make_job(tmp_path, actors=[Actor(label="SFT", kind="checkpoint", path="p", sha256="s")])
    assert StageJob.read(job.write()) == job
