"""The study of environments.yaml: environments of verifiers and of an OpenEnv server, trained from a cold start on random replies.

    python -m lab.studies.environments [ENVIRONMENT] [--seeds 1201-1205]
    python -m lab.studies.environments --list

Needs the Pythons of `lab.checks.verifiers_check` and `lab.checks.openenv_check`, and the plan's port for the OpenEnv server.
Each seed is an ordinary run of the home in $USERRL_HOME. Finished runs are not repeated, interrupted ones continue. A finished
run adds its row to data/environments/runs.csv, and the mean score of the conversations of each step to scores.csv. The rows of
seed 0, on which the settings were chosen, are printed and not stored.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from lab.checks import openenv_check, verifiers_check
from lab.checks.served_gym import wait_for_port
from lab.environments import python_with
from lab.rows import DATA, add_row
from lab.studies.all_recipes import processor
from lab.studies.registered import (
    Cell,
    Planned,
    chosen,
    plan_hash,
    read_plan,
    run_each,
    seeds_of,
    study_arguments,
    study_request,
)
from userrl.machine.home import home, quiet_process, warehouse_dir
from userrl.machine.interrupts import leave_on_term
from userrl_core.gyms import make, tasks
from userrl_core.interact import InteractCall, render_call
from userrl_gym_openenv.gym import PYTHON as OPENENV_PYTHON
from userrl_gym_verifiers.process import FOLDER
from userrl_gym_verifiers.process import PYTHON as VERIFIERS_PYTHON
from warehouse import open_warehouse

PLAN = Path(__file__).with_suffix(".yaml")
RUNS, SCORES = (DATA / "environments" / name for name in ("runs.csv", "scores.csv"))
SERVER = verifiers_check.ENVIRONMENTS.with_name("openenv_server.py")
PYTHONS = (
    (VERIFIERS_PYTHON, ".venv-verifiers", verifiers_check.PACKAGE),
    (OPENENV_PYTHON, ".venv-openenv", openenv_check.PACKAGE),
)
COMMIT = "SELECT code_version FROM runs WHERE run_id = $run"
TRAINED = """
SELECT step, round(avg(score), 4) AS score, count(*) AS conversations FROM trajectories
WHERE run_id = $run AND phase = 'train' AND admitted GROUP BY step ORDER BY step
"""
HELD_OUT = """
SELECT policy, round(avg(score), 4) AS score, count(DISTINCT task_id) AS tasks FROM trajectories
WHERE run_id = $run AND phase = 'evaluate' AND admitted GROUP BY policy
"""


def main() -> None:
    """Train each environment seed by seed."""
    parser = study_arguments("Environments of others.")
    arguments = parser.parse_args()
    if arguments.tables:
        parser.error("the table is written by python -m lab.pages.data_tables data/environments/README.md")
    leave_on_term()
    quiet_process()
    plan = read_plan(PLAN)
    for variable, folder, package in PYTHONS:
        if variable not in os.environ:
            os.environ[variable] = str(python_with(Path(folder), package).absolute())
    os.environ[FOLDER] = str(verifiers_check.ENVIRONMENTS)
    seeds = seeds_of(arguments.seeds, plan["first_seed"], plan["first_seed"] + plan["seeds"] - 1)
    names = chosen(plan, arguments.family)
    with line_server(plan["port"]) if "line" in names else nullcontext():
        run_each(planned(plan, names, seeds), add_rows, listed=arguments.listed)


def planned(plan: Mapping[str, Any], names: list[str], seeds: range) -> Iterator[Planned]:
    """Yield the runs, with the evaluation on held-out tasks."""
    for name in names:
        environment, chats = plan["families"][name], write_chats(plan, name)
        stage = {"steps": environment["steps"], "horizon": environment["horizon"], "mix": {environment["gym"]: 1}}
        changes = {
            **plan["settings"],
            **environment["settings"],
            "cold_start.data": str(chats),
            "stages": [stage],
            "evaluate.gyms": [environment["gym"]],
            "evaluate.horizon": environment["horizon"],
        }
        for seed in seeds:
            request = study_request(plan, seed, changes).model_copy(update={"until": None})
            yield {"environment": name, "seed": seed}, request


def add_rows(cell: Cell, run: str, cpu_seconds: float) -> None:
    """Add the rows of a run."""
    with open_warehouse(warehouse_dir()) as warehouse:
        steps, held_out = (warehouse.rows(query, run=run) for query in (TRAINED, HELD_OUT))
        [(commit,)] = warehouse.sql(COMMIT, run=run).fetchall()
    score_by_policy = {row["policy"]: row["score"] for row in held_out}
    row = {
        **cell,
        "plan": plan_hash(PLAN),
        "run": run,
        "commit": commit,
        "machine": processor(),
        "first_step": steps[0]["score"],
        "last_step": steps[-1]["score"],
        "cold_start": score_by_policy["SFT"],
        "last": score_by_policy.get("RL last step", score_by_policy["RL"]),
        "held_out_tasks": held_out[0]["tasks"],
        "cpu_seconds": round(cpu_seconds, 1),
    }
    print(row, flush=True)
    if cell["seed"]:
        add_row(RUNS, ("environment", "seed"), row)
        for step in steps:
            add_row(SCORES, ("environment", "seed", "step"), {**cell, **step})


def write_chats(plan: Mapping[str, Any], name: str) -> Path:
    """Write conversations with random replies on the training tasks, and return the file."""
    environment, rng = plan["families"][name], random.Random(name)
    path = home() / "chats" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    settings = environment["settings"][f"gyms.{environment['gym']}"]
    pool = list(tasks(environment["gym"], "train", **settings["tasks"]))

    async def conversation(number: int) -> dict[str, Any]:
        gym = make(environment["gym"], pool[number % len(pool)], **settings.get("config", {}))
        messages = [{"role": "user", "content": await asyncio.to_thread(gym.reset, number)}]
        while not gym.done and gym.turns < environment["horizon"]:
            replies = environment["replies"] if gym.turns else environment.get("first", environment["replies"])
            call = InteractCall("action", rng.choice(replies))
            messages.append({"role": "assistant", "content": render_call(call)})
            messages.append({"role": "tool", "content": (await gym.step(call)).observation})
        await gym.aclose()
        return {"messages": messages[:-1]}

    async def conversations() -> list[dict[str, Any]]:
        return [await conversation(number) for number in range(plan["chats"])]

    path.write_text("".join(f"{json.dumps(chat)}\n" for chat in asyncio.run(conversations())), encoding="utf-8")
    return path


@contextmanager
def line_server(port: int) -> Iterator[None]:
    """Serve the typed environment of the tests by OpenEnv itself."""
    # OpenEnv's server prints a traceback for each connection that a client closes.
    command = [os.environ[OPENENV_PYTHON], str(SERVER), str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for_port(port)
            if server.poll() is not None:
                sys.exit(f"Port {port} is in use. Free it, since the environment `line` is served there.")
            yield
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
