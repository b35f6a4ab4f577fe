"""A sweep whose study is on PostgreSQL: its connection ends at any statement, and the database stops and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from optuna.trial import TrialState
from sqlalchemy import event

from sweeps.study import open_study
from tests.sweeps.launching import WritingLauncher, make_space, make_sweep, peak_at_08
from tests.sweeps.postgres import MISSING, Cluster, cluster, programs

pytestmark = pytest.mark.slow
END_CONNECTIONS = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = 'optuna'"


@pytest.fixture
def database() -> Iterator[Cluster]:
    if (installed := programs()) is None:
        pytest.skip(MISSING)
    with cluster(installed) as made:
        yield made


def swept(database: Cluster, root: Path, at: int | None) -> tuple[WritingLauncher, Any, int]:
    """Sweep four gammas on a database that ends all connections at one statement. Gives the number of statements too."""
    space = make_space(name=root.name)
    launcher = WritingLauncher(root / "warehouse", peak_at_08)
    sweep = make_sweep(space, root, launcher)
    sweep.study = open_study(space, root, database.optuna)
    numbers, last = count(1), [0]

    def end(*_: Any) -> None:
        last[0] = next(numbers)
        if last[0] == at:
            database.ask(END_CONNECTIONS)

    storage: Any = sweep.study._storage
    event.listen(storage._backend.engine, "before_cursor_execute", end)
    sweep.run()
    return launcher, sweep.study, last[0]


def test_a_connection_that_ends_at_any_statement_costs_no_trial(database: Cluster, tmp_path: Path) -> None:
    _, _, statements = swept(database, tmp_path / "whole", None)
    for at in range(1, statements, statements // 3):
        launcher, study, _ = swept(database, tmp_path / f"ended{at}", at)
        assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 4, at
        assert sorted(trial.params["gamma"] for trial in study.trials) == [0.6, 0.7, 0.8, 0.9]
        assert study.best_trial.params == {"gamma": 0.8}
        # A start that is repeated has the same label, and the server then gives the same flow run.
        assert len(set(launcher.labels)) == 4 + 2
        assert launcher.cancelled == []


def test_a_sweep_waits_for_a_database_that_stopped(database: Cluster, tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08)
    sweep = make_sweep(make_space(), tmp_path, launcher)
    sweep.study = open_study(sweep.space, tmp_path, database.optuna)
    starting = Thread(target=database.start)
    looks = count(1)

    def look() -> None:
        if next(looks) == 3:
            database.kill()
            starting.start()

    sweep.show = look
    sweep.run()
    starting.join()
    assert [trial.state for trial in sweep.study.trials] == [TrialState.COMPLETE] * 4
    assert (len(launcher.started), launcher.cancelled) == (6, [])
