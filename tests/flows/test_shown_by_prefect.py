"""What Prefect's pages show of a run (one page that is written anew in place, tags, and a name that is no path), and what a flow
says that refuses.
"""

import json
import logging
import os
import subprocess
import sys

import pytest

from flows.server.settings import _stopped
from tests.migrated import migrate

SHOWN = """
import json, runpy, sys
from flows.server.settings import settle
from userrl.machine.home import warehouse_dir
settle()
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.runtime import flow_run
from flows.server.keyless import keyless_flow
from flows.stages.artifacts import label, show_markdown, show_page
from userrl.run.plan import plan_run
from userrl.run.request import TrainRequest
from userrl_core.errors import TrainingError
from warehouse import TurnLog

def failed(flow, flow_run, state):
    print("FAILED", flow_run.parameters["code"])

@keyless_flow(on_failure=[failed])
def ends(code):
    raise TrainingError(code, f"Ended by {code}.")

@flow(flow_run_name="/somewhere/own.yaml-3")
def shown():
    plan = plan_run(TrainRequest(recipe="rloo", profile="laptop", seed=3))
    with plan.begin() as run, TurnLog.open(warehouse_dir(), run.id):
        label(plan, run)
        for _ in range(3):
            show_page(plan, run)
        show_markdown(f"{run.id}-report", "# over", "report")
        with get_client(sync_client=True) as client:
            pages = client.read_artifacts(artifact_filter=ArtifactFilter(key=ArtifactFilterKey(like_="%-report")))
            now = client.read_flow_run(flow_run.id)
        told = {"pages": [page.data for page in pages], "tags": sorted(now.tags), "name": now.name, "run": run.id}
        print("SHOWN", json.dumps(told))

shown()
for code in ("run.stopped", "budget.spent"):
    state = ends(code, return_state=True)
    with get_client(sync_client=True) as client:
        known = client.read_flow_run(state.state_details.flow_run_id).state
    try:
        state.result()
    except TrainingError as error:
        print("ENDED", known.type.value, error.code, error)
sys.argv[1:] = ['{"recipe": "nosuch"}']
runpy.run_module("flows.train", run_name="__main__", alter_sys=True)  # while the temporary server is there
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The process that showed a run and then refused another."""
    home = tmp_path_factory.mktemp("home")
    migrate(home / "prefect")
    given = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT_")}
    given |= {"USERRL_HOME": str(home), "PREFECT_HOME": str(home / "prefect"), "PREFECT_API_URL": "", "NO_COLOR": "1"}
    return subprocess.run([sys.executable, "-c", SHOWN], env=given, capture_output=True, text=True, check=False)


def test_a_run_has_one_page_tags_and_a_name_that_is_no_path(done):
    told = [line for line in done.stdout.splitlines() if line.startswith("SHOWN ")]
    assert told, done.stdout + done.stderr
    shown = json.loads(told[0].removeprefix("SHOWN "))
    assert shown["pages"] == ["# over"]
    assert shown["tags"] == ["profile:laptop", "recipe:rloo", f"run:{shown['run']}", "seed:3"]
    assert shown["name"] == "rloo-3"


def test_a_flow_whose_run_a_person_stopped_is_cancelled_and_one_whose_budget_is_spent_has_failed(done):
    ends = [line for line in done.stdout.splitlines() if line.startswith(("ENDED ", "FAILED "))]
    assert ends == [
        "ENDED CANCELLED run.stopped Ended by run.stopped.",
        "FAILED budget.spent",
        "ENDED FAILED budget.spent Ended by budget.spent.",
    ]


def test_a_flow_that_refuses_says_one_sentence_and_no_stack(done):
    assert done.returncode == 1
    assert "There is no recipe 'nosuch'" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_a_cancelled_run_is_called_stopped_and_a_failed_one_is_not_touched():
    logger, heard = logging.Logger("prefect.flow_runs.test"), []
    logger.addFilter(_stopped)
    logger.addHandler(kept := logging.Handler())
    kept.emit = heard.append
    for level, text in (
        (logging.ERROR, "Crash detected! Execution was aborted by a termination signal."),
        (logging.ERROR, "Finished in state Running()"),
        (logging.ERROR, "Finished in state Crashed('Execution was aborted by a termination signal.')"),
        (logging.ERROR, "Crash detected! Request to the server failed."),
        (logging.ERROR, "Finished in state Failed('x')"),
    ):
        logger.log(level, text)
    said = [(record.levelname, record.getMessage()) for record in heard]
    assert said == [
        (
            "INFO",
            "Stopped: it was cancelled, or its worker ended. Started again with the same parameters, it continues.",
        ),
        ("ERROR", "Crash detected! Request to the server failed."),
        ("ERROR", "Finished in state Failed('x')"),
    ]
