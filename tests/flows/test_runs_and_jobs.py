"""Run identity, stage results, progress lines."""

import json

import pytest

from flows.run.job import Actor, Job, ProgressReader, ProgressWriter, begin_line, file_hash
from flows.run.run import all_runs, claim, delete, find, identity, of_flow_run
from userrl_core.errors import ConfigError


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def make_job(tmp_path, **changes):
    given = {
        "kind": "rl",
        "stage": "rl-1",
        "run_id": "r",
        "folder": tmp_path / "stage",
        "warehouse": tmp_path / "warehouse",
        "recipe": {"name": "x"},
        "inputs": {"before": {"sha256": "a", "step": 0}},
    }
    return Job(**(given | changes))


def test_what_decides_the_result_is_in_the_key_and_nothing_else(tmp_path):
    job = make_job(tmp_path)
    assert job.key == make_job(tmp_path, options={"wandb": "off"}).key
    assert job.key == make_job(tmp_path, folder=tmp_path / "elsewhere").key
    for change in (
        {"seed": 1},
        {"recipe": {"name": "y"}},
        {"inputs": {"before": {"sha256": "b", "step": 0}}},
        {"actors": [Actor(label="RL", kind="checkpoint", sha256="c")]},
    ):
        assert job.key != make_job(tmp_path, **change).key


def test_a_result_holds_only_while_its_files_are_unchanged(tmp_path):
    job = make_job(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"weights")
    job.finish({"step": 3, "files": {str(weights): file_hash(weights)}})
    assert job.result() == {"step": 3, "files": {str(weights): file_hash(weights)}}
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
    reader = ProgressReader(path)
    assert [line["step"] for line in reader] == [1]
    begin_line(path)
    ProgressWriter(path)(2, 10, reward=None)
    assert [line["step"] for line in reader] == [2]
    assert list(reader) == []


def test_the_same_parameters_are_the_same_run_and_fresh_is_another():
    base = identity({"name": "x"}, seed=1, backend="local", name="", init_from=None)
    assert base == identity({"name": "x"}, seed=1, backend="local", name="", init_from=None)
    assert base != identity({"name": "x"}, seed=2, backend="local", name="", init_from=None)
    first = claim(base, {"name": "x"}, fresh=False, flow_run="one")
    assert claim(base, {"name": "x"}, fresh=False, flow_run="two").id == first.id == base
    second = claim(base, {"name": "x"}, fresh=True, flow_run="three")
    assert second.id == f"{base}.2"
    assert claim(base, {"name": "x"}, fresh=True, flow_run="three").id == second.id  # a retry of that flow run
    assert claim(base, {"name": "x"}, fresh=False, flow_run="four").id == second.id  # the newest goes on
    assert of_flow_run("three").id == second.id
    assert of_flow_run("unknown") is None


def test_runs_are_found_by_id_beginning_name_and_latest(home):
    with pytest.raises(ConfigError, match="no run"):
        find("latest")
    a = claim("alpha-s0-1", {"name": "alpha"}, fresh=False, flow_run="a")
    b = claim("beta-s0-2", {"name": "beta"}, fresh=False, flow_run="b")
    assert [run.id for run in all_runs()] == [a.id, b.id]
    assert find("latest").id == b.id
    assert find("alpha").id == find("alpha-s0").id == a.id
    with pytest.raises(ConfigError, match=r"There is no run 'alpha-s0-2' \(did you mean"):
        find("alpha-s0-2")
    delete(a)
    assert [run.id for run in all_runs()] == [b.id]
    assert sorted(path.name for path in (home / "runs").iterdir()) == [b.id]


def test_a_name_with_slashes_stays_inside_the_runs_folder(home):
    base = identity({"name": "x"}, seed=0, backend="local", name="../../etc/passwd", init_from=None)
    run = claim(base, {"name": "x"}, fresh=False, flow_run="x")
    assert run.folder.resolve().parent == (home / "runs").resolve()


def test_a_job_survives_its_file(tmp_path):
    job = make_job(tmp_path, actors=[Actor(label="SFT", kind="checkpoint", path="p", sha256="s")])
    assert Job.model_validate(json.loads(job.write().read_text())) == job
