"""A claim of the papers in miniature: its arms over paired seeds as ordinary runs, then its table and verdict."""

from __future__ import annotations

from flows.machine.home import settle

settle()

import time  # noqa: E402
from collections import deque  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from typing import Any  # noqa: E402

from prefect import flow, get_run_logger, runtime  # noqa: E402

from curricula.claims import Arm, Claim, load_arm, load_claim  # noqa: E402
from curricula.yaml_files import stem  # noqa: E402
from flows.machine.home import check_writable, home, runs_dir, warehouse_dir  # noqa: E402
from flows.machine.keyless import keyless  # noqa: E402
from flows.machine.slots import alone  # noqa: E402
from flows.run.artifacts import show_markdown  # noqa: E402
from flows.run.plan import plan_run  # noqa: E402
from flows.run.request import ReproduceRequest, TrainRequest, takes  # noqa: E402
from flows.run.run import goes_on_as, load, read_status  # noqa: E402
from flows.trials.claim_table import CRASHED, ClaimTable, claim_table  # noqa: E402
from flows.trials.launchers import DeploymentLauncher, ProcessLauncher  # noqa: E402
from flows.trials.register import Register, registered, runs_of  # noqa: E402
from sweeps.launcher import Started  # noqa: E402
from userrl_core.errors import ConfigError  # noqa: E402
from warehouse import open_warehouse  # noqa: E402

STARTS = 2
"""How often a run is started before it counts as crashed."""


def flow_run_name() -> str:
    """The claim's name, also where it was given as a file."""
    return stem(str(runtime.flow_run.parameters.get("claim", "claim")))


@keyless
@flow(name="reproduce", flow_run_name=flow_run_name, validate_parameters=True)
@takes(ReproduceRequest)
def reproduce(request: ReproduceRequest) -> dict[str, Any]:
    """Run every arm of a claim over its seeds; running it again goes on where it stopped, and gives the same table.

    Returns the table as JSON, with its text.
    """
    claim, own = asked(request)
    arms = {**claim.arms, **own}
    seeds = range(claim.first_seed, claim.first_seed + request.seeds)
    requests = {(seed, name): request_of(claim, arm, seed) for seed in seeds for name, arm in arms.items()}
    for name in arms:  # refused before the first one starts
        plan_run(requests[seeds[0], name])
    check_writable(home(), warehouse_dir())
    folder = home() / "claims" / claim.name
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder / "claim.lock", f"Claim {claim.name}"):
        with registered(claim, changed_budget=claim.tokens != load_claim(request.claim).tokens) as register:
            launcher_of = DeploymentLauncher if request.workers == "deployments" else ProcessLauncher
            log = get_run_logger()
            launcher = launcher_of(claim, log.info, home() / "claims")
            _Runs(register, launcher, requests, frozenset(own), log.info).run(request.parallel, request.poll_seconds)
        with open_warehouse(warehouse_dir(), run=runs_of([claim.name])) as warehouse:
            table: ClaimTable = claim_table(warehouse, claim, register.exploratory)
        text = table.text()
        (folder / f"{claim.hash}.md").write_text(text)
    show_markdown(f"claim-{claim.name}", text, f"claim {claim.name}")
    return {**table.as_json(), "text": text}


def asked(request: ReproduceRequest) -> tuple[Claim, dict[str, Arm]]:
    """The claim as it is to be run, and the person's own arm. Raises ConfigError."""
    claim = load_claim(request.claim)
    own = dict([load_arm(request.arm)]) if request.arm else {}
    if taken := own.keys() & claim.arms.keys():
        raise ConfigError(f"Claim '{claim.name}' has an arm '{min(taken)}' already; give the file another name.")
    return (claim if request.tokens in (None, claim.tokens) else claim.with_tokens(request.tokens or 0)), own


def request_of(claim: Claim, arm: Arm, seed: int) -> TrainRequest:
    """What ``train`` is asked for an arm's seed: an ordinary run, which claims with the same arm share."""
    recipe = arm.recipe or claim.recipe
    return TrainRequest(recipe=recipe, profile=claim.profile, seed=seed, overrides=claim.overrides_of(arm), wandb="off")


@dataclass(frozen=True, slots=True)
class _Place:
    """A run at work. starts: how often it was started."""

    seed: int
    arm: str
    started: Started
    starts: int
    label: int


@dataclass(frozen=True, slots=True)
class _Runs:
    """The runs of a claim, seed by seed, so that what is cut off leaves whole pairs."""

    register: Register
    launcher: DeploymentLauncher | ProcessLauncher
    requests: dict[tuple[int, str], TrainRequest]
    own: frozenset[str]
    say: Any

    def run(self, parallel: int, poll_seconds: float) -> None:
        """Until every one is over; those that are over already are only noted."""
        waiting, active = deque(self.requests), list[_Place]()
        try:
            while waiting or active:
                while waiting and len(active) < parallel:
                    seed, arm = waiting.popleft()
                    if (place := self._begin(seed, arm)) is not None:
                        active.append(place)
                if active:
                    time.sleep(poll_seconds)
                active = [kept for place in active if (kept := self._look(place)) is not None]
        except BaseException:
            # Stopped or broken: the runs leave a checkpoint each, from which the next start goes on.
            for place in active:
                self.launcher.cancel(place.started.handle)
            raise

    def _begin(self, seed: int, arm: str) -> _Place | None:
        """The run on its way, None where it is over already."""
        noted = self.register.rows.get((arm, seed))
        run_id = goes_on_as(plan_run(self.requests[seed, arm]).run_id)
        if read_status(runs_dir() / run_id).state == "completed":
            self._note(seed, arm, run_id, "ended")
            return None
        handle = noted.get("handle") if noted else None
        if noted and handle and self.launcher.status(handle) == "running":
            return _Place(seed, arm, Started(handle, run_id), 1, int(noted["label"]))
        return self._start(seed, arm, run_id, starts=1, label=int(noted.get("label", 0)) + 1 if noted else 1)

    def _start(self, seed: int, arm: str, run_id: str, *, starts: int, label: int) -> _Place:
        """label: counts the starts of this seed and arm by all flow runs, so that no two are one."""
        hashed = f"{self.register.claim.name}-{self.register.claim.hash[:8]}-{arm}-s{seed}-start-{label}"
        started = self.launcher.launch(self.requests[seed, arm], run_id, label=hashed, shown=f"{arm}, seed {seed}")
        self._note(seed, arm, run_id, "started", handle=started.handle, label=label)
        self.say("%s, seed %d: %s", arm, seed, run_id)
        return _Place(seed, arm, started, starts, label)

    def _look(self, place: _Place) -> _Place | None:
        """The run while it is at work or was started again, None when it is over."""
        status = self.launcher.status(place.started.handle)
        if status == "running":
            return place
        seed, arm, run_id = place.seed, place.arm, place.started.run_id
        if status == "completed":
            self._note(seed, arm, run_id, "ended")
            self.say("%s, seed %d: done", arm, seed)
            return None
        if place.starts < STARTS:
            return self._start(seed, arm, run_id, starts=place.starts + 1, label=place.label + 1)
        self._note(seed, arm, run_id, CRASHED, label=place.label)
        self.say("%s, seed %d: crashed, and counts as such; see %s", arm, seed, runs_dir() / run_id)
        return None

    def _note(self, seed: int, arm: str, run_id: str, state: str, **more: Any) -> None:
        folder = runs_dir() / run_id
        began = load(folder).info.created if (folder / "run.json").is_file() else time.time()
        noted = self.register.rows.get((arm, seed))
        if noted is None or (noted["run"], noted["state"]) != (run_id, state) or more:
            self.register.note(arm, seed, run=run_id, began=began, state=state, own=arm in self.own, **more)
