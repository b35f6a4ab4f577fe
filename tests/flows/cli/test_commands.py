"""Bad input at the door: one sentence, exit 1; a wrong call exits 2; nothing heavy is imported for help."""

import json
import os
import resource
import shlex
import socket
import subprocess
import sys

import pytest

from flows.cli.arguments import parse_user
from flows.cli.invocation import again, default_deployment
from flows.cli.main import main
from flows.cli.quickstart import check, parse_parameters
from flows.server.own_server import server_state
from tests.flows.small import OVERRIDES
from tests.llama import llama
from tests.makers import raises
from tests.ports import free_port
from userrl.run.job import StageJob


def run(*command, home, **environment):
    given = {**os.environ, "USERRL_HOME": str(home), "NO_COLOR": "1", **environment}
    given.pop("PREFECT_API_URL", None)
    return subprocess.run([sys.executable, "-m", *command], env=given, capture_output=True, text=True, check=False)


BAD_INPUT = [
    (["-p", "recipe=equalised-r2g"], "There is no recipe 'equalised-r2g' (did you mean 'equalized-r2g'?)"),
    (["-p", "sead=1"], "Train: unknown key 'sead' (did you mean 'seed'?)"),
    (["-p", 'overrides={"stages.0.horizon": 0}'], "stages.0.horizon"),
    (["-p", 'overrides={"demonstrations.top_k": -1}'], "demonstrations.top_k"),
    (["-p", "init_from=/nowhere/at/all"], "is not a checkpoint"),
    (["-p", "until=rl-9"], "until is 'rl-9'"),
    (["-p", 'budget={"hours": 0}'], "budget.hours"),
    (["-p", 'overrides={"algorithm.kl_reward_coef": 0.1}'], "algorithm.kl_coef is the penalty in the loss"),
    (["profile=laptop-lm"], "userrl model fetch smollm2-135m"),
    (["-p", "backend=verl"], "verl trains a checkpoint, and profile laptop trains a model from scratch"),
    (["-p", "seed=9223372036854775808"], "below 2 to the 63rd"),
    (["-p", "seed=-1"], "below 2 to the 63rd"),
    (["-p", "seed"], "-p needs KEY=VALUE"),
    (["-p", "seed=abc"], "seed: input should be a valid integer"),
    (["sead=1"], "Train: unknown key 'sead' (did you mean 'seed'?)"),
    (["overrides={credit.gamma:0.5}"], "The shell removes double quotes"),
    (["budget=5"], "budget: give keys with values"),
    (["--deployment", "sweep/gamma", "paralel=1"], "Sweep: unknown key 'paralel' (did you mean 'parallel'?)"),
    (["--deployment", "train/equalized-r2h"], "did you mean 'train/equalized-r2g'?"),
]
EACH = """
import json, os, sys
from flows.cli.quickstart import main

for parameters in json.loads(sys.argv[1]):
    reads, writes = os.pipe()
    if os.fork() == 0:
        os.dup2(writes, 2)
        os._exit(main(parameters))
    os.close(writes)
    with open(reads) as pipe:
        said = pipe.read()
    print(json.dumps([os.waitstatus_to_exitcode(os.wait()[1]), said]), flush=True)
"""
"""Each call in a fork of one process, as its imports take more time than it does."""


@pytest.mark.usefixtures("prepared")
def test_bad_input_is_refused_in_one_sentence_before_anything_starts(tmp_path):
    calls = json.dumps([parameters for parameters, _ in BAD_INPUT])
    given = {**os.environ, "USERRL_HOME": str(tmp_path), "NO_COLOR": "1"}
    given.pop("PREFECT_API_URL", None)
    done = subprocess.run([sys.executable, "-c", EACH, calls], env=given, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for (parameters, sentence), (code, said) in zip(BAD_INPUT, answers, strict=True):
        assert code == 1, parameters
        (line,) = said.strip().splitlines()
        assert line.startswith("error: ")
        assert sentence in line
    assert not (tmp_path / "logs").exists()


def test_a_run_of_a_language_model_says_how_long_it_takes_before_anything_starts(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    asked = {"profile": "laptop-lm", "overrides": {"model.path": str(llama(tmp_path / "llama"))}}
    assert check(default_deployment(asked), asked) is None
    assert "this run will take about" in capsys.readouterr().out
    assert not (tmp_path / "home" / "logs").exists()


def test_make_run_does_not_wait_for_the_interpreter_to_be_taken_down():
    slow = "import atexit, runpy, sys, time; atexit.register(time.sleep, 60); "
    begun = (
        slow + "sys.argv += ['--deployment', 'train/x']; runpy.run_module('flows.cli.make_run', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", begun], capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 1
    assert done.stderr.startswith("error: prefect.yaml has no deployment 'train/x'")


def test_make_run_takes_parameters_by_name():
    asked = ["make", "-n", "run", "seed=3", 'overrides={"credit.gamma": 0.5}', "ARGS=-p name=x"]
    shown = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    words = next(line for line in shown.splitlines() if "make_run" in line)
    assert shlex.split(words)[3:5] == ["-p", "name=x"]
    assert sorted(shlex.split(words)[6::2]) == ['overrides={"credit.gamma": 0.5}', "seed=3"]


def test_the_command_that_goes_on_repeats_every_parameter():
    said = again("train/rloo", {"seed": 3, "name": "a b", "overrides": {"credit.gamma": 0.5}})
    assert shlex.split(said) == [
        *("make", "run", "ARGS=--deployment train/rloo"),
        *("seed=3", "name=a b", 'overrides={"credit.gamma": 0.5}'),
    ]
    assert again("train/horizon-fork", {}) == "make run"
    assert again("train/scaling-inter", {"profile": "laptop-lm"}) == "make run profile=laptop-lm"
    assert again("train/equalized-r2g", {"profile": "qwen3-8b"}) == "make run profile=qwen3-8b"
    names = ["1", "null", "a$b", " x", '{"', 'Ann\'s "one"', "é", "a#b", "two\nlines", "c:\\d"]
    said = again("train/horizon-fork", {f"p{number}": name for number, name in enumerate(names)})
    shown = subprocess.run(["make", "-n", *shlex.split(said)[1:]], capture_output=True, text=True, check=True).stdout
    words = shlex.split(next(line for line in shown.splitlines() if "make_run" in line))
    assert sorted(parse_parameters([word for word in words if "=" in word]).items()) == [
        (f"p{number}", name) for number, name in enumerate(names)
    ]


@pytest.mark.usefixtures("prepared")
def test_a_recipe_shown_names_the_command_that_trains_it(tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text("name: own\nsource: ours\nextends: equalized-r2g\n")
    for name in ("rloo", str(own)):
        said = run("flows.cli.main", "recipe", "show", name, "--profile", "laptop", home=tmp_path).stdout
        assert said.splitlines()[-1] == f"Next: userrl train {name} --profile laptop"


@pytest.mark.usefixtures("prepared")
def test_a_sweep_that_is_not_there_is_one_sentence(tmp_path):
    done = run("flows.cli.main", "sweep", "run", "nosuch", home=tmp_path)
    assert (done.returncode, done.stderr.count("\n"), done.stdout) == (1, 1, "")
    assert "There is no sweep 'nosuch'. Known: em-k, gamma" in done.stderr


@pytest.mark.usefixtures("prepared")
def test_no_runs_says_where_it_looked(tmp_path):
    assert f"no runs yet in {tmp_path}" in run("flows.cli.main", "runs", "list", home=tmp_path).stdout


@pytest.mark.usefixtures("prepared")
def test_a_busy_port_is_said_and_nothing_is_started(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", free_port()))
        other.listen()
        port = other.getsockname()[1]
        assert server_state(port) == "taken"
        done = run("flows.cli.quickstart", home=tmp_path, USERRL_PORT=str(port))
    assert done.returncode == 1
    assert f"Port {port} on 127.0.0.1 is used" in done.stderr
    assert server_state(port) == "free"


@pytest.mark.usefixtures("prepared")
def test_a_missing_checkpoint_a_missing_run_and_a_wrong_call(tmp_path):
    missing = run("flows.cli.main", "evaluate", str(tmp_path / "none"), home=tmp_path)
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    assert "is not a checkpoint" in missing.stderr
    absent = run("flows.cli.main", "report", "latest", home=tmp_path)
    assert (absent.returncode, absent.stderr.count("\n")) == (1, 1)
    assert run("flows.cli.main", "report", "--nonsense", home=tmp_path).returncode == 2
    assert run("userrl.worker.main", home=tmp_path).returncode == 2


HEAVY = {"torch", "prefect", "duckdb", "transformers", "numpy", "rich", "asyncio", "curricula", "userrl_core.gyms"}


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (["--help"], HEAVY | {"pydantic", "yaml", "importlib.metadata", "userrl", "flows.cli.runs"}),
        (["runs", "--help"], HEAVY | {"pydantic", "yaml", "importlib.metadata"}),
        (
            ["runs", "list"],
            HEAVY | {"pydantic", "yaml", "psutil", "importlib.metadata", "userrl_core.records"},
        ),
    ],
)
def test_a_quick_command_loads_what_it_needs_and_no_more(tmp_path, words, heavy):
    code = (
        "import sys; from flows.cli.start import main\n"
        "try:\n    main()\nexcept SystemExit: pass\n"
        "print(); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env={**os.environ, "USERRL_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert heavy & set(done.stdout.splitlines()[-1].split()) == set()


@pytest.mark.parametrize("path", ["x" * 300 + "/recipe.yaml", "/etc/passwd/recipe.yaml", "/"])
def test_a_path_that_cannot_be_a_file_is_one_sentence(path, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["userrl", "recipe", "show", path])
    with pytest.raises(SystemExit) as ended:
        main()
    error = capsys.readouterr().err
    assert (ended.value.code, error.count("\n"), error[:7]) == (1, 1, "error: ")
    assert "Traceback" not in error


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e400"])
@pytest.mark.parametrize(
    "words",
    [
        ["serve-gym", "errand", "--idle"],
        ["sql", "select 1", "--seconds"],
        ["play", "errand", "--skill"],
        ["train", "x", "--hours"],
    ],
)
def test_an_option_takes_no_number_that_is_not_finite(words, number, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["userrl", *words, number])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert f"Invalid value for '{words[-1]}'" in capsys.readouterr().err


def test_a_command_that_starts_a_run_loads_no_statistics():
    """`scipy.stats` alone is half of the start of every process of a run."""
    code = "import sys, flows.cli.quickstart, userrl.stages.here; print('scipy.stats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def loaded_by(code: str) -> set[str]:
    code = f"import sys\n{code}\nprint(); print(*(name for name, module in sys.modules.items() if module))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_a_worker_loads_none_of_what_its_libraries_import_if_it_is_installed():
    loaded = loaded_by("import gc, userrl.worker.main as worker; worker.preload(); assert gc.isenabled()")
    unwanted = {
        "sklearn",
        "scipy",
        "accelerate",
        "dill",
        "h2",
        "trio",
        "userrl_core.gyms.tau.tasks",
        "curricula.claims",
    }
    assert loaded & {"torch", "transformers", *unwanted} == {"torch", "transformers"}


def test_the_process_that_starts_verl_loads_no_torch():
    assert "torch" not in loaded_by("import userrl.worker.train_verl")


def test_a_full_disk_under_the_turn_log_stops_the_trainer_with_one_sentence(tmp_path):
    from curricula import load

    settings = load("equalized-r2g", profile="laptop", overrides=OVERRIDES)
    job = StageJob(
        kind="distill",
        stage="distill",
        run_id="full",
        folder=tmp_path / "stage",
        warehouse=tmp_path / "warehouse",
        recipe=settings,
        options={"wandb": "off"},
    )
    path = job.write()
    done = subprocess.run(
        [sys.executable, "-m", "userrl.worker.main", str(path)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
    assert "turn log" in line
    assert "Traceback" not in done.stdout + done.stderr
    assert job.result() is None


@pytest.mark.slow
@pytest.mark.full  # tests/sweeps/test_sweep_machines.py waits for a clock too: its flow trains
@pytest.mark.timeout(1200)
def test_a_cron_schedule_really_fires(tmp_path):
    """With the pins in place: newer SQLAlchemy leaves everything healthy and no scheduled run ever appears."""
    port = free_port()
    done = subprocess.run(
        [sys.executable, "-c", CRON],
        env={**os.environ, "USERRL_HOME": str(tmp_path), "USERRL_PORT": str(port), "PREFECT_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=1000,
        check=False,
    )
    assert "FIRED" in done.stdout, (done.stdout + done.stderr)[-3000:]
    assert server_state(port) == "free"


CRON = """
import asyncio, time
from flows.cli.services import services
with services(("maintain/warehouse",)):
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId
    from prefect.client.schemas.schedules import CronSchedule

    async def main():
        async with get_client() as client:
            deployment = await client.read_deployment_by_name("maintain/warehouse")
            await client.create_deployment_schedules(deployment.id, [(CronSchedule(cron="* * * * *"), True)])
            only = DeploymentFilter(id=DeploymentFilterId(any_=[deployment.id]))
            deadline = time.monotonic() + 600
            while time.monotonic() < deadline:
                runs = await client.read_flow_runs(deployment_filter=only, limit=200)
                if any(run.auto_scheduled and run.state.is_completed() for run in runs):
                    print("FIRED")
                    return
                await asyncio.sleep(1)
            print([(run.name, run.state.name) for run in runs][:5])

    asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ('{"kind": "rule", "kind": "openai"}', "an object has the key 'kind' twice. Give a user as "),
        ('{"kind": ', "it is not JSON (Expecting value). Give a user as "),
        ('{"a": ' * 5000, "it is nested too deeply. Give a user as "),
        ('{"kind": "\udcff"}', "it is not UTF-8 text. Give a user as "),
    ],
)
def test_a_user_in_broken_json_is_one_short_sentence(text, fact):
    with raises("argument.malformed", fact) as caught:
        parse_user(text)
    assert len(str(caught.value)) < 250
    assert parse_user("rule") == "rule"
    assert parse_user('{"kind": "rule"}') == {"kind": "rule"}


def test_a_parameter_that_is_given_twice_is_refused():
    assert parse_parameters(["seed=1", "recipe=grpo"]) == {"seed": 1, "recipe": "grpo"}
    with raises("argument.malformed", "The parameter seed is given twice. Keep one."):
        parse_parameters(["seed=1", "seed=2"])
    with raises("argument.malformed", "-p overrides: an object has the key 'a' twice. The value is "):
        parse_parameters(['overrides={"a": 1, "a": 2}'])
