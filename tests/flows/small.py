"""A training run small enough for tests: two stages of four steps on the tiny travel tier."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.migrated import migrate
from warehouse import open_warehouse

OVERRIDES: dict[str, Any] = {
    "demonstrations.episodes": 120,
    "demonstrations.top_k": 80,
    "cold_start.steps": 60,
    "algorithm.batch": 3,
    "algorithm.group": 4,
    "evaluate.every": 2,
    "evaluate.tasks": 12,
    "evaluate.validation_tasks": 8,
    "stages": [
        {"steps": 4, "horizon": 4, "mix": {"travel": 1}},
        {"steps": 6, "horizon": 5, "mix": {"travel": 1}},
    ],
}
PROGRAM = """
import json, sys
from userrl.machine.home import quiet_process
quiet_process()
from curricula.validation import validated
from userrl.run.plan import plan_run
from userrl.run.request import TrainRequest
from userrl.stages.here import train_here

def say(text, *words):
    print(text % words if words else text, flush=True)

report = train_here(plan_run(validated(TrainRequest, json.loads(sys.argv[1]), "train")), say=say)
print("RESULT " + json.dumps(report.model_dump(mode="json")), flush=True)
"""
"""A run as `userrl train` does it: the stages of the flow, without Prefect and its server, which are most of a small run's time."""

FLOW = """
import json, sys
from flows.train import train
said = "RESULT " + json.dumps(train(**json.loads(sys.argv[1])), default=str)
sys.stdout.write(said + "\\n")  # in one piece, before the server that ends says so on the same pipe
sys.stdout.flush()
"""
EVALUATION = """
import json, sys
from userrl.evaluation.planned import evaluate_here, plan_evaluation
from userrl.run.request import EvaluateRequest
evaluate_here(plan_evaluation(EvaluateRequest(**json.loads(sys.argv[1]))))
"""


def environment(home: Path) -> dict[str, str]:
    """A home of its own, a temporary server, one thread so that it is quick beside other tests."""
    return {
        **os.environ,
        "USERRL_HOME": str(home),
        "PREFECT_HOME": str(home / "prefect"),
        "PREFECT_API_URL": "",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
        "USERRL_THREADS": "1",
    }


def start(home: Path, *, flow: bool = False, threads: int = 1, **parameters: Any) -> subprocess.Popen[str]:
    """Start a run in a process. flow: as a Prefect flow with a temporary server."""
    home.mkdir(parents=True, exist_ok=True)
    if flow:
        migrate(home / "prefect")
    given = {"recipe": "equalized-r2g", "overrides": OVERRIDES, "wandb": "off", **parameters}
    return subprocess.Popen(
        [sys.executable, "-c", FLOW if flow else PROGRAM, json.dumps(given)],
        env=environment(home) | {"USERRL_THREADS": str(threads)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def result(process: subprocess.Popen[str], timeout: float = 900) -> tuple[dict[str, Any], str]:
    """Return the report of a run, and all that it printed."""
    said, _ = process.communicate(timeout=timeout)
    lines = [line for line in said.splitlines() if line.startswith("RESULT ")]
    assert lines, said[-3000:]
    return json.loads(lines[0].removeprefix("RESULT ")), said


def played(home: Path, given: dict[str, Any], **env: str) -> list[Any]:
    """Every turn of an evaluation: task, number, what was said, its tokens and how it was scored."""
    done = subprocess.run(
        [sys.executable, "-c", EVALUATION, json.dumps(given)],
        env={**environment(home), **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    with open_warehouse(home / "warehouse") as warehouse:
        return warehouse.sql(
            """SELECT task_id, turn, message, prompt_tokens, completion_tokens, reward, final, ended, kept
               FROM turns JOIN (SELECT traj_id, score AS final, stop_reason AS ended, admitted AS kept FROM trajectories)
               USING (traj_id) ORDER BY ALL"""
        ).fetchall()
