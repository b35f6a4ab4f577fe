"""The laptop sweep from beginning to end: twelve trials by two workers, everything killed half-way, resumed, confirmed.

    python -m tests.sweeps.laptop_sweep [--reduced] [--home FOLDER]

Prints what happened when, then the table and the winner. ``--reduced`` takes fewer steps and tasks, for a loaded machine.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from optuna.trial import TrialState

from sweeps.results import table
from sweeps.space import load_space
from sweeps.study import open_study
from tests.places import ROOT
from tests.sweeps.rig import Machine, results

REDUCED: dict[str, Any] = {
    "demonstrations.episodes": 100,
    "demonstrations.top_k": 70,
    "cold_start.steps": 40,
    "algorithm.batch": 2,
    "algorithm.group": 4,
    "stages.0.steps": 1,
    "stages.1.steps": 1,
    "stages.2.steps": 2,
    "evaluate.every": 1,
    "evaluate.validation_tasks": 12,
    # Four steps have to tell configurations apart, or nothing is ever pruned.
    "algorithm.lr": 6.0e-4,
    "algorithm.warmup_steps": 0,
}


def main() -> None:
    """Run it and print the transcript."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--reduced", action="store_true")
    parser.add_argument("--home", type=Path, default=None)
    given = parser.parse_args()
    home = (given.home or Path(tempfile.mkdtemp(prefix="userrl-sweep-"))).resolve()
    machine = Machine(home)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:6.1f} s] {text}", flush=True)

    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    say(
        f"{platform.machine()}, {os.cpu_count()} cores, load {load}; {'reduced' if given.reduced else 'full'} laptop size"
    )
    # Stages of this size have no validation before the space's warm-up: the rule starts at the first one instead.
    parameters: dict[str, Any] = {"space": "gamma-schedule", "parallel": 2, "trials": 12}
    if given.reduced:
        parameters["overrides"] = REDUCED
        parameters["space"] = str(_without_warmup(home))
    try:
        _begin(machine, say)
        machine.run("sweep/gamma-schedule", **parameters)
        _wait(lambda: _over(home) >= 6, say, home)
        say(f"SIGKILL to everything: {machine.kill_everything()} processes; {_counts(home)}")
        kept = results(home)
        _begin(machine, say)
        again = machine.run("sweep/gamma-schedule", **parameters)
        _wait(lambda: machine.state(again) in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"), say, home)
        say(f"sweep {machine.state(again)}; {_counts(home)}")
        now = results(home)
        say(f"stage results done again after the kill: {sum(now[path] != kept[path] for path in kept)} of {len(kept)}")
        print(machine.once("userrl", "sweep", "status", "gamma-schedule"))
        print("\n".join(machine.once("userrl", "sweep", "best", "gamma-schedule").splitlines()[:1]))
        for row in table(load_space("gamma-schedule"), _study(home), at_work=False):
            print(row)
    finally:
        machine.kill_everything()
        say(f"home {home}")


def _begin(machine: Machine, say: Callable[[str], None]) -> None:
    machine.server()
    machine.provision("sweep/gamma-schedule", "train/equalized-r2g")
    machine.worker("one")
    machine.worker("two")
    say("server, two workers")


def _without_warmup(home: Path) -> Path:
    text = (ROOT / "sweeps" / "spaces" / "gamma-schedule.yaml").read_text()
    path = home / "gamma-schedule.yaml"
    path.write_text(text.replace("warmup_steps: 10", "warmup_steps: 1"))
    return path


def _study(home: Path) -> Any:
    space = load_space("gamma-schedule")
    return open_study(space, home / "sweeps" / space.name, queue=False)


def _over(home: Path) -> int:
    if not (home / "sweeps" / "gamma-schedule" / "space.json").exists():
        return 0
    return sum(t.state in (TrialState.COMPLETE, TrialState.PRUNED) for t in _study(home).get_trials(deepcopy=False))


def _counts(home: Path) -> str:
    counts = Counter(t.state.name.lower() for t in _study(home).get_trials(deepcopy=False))
    return ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))


def _wait(condition: Callable[[], bool], say: Callable[[str], None], home: Path) -> None:
    over = _over(home)
    while not condition():
        time.sleep(1.0)
        if _over(home) != over:
            over = _over(home)
            say(_counts(home))


if __name__ == "__main__":
    main()
