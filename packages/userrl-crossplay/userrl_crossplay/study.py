"""Run a cross-play study: train one agent per population and seed, evaluate each on every population, and measure.

The study trains as a claim does: it is registered first, resumes after a kill, and reuses finished runs. Evaluations are ordinary
evaluations, which are reused and resumed in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import PositiveInt

from analysis.measure.grounded import grounded_curve
from analysis.measure.interval import MIN_SEEDS, Interval, score_interval
from analysis.measure.recipes import crossed
from curricula.claims.cross_play import CrossPlay, load_cross_play
from userrl.claims.register import Register
from userrl.claims.report import CRASHED
from userrl.claims.reproduction import RunLauncher, claim_at_work, train_arms
from userrl.run.fingerprint import differing
from userrl.run.request import Request
from userrl.run.results import cold_start
from userrl.run.run import find
from userrl.stages.workers import Workers
from userrl_core.errors import ConfigError
from userrl_core.json_files import portable, write_json
from userrl_core.replaced_file import write_text
from userrl_crossplay.conversations import UserConversation, conversations, evaluation, measures, protocol_of
from userrl_crossplay.document import cross_play_document, cross_play_picture
from userrl_crossplay.matrix import cross_play
from userrl_crossplay.report import START, CellMeasures, CrossPlayReport
from userrl_crossplay.stored import note_evaluations


class CrossPlayRequest(Request):
    """The request of ``cross-play``."""

    file: str
    """The study's YAML file."""

    seeds: PositiveInt | None = None
    """Seeds per training population, instead of the study's. Fewer seeds give no verdict."""

    parallel: PositiveInt = 2
    """Number of parallel runs."""

    poll_seconds: float = 2.0
    """Seconds between two polls of the runs."""


def play_study(
    request: CrossPlayRequest, launcher_of: Callable[..., RunLauncher], say: Callable[..., None]
) -> CrossPlayReport:
    """Run the study and return its report, which is also written to the study's folder.

    A second call continues where the first stopped. Raises ConfigError if no seed has all of its runs.
    """
    study = load_cross_play(request.file)
    seeds = range(study.first_seed, study.first_seed + (request.seeds or study.seeds))
    with claim_at_work(study) as folder:
        register = train_arms(
            study, seeds, launcher_of, say, parallel=request.parallel, poll_seconds=request.poll_seconds
        )
        with Workers() as workers:
            workers.warm_up()
            cells = dict(_evaluated(study, register, seeds, say, workers))
        played = {key: conversations for key, (conversations, _) in cells.items()}
        protocols = {key: protocol for key, (_, protocol) in cells.items()}
        report = measured(study, played, register.exploratory, protocols)
        _write(report, folder)
    return report


ConversationsByCell = dict[tuple[int, str, str], tuple[UserConversation, ...]]
"""The conversations of an agent with a population, by seed, row (the agent) and column (the population)."""
Protocol = Mapping[str, Any]
"""The settings of an evaluation."""


def _evaluated(
    study: CrossPlay, register: Register, seeds: Sequence[int], say: Callable[..., None], workers: Workers
) -> Iterator[tuple[tuple[int, str, str], tuple[tuple[UserConversation, ...], Protocol]]]:
    """Yield the conversations and the protocol of every evaluation, seed by seed. A seed with a crashed run is left out."""
    done, of = 0, len(seeds) * (len(study.arms) + study.same_cold_start) * len(study.evaluate)
    for seed in seeds:
        noted = {name: register.rows.get((name, seed)) for name in study.arms}
        if crashed := [name for name, row in noted.items() if row is None or row["state"] == CRASHED]:
            say("seed %d is left out: %s crashed", seed, ", ".join(crashed))
            continue
        runs = {name: find(str(row["run"])) for name, row in noted.items() if row is not None}
        agents = {name: run.id for name, run in runs.items()}
        if (start := cold_start(next(iter(runs.values())).folder)) is not None and study.same_cold_start:
            agents[START] = str(start)
        for row, checkpoint in agents.items():
            for column in study.evaluate:
                yield (seed, row, column), _play(study, checkpoint, column, workers, say)
                done += 1
                note_evaluations(study.name, study.hash, done, of)
        say("seed %d: evaluated", seed)


def _play(
    study: CrossPlay, checkpoint: str, column: str, workers: Workers, say: Callable[..., None]
) -> tuple[tuple[UserConversation, ...], Protocol]:
    run, actor = evaluation(
        checkpoint,
        study.gym,
        horizon=study.evaluation_horizon or study.horizon,
        tasks=study.evaluation_tasks,
        user={"kind": "rule", "population": study.evaluate[column]},
        workers=workers,
        say=say,
    )
    return tuple(conversations(run, actor, study.gym)), protocol_of(run, actor, study.gym)


def _differing(protocols: Mapping[tuple[int, str, str], Protocol]) -> tuple[str, ...]:
    """Return the settings in which the evaluations of a seed differ, besides the users, which differ on purpose."""
    by_seed: dict[int, list[Protocol]] = {}
    for (seed, *_), protocol in protocols.items():
        by_seed.setdefault(seed, []).append(protocol)
    names = {name: None for of_seed in by_seed.values() for name in differing(of_seed)}
    return tuple(name.replace("_", " ") for name in names if name != "user_behaviour")


def measured(
    study: CrossPlay,
    played: ConversationsByCell,
    exploratory: str,
    protocols: Mapping[tuple[int, str, str], Protocol] | None = None,
) -> CrossPlayReport:
    """Measure the played cells. Only seeds with every cell count. Raises ConfigError without such a seed."""
    rows, columns = tuple(study.train), tuple(study.evaluate)
    by_cell = {key: conversations for key, conversations in played.items() if conversations}
    seeds = [
        seed
        for seed in dict.fromkeys(seed for seed, *_ in by_cell)
        if all((seed, row, column) in by_cell for row in rows for column in columns)
    ]
    if not seeds:
        raise ConfigError(
            "compare.no_evaluation", f"No seed of study {study.name} has all of its runs. See the runs' logs."
        )
    cells = {key: measures(conversations) for key, conversations in by_cell.items()}
    scores = np.array([[[cells[seed, row, column].success for column in columns] for row in rows] for seed in seeds])
    started = all((seed, START, column) in cells for seed in seeds for column in columns)
    start = (
        np.array([[cells[seed, START, column].success for column in columns] for seed in seeds]) if started else None
    )
    matrix = cross_play(scores, start, rows, columns, study.own, study.contrasts, study.contrasted)
    curves = {
        row: grounded_curve(
            [
                conversation.as_answered()
                for seed in seeds
                for column in columns
                for conversation in by_cell[seed, row, column]
            ]
        )
        for row in rows
        if by_cell[seeds[0], row, columns[0]][0].needed is not None
    }
    return CrossPlayReport(
        study=study,
        hash=study.hash,
        exploratory=exploratory,
        matrix=matrix,
        measures={
            (row, column): _mean([cells[seed, row, column] for seed in seeds])
            for row in (*rows, *([START] if started else []))
            for column in columns
        },
        start=None if start is None else {column: score_interval(start[:, j]) for j, column in enumerate(columns)},
        curves=curves,
        worst_users={row: _worst_user(by_cell, seeds, row, columns) for row in rows},
        over_users=_over_users(study, by_cell, seeds),
        values={
            (seed, row, column): cells[seed, row, column].success
            for seed in seeds
            for row in rows
            for column in columns
        },
        differing=_differing(protocols or {}),
    )


def _mean(cells: list[CellMeasures]) -> CellMeasures:
    def mean(name: str) -> float | None:
        values = [value for cell in cells if (value := getattr(cell, name)) is not None]
        return float(np.mean(values)) if values else None

    return CellMeasures(**{name: mean(name) for name in CellMeasures.__slots__})  # type: ignore[arg-type]


def _by_user(by_cell: ConversationsByCell, seeds: list[int], row: str, column: str) -> dict[int, list[list[float]]]:
    """Return each numbered user's scores, one list per seed."""
    users: dict[int, list[list[float]]] = {}
    for index, seed in enumerate(seeds):
        for conversation in by_cell[seed, row, column]:
            if conversation.number is not None:
                users.setdefault(conversation.number, [[] for _ in seeds])[index].append(conversation.score)
    return users


def _worst_user(
    by_cell: ConversationsByCell, seeds: list[int], row: str, columns: tuple[str, ...]
) -> tuple[str, int, float] | None:
    """Return the user with the lowest mean score over all seeds: population, number and score."""
    means = [
        (float(np.mean([score for scores in by_seed for score in scores])), column, number)
        for column in columns
        for number, by_seed in _by_user(by_cell, seeds, row, column).items()
    ]
    if not means:
        return None
    score, column, number = min(means)
    return column, number, score


def _over_users(study: CrossPlay, by_cell: ConversationsByCell, seeds: list[int]) -> Interval | None:
    """Return the primary contrast with seeds and users resampled together, None without numbered users."""
    tables = []
    for row in study.contrasts[0]:
        users = {
            (column, number): [float(np.mean(scores)) for scores in by_seed]
            for column in study.contrasted
            for number, by_seed in _by_user(by_cell, seeds, row, column).items()
            if all(by_seed)
        }
        tables.append(users)
    common = [user for user in tables[0] if user in tables[1]]
    if len(common) < 2 or len(seeds) < MIN_SEEDS:
        return None
    more, than = (np.array([table[user] for user in common]).T for table in tables)
    return crossed(than, more, level=0.98)


def _write(report: CrossPlayReport, folder: Path) -> None:
    document = cross_play_document(report)
    stem = folder / report.hash
    write_text(stem.with_suffix(".md"), document.markdown())
    write_text(stem.with_suffix(".html"), document.html())
    write_text(stem.with_suffix(".svg"), cross_play_picture(report))
    write_json(stem.with_suffix(".json"), portable(report.as_json()))
