"""Reproduction of a claim in miniature: its arms over shared seeds as ordinary runs, then its table and verdict."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from curricula.claims import Arm, Claim, load_arm, load_claim
from sweeps.launcher import StartedRuns, StartedTrial
from userrl.claims.document import claim_document
from userrl.claims.register import Register, as_registered, registered, runs_of
from userrl.claims.report import CRASHED, ClaimReport, claim_report
from userrl.machine.home import check_writable, home, runs_dir, warehouse_dir
from userrl.machine.slots import alone
from userrl.run.plan import plan_run
from userrl.run.request import ReproduceRequest, TrainRequest
from userrl.run.run import load, read_status
from userrl_core.errors import ConfigError
from userrl_core.replaced_file import write_text
from warehouse import open_warehouse

STARTS = 2
"""Starts of a run before it counts as crashed."""


class RunLauncher(StartedRuns, Protocol):
    """A launcher of a claim's runs: as child processes of this machine, or as flow runs for any worker."""

    def launch(self, request: TrainRequest, run_id: str, *, label: str, display_name: str) -> StartedTrial:
        """Start a run and return at once. A second start of the same label does nothing."""


def reproduce_claim(
    request: ReproduceRequest, launcher_of: Callable[..., RunLauncher], say: Callable[..., None]
) -> ClaimReport:
    """Run every arm of a claim over its seeds, and return the report.

    A second call continues where the first stopped, and gives the same report. launcher_of: takes the claim, ``say`` and a folder.
    """
    claim, person_arms = asked(request)
    changed_budget = request.tokens not in (None, as_registered(load_claim(request.claim)).tokens)
    with claim_at_work(claim) as folder:
        register = train_arms(
            claim,
            seeds_of(claim, request),
            launcher_of,
            say,
            parallel=request.parallel,
            poll_seconds=request.poll_seconds,
            person_arms=person_arms,
            changed_budget=changed_budget,
        )
        with open_warehouse(warehouse_dir(), run=runs_of([claim.name])) as warehouse:
            report = claim_report(warehouse, claim, register.exploratory)
        write_text(folder / f"{claim.hash}.md", claim_document(report).markdown())
    return report


@contextmanager
def claim_at_work(claim: Claim) -> Iterator[Path]:
    """Lock the claim in this home, and yield the folder of its results."""
    check_writable(home(), warehouse_dir())
    folder = home() / "claims" / claim.name
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder / "claim.lock", f"Claim {claim.name}"):
        yield folder


def train_arms(
    claim: Claim,
    seeds: Sequence[int],
    launcher_of: Callable[..., RunLauncher],
    say: Callable[..., None],
    *,
    parallel: int,
    poll_seconds: float = 2.0,
    person_arms: Mapping[str, Arm] | None = None,
    changed_budget: bool = False,
) -> Register:
    """Register the claim, train every arm over its seeds, and return the register. Finished runs are not repeated.

    person_arms: arms that a person added. Raises ConfigError for an arm that cannot run, before the first one starts.
    """
    arms = {**claim.arms, **(person_arms or {})}
    requests = {(seed, name): request_of(claim, arm, seed) for seed in seeds for name, arm in arms.items()}
    for name in arms:
        plan_run(requests[seeds[0], name])
    with registered(claim, changed_budget=changed_budget) as register:
        launcher = launcher_of(claim, say, home() / "claims")
        _Runs(register, launcher, requests, frozenset(person_arms or ()), say).run(parallel, poll_seconds)
    return register


def seeds_of(claim: Claim, request: ReproduceRequest) -> range:
    """Return the seeds to run. Raises ConfigError for seeds before the claim's first: settings may have been tuned on them."""
    first = request.first_seed or claim.first_seed
    if first < claim.first_seed:
        raise ConfigError(
            "argument.out_of_range",
            f"first_seed is {first}. The seeds of claim '{claim.name}' begin at {claim.first_seed}.",
        )
    return range(first, first + request.seeds)


def asked(request: ReproduceRequest) -> tuple[Claim, dict[str, Arm]]:
    """Return the claim to run, and the person's own arm. Raises ConfigError."""
    claim = as_registered(load_claim(request.claim))
    person_arms = dict([load_arm(request.arm)]) if request.arm else {}
    if repeated_names := person_arms.keys() & claim.arms.keys():
        raise ConfigError(
            "claim.bad_file",
            f"Claim '{claim.name}' already has an arm '{min(repeated_names)}'. Give the file another name.",
        )
    return (claim if request.tokens in (None, claim.tokens) else claim.with_tokens(request.tokens or 0)), person_arms


def request_of(claim: Claim, arm: Arm, seed: int) -> TrainRequest:
    """Return the request to train an arm's seed: an ordinary run, which claims with the same arm share."""
    recipe = arm.recipe or claim.recipe
    overrides = claim.overrides_of(arm)
    return TrainRequest(
        recipe=recipe, profile=claim.profile, seed=seed, overrides=overrides, share_cold_start=True, wandb="off"
    )


def next_run(waiting: deque[tuple[int, str]], running: Collection[int]) -> tuple[int, str]:
    """Remove and return the first waiting run of a seed that is not running, else the first.

    The arms of a seed share a cold start. An arm that began beside the first one would wait for it and leave a core idle.
    """
    chosen = next((run for run in waiting if run[0] not in running), waiting[0])
    waiting.remove(chosen)
    return chosen


@dataclass(frozen=True, slots=True)
class _ActiveRun:
    """A running run. starts: how often it was started."""

    seed: int
    arm: str
    started: StartedTrial
    starts: int
    label: int


@dataclass(frozen=True, slots=True)
class _Runs:
    """The runs of a claim, nearly seed by seed, so that an interrupted claim has whole pairs (`next_run`)."""

    register: Register
    launcher: RunLauncher
    requests: dict[tuple[int, str], TrainRequest]
    person_arms: frozenset[str]
    say: Any

    def run(self, parallel: int, poll_seconds: float) -> None:
        """Run until all have finished. Runs that finished earlier are only recorded."""
        waiting, active = deque(self.requests), list[_ActiveRun]()
        try:
            while waiting or active:
                while waiting and len(active) < parallel:
                    seed, arm = next_run(waiting, {active_run.seed for active_run in active})
                    if (started := self._begin(seed, arm)) is not None:
                        active.append(started)
                if active:
                    time.sleep(poll_seconds)
                active = [running for active_run in active if (running := self._look(active_run)) is not None]
        except BaseException:
            # Each run leaves a checkpoint, from which the next start continues.
            for active_run in active:
                self.launcher.cancel(active_run.started.handle)
            raise

    def _begin(self, seed: int, arm: str) -> _ActiveRun | None:
        """Start or find the run; None if it has finished."""
        noted = self.register.rows.get((arm, seed))
        run_id = plan_run(self.requests[seed, arm]).goes_on_as
        if read_status(runs_dir() / run_id).state == "completed":
            self._note(seed, arm, run_id, "ended")
            return None
        handle = noted.get("handle") if noted else None
        if noted and handle and self.launcher.status(handle) == "running":
            return _ActiveRun(seed, arm, StartedTrial(handle, run_id), 1, int(noted["label"]))
        return self._start(seed, arm, run_id, starts=1, label=int(noted["label"]) + 1 if noted else 1)

    def _start(self, seed: int, arm: str, run_id: str, *, starts: int, label: int) -> _ActiveRun:
        """Start a run. label: counts the starts of this seed and arm by all flow runs, so that each is distinct."""
        hashed = f"{self.register.claim.name}-{self.register.claim.hash[:8]}-{arm}-s{seed}-start-{label}"
        started = self.launcher.launch(
            self.requests[seed, arm], run_id, label=hashed, display_name=f"{arm}, seed {seed}"
        )
        self._note(seed, arm, run_id, "started", handle=started.handle, label=label)
        self.say("%s, seed %d: %s", arm, seed, run_id)
        return _ActiveRun(seed, arm, started, starts, label)

    def _look(self, active_run: _ActiveRun) -> _ActiveRun | None:
        """Return the run while it is running or was restarted, and None once it is over."""
        status = self.launcher.status(active_run.started.handle)
        seed, arm, run_id = active_run.seed, active_run.arm, active_run.started.run_id
        if status == "running":
            return active_run
        if status == "completed":
            self._note(seed, arm, run_id, "ended")
            self.say("%s, seed %d: done", arm, seed)
            return None
        if active_run.starts < STARTS:
            return self._start(seed, arm, run_id, starts=active_run.starts + 1, label=active_run.label + 1)
        self._note(seed, arm, run_id, CRASHED, label=active_run.label)
        self.say("%s, seed %d: crashed, and counts as such; see %s", arm, seed, runs_dir() / run_id)
        return None

    def _note(self, seed: int, arm: str, run_id: str, state: str, **more: Any) -> None:
        folder = runs_dir() / run_id
        began = load(folder).info.created if (folder / "run.json").is_file() else time.time()
        noted = self.register.rows.get((arm, seed))
        if noted is None or (noted["run"], noted["state"]) != (run_id, state) or more:
            self.register.note(
                arm, seed, run=run_id, began=began, state=state, of_person=arm in self.person_arms, **more
            )
