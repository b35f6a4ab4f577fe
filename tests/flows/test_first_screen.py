"""The whole way of the first screen: one command starts Prefect, a scheduled sweep fires, its trials train, SQL agrees."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest
import yaml

from flows.server.own_server import server_state
from tests.docs.test_documents import commands
from tests.migrated import migrate
from tests.places import ROOT
from tests.ports import free_port
from tests.sweeps.rig import TINY, small_space
from tests.waits import wait_for

PROGRAMS = Path(sys.executable).parent


@dataclass
class Terminal:
    """A terminal in which `userrl up` runs, in a folder that holds what a clone has for Prefect."""

    folder: Path
    port: int = field(default_factory=free_port)
    text: str = ""

    def __post_init__(self) -> None:
        ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [str(PROGRAMS / "userrl"), "up"],
            cwd=self.folder,
            env=self.environment | {"COLUMNS": "300"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        threading.Thread(target=self._read, args=(ours,), daemon=True).start()

    @property
    def environment(self) -> dict[str, str]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT_", "USERRL_"))}
        return clean | {"USERRL_PORT": str(self.port), "USERRL_THREADS": "1", "PYTHONPATH": str(ROOT)}

    @property
    def home(self) -> Path:
        return self.folder / ".userrl"

    def _read(self, descriptor: int) -> None:
        try:
            while data := os.read(descriptor, 4096):
                self.text += data.decode(errors="replace").replace("\r", "")
        except OSError:
            os.close(descriptor)

    def waits_for(self, text: str) -> None:
        wait_for(lambda: text in self.text or self.process.poll() is not None, 600, f"{text}: {self.text}")
        assert text in self.text, self.text

    def call(self, *command: str) -> str:
        """Type a command into another terminal in the same folder, and return its output."""
        done = subprocess.run(
            [str(PROGRAMS / command[0]), *command[1:]],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def processes(self) -> list[psutil.Process]:
        """Every living process of the folder's home."""
        living = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("USERRL_HOME") == str(self.home) and process.status() != psutil.STATUS_ZOMBIE:
                    living.append(process)
            except (psutil.Error, OSError):
                continue
        return living


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    folder = tmp_path_factory.mktemp("clone")
    shutil.copy(ROOT / "prefect.toml", folder)
    (folder / "flows").symlink_to(ROOT / "flows")
    document = yaml.safe_load((ROOT / "prefect.yaml").read_text())
    needed = [row for row in document["deployments"] if row["name"] in ("equalized-r2g", "horizon")]
    sweep = next(row for row in needed if row["entrypoint"] == "flows/sweep.py:sweep")
    space = small_space(
        folder,
        "mine",
        overrides=TINY,
        parameters={"gamma": {"key": "credit.gamma", "options": [0.6, 0.9]}},
        objectives=[{"query": "effective_turns", "direction": "minimize"}],
        budget={"trials": 2},
    )
    yearly = {"cron": "0 0 1 1 *", "timezone": "UTC", "slug": "yearly", "active": False}
    mine = {**sweep, "name": "mine", "parameters": {"space": space.name, "trials": 2}, "schedules": [yearly]}
    (folder / "prefect.yaml").write_text(yaml.safe_dump({**document, "deployments": [*needed, mine]}))
    migrate(folder / ".userrl")
    running = Terminal(folder)
    try:
        running.waits_for("Ctrl-C stops all of it.")
        yield running
    finally:
        for process in running.processes():
            process.kill()
        running.process.wait(30)


EFFECTIVE_TURNS = """
WITH last AS (SELECT run_id, max(step) AS step FROM turns WHERE phase = 'validate' GROUP BY run_id),
     conversations AS (
         SELECT run_id, traj_id, coalesce(max(turn) FILTER (WHERE reward <> 0), 0) AS effective
         FROM turns JOIN last USING (run_id, step) WHERE phase = 'validate' GROUP BY ALL)
SELECT run_id, avg(effective) AS value FROM conversations GROUP BY run_id
"""


@pytest.mark.slow
def test_a_scheduled_sweep_fires_its_trials_train_and_sql_gives_the_objective_of_each(terminal: Terminal) -> None:
    assert "worker   takes the runs of all 3 deployments" in terminal.text
    soon = (datetime.now(UTC) + timedelta(minutes=3)).strftime("%-M %-H * * *")
    terminal.call("prefect", "deployment", "schedule", "create", "sweep/mine", "--cron", soon, "--timezone", "UTC")
    assert f"on   sweep/mine               {soon} UTC" in terminal.call("userrl", "schedule", "list")
    terminal.waits_for("sweep/mine  mine  started by its schedule")
    terminal.waits_for("sweep/mine  mine  completed")
    assert terminal.text.count("train/equalized-r2g") >= 3  # two trials, and the winner on a fresh seed
    trials = json.loads(terminal.call("userrl", "sweep", "status", "mine", "--json"))
    objectives = {trial["run_id"]: trial["values"][0] for trial in trials}
    assert len(objectives) == 2
    rows = json.loads(terminal.call("userrl", "sql", EFFECTIVE_TURNS, "--json"))
    by_sql = {row["run_id"]: row["value"] for row in rows}
    assert {run: by_sql[run] for run in objectives} == pytest.approx(objectives, abs=1e-12)


def short(words: Sequence[str]) -> list[str]:
    """A command of the README with a small training, or with the small sweep in place of the shipped one."""
    file = "mine.yaml" if words[2:3] == ["run"] else "mine"
    changes = {"gamma-schedule": file, "sweep/horizon": "sweep/mine"}
    small = ["profile=laptop-quick", f"overrides={json.dumps(TINY)}"]
    if list(words) == ["make", "run"]:  # the Makefile installs, then calls this
        return ["python", "-m", "flows.cli.make_run", *small, "name=by-make"]
    if words[:3] == ["prefect", "deployment", "run"]:
        return [*words, "--watch", *(part for value in small for part in ("-p", value))]
    return [changes.get(word, word) for word in words]


ANSWERS = {
    "make run": "held-out",
    "prefect deployment run train/equalized-r2g": "Completed",
    "userrl schedule on sweep/horizon": "sweep/mine is on: ",
    "userrl sql": "reward",
    "userrl sweep run gamma-schedule": "next: userrl sweep best mine",
    "userrl sweep best gamma-schedule": "over 1 fresh seed",
}
"""What the short form of each command of the README prints."""


@pytest.mark.slow
@pytest.mark.parametrize("beginning", ANSWERS)
def test_a_command_of_the_readme_runs_with_short_overrides(terminal: Terminal, beginning: str) -> None:
    [words] = [words for words in commands(ROOT / "README.md") if " ".join(words).startswith(beginning)]
    output = terminal.call(*short(words))
    assert ANSWERS[beginning] in output


@pytest.mark.slow
def test_the_python_of_the_readme_runs_with_short_overrides(terminal: Terminal) -> None:
    [block] = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    output = terminal.call("python", "-c", block.replace("seed=1", f"seed=1, overrides={TINY!r}"))
    assert "held-out" in output


def test_the_readme_is_short_and_every_command_of_it_is_run_by_a_test() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= 900
    assert text[: text.index("\n    make run")].count("\n") < 24  # one screen
    others = {"make test", "userrl up"}
    lines = {" ".join(words) for words in commands(ROOT / "README.md")} - others
    assert sorted(next((key for key in ANSWERS if line.startswith(key)), line) for line in lines) == sorted(ANSWERS)


@pytest.mark.slow
def test_ctrl_c_cancels_what_runs_and_leaves_no_process(terminal: Terminal) -> None:
    started = terminal.text.count("  running")
    terminal.call("prefect", "deployment", "run", "train/equalized-r2g", "-p", "profile=laptop-quick", "-p", "seed=7")
    wait_for(lambda: terminal.text.count("  running") > started, what="the start of the run")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.process.wait(60) == 130
    wait_for(lambda: "stopped." in terminal.text, 10, "the last line")
    assert "Traceback" not in terminal.text
    wait_for(lambda: not terminal.processes(), 60, "the end of every process")
    assert server_state(terminal.port) == "free"
