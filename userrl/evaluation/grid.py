"""Several evaluations as one table and one plot: horizons by attempts (AgentGym-RL figures 8 and 9), users by users.

Every cell is a separate evaluation. Earlier evaluations are reused, and a killed grid continues. If horizons or attempts
vary, a trained run is shown together with the model from which RL started.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from analysis.measure.interval import Interval
from curricula.load import from_resolved
from curricula.suites import load_suite
from userrl.evaluation.planned import actor_of, evaluate_here, plan_evaluation
from userrl.machine.foreign_text import plain
from userrl.machine.home import home, warehouse_dir
from userrl.machine.notebook import Printed, Tabular
from userrl.machine.output_files import check_output, writing
from userrl.reports.document import Block, Document, Items, TableBlock
from userrl.reports.figures import Line, Panel, panels
from userrl.run.request import EvaluateRequest
from userrl.run.results import cold_start
from userrl.run.run import Run, find
from userrl.run.scores import ALL, ScoreRow, paired, score_rows
from userrl.run.tasks import users_of
from userrl_core.errors import ConfigError, UserRLError
from userrl_core.number_format import NULL, p_value, with_limits
from userrl_core.replaced_file import write_text
from warehouse import open_warehouse

_DOUBLING = re.compile(r"(\d+)\.\.(\d+)\Z")


@dataclass(frozen=True, slots=True)
class Axes:
    """The axes of a grid: policies, users and horizons. None: as the suite or the recipe says."""

    who: tuple[str, ...]
    users: tuple[Any, ...]
    turns: tuple[int | None, ...]


def horizons(turns: str | int | Sequence[int] | None, suite: str | None) -> tuple[int, ...]:
    """Parse horizons such as ``4,8,16``, ``4..32`` or numbers; default: the suite's. Raises ConfigError for anything else."""
    if turns is None:
        return load_suite(suite).turns if suite else ()
    text = turns if isinstance(turns, str) else ",".join(map(str, [turns] if isinstance(turns, int) else turns))
    span = _DOUBLING.match(text.strip())
    if span is not None and 0 < int(span[1]) <= int(span[2]):
        values = [int(span[1])]
        while values[-1] * 2 <= int(span[2]):
            values.append(values[-1] * 2)
        return tuple(values) if values[-1] == int(span[2]) else (*values, int(span[2]))
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 and int(part) > 0 for part in parts):
        raise ConfigError("argument.malformed", f"Write --turns as 4,8,16 or as 4..32, not '{text}'.")
    return tuple(int(part) for part in parts)


@dataclass(frozen=True, slots=True)
class Cell:
    """One evaluation of a grid. who: its name in the table. start: whether it is RL's starting model."""

    request: EvaluateRequest
    who: str
    start: bool
    trained_with: str
    user: str


@dataclass(frozen=True, slots=True)
class Grid:
    """The product of the axes over one request."""

    base: EvaluateRequest
    axes: Axes

    @property
    def single(self) -> EvaluateRequest | None:
        """The only evaluation, if nothing varies, else None."""
        axes = self.axes
        if len(axes.who) * len(axes.users) * len(axes.turns) > 1:
            return None
        return self._with(axes.who[0], axes.users[0], axes.turns[0])

    def cells(self) -> Iterator[Cell]:
        """Yield every evaluation, in the order of the table."""
        scaling = len(self.axes.turns) > 1 or (self.base.attempts or 1) > 1
        for policy, user, turns in product(self.axes.who, self.axes.users, self.axes.turns):
            served = self.base.served
            run = None if served else _trained(policy)
            trained_with = _trained_with(run) if run else "–"
            user_label = "default" if user is None else user if isinstance(user, str) else _spelt(user)
            start = cold_start(run.folder) if run and scaling else None
            if start is not None:
                yield Cell(self._with(str(start), user, turns), f"{policy} (start)", True, trained_with, user_label)
            yield Cell(
                self._with(policy, user, turns),
                actor_of(policy, served).label if served else policy,
                False,
                trained_with,
                user_label,
            )

    def _with(self, who: str, user: Any, turns: int | None) -> EvaluateRequest:
        update = {"checkpoint": who, "user": user, "horizon": turns}
        return EvaluateRequest.model_validate({**self.base.model_dump(), **update})


@dataclass(frozen=True, slots=True)
class PlayedCell:
    """A finished evaluation of a grid: its cell, its run and its scores."""

    cell: Cell
    run: str
    scores: tuple[ScoreRow, ...]


@dataclass(frozen=True, slots=True)
class GridResult(Printed, Tabular):
    """A finished grid. rows: the plot data, one row per cell, gym and number of attempts. file, plot: their paths."""

    axes: Axes
    played: tuple[PlayedCell, ...]
    rows: tuple[dict[str, Any], ...]
    file: Path
    plot: Path

    @property
    def scored(self) -> bool:
        """Return whether any trajectory was scored."""
        return any(row.score is not None for played_cell in self.played for row in played_cell.scores)

    def as_json(self) -> dict[str, Any]:
        """Return the plot data, the gain from RL, and the paths of the files as JSON."""
        added = _added(self.played)
        return {"rows": list(self.rows), "added": added, "file": str(self.file), "plot": str(self.plot)}

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return the plot data, one row per cell, gym and number of attempts."""
        return list(self.rows)

    def __str__(self) -> str:
        added = Items(tuple(map(_added_sentence, _added(self.played))))
        blocks: tuple[Block, ...] = (_table(self.axes, self.played), *([added] if added.items else []))
        return f"{plain(Document('', blocks).text())}\nplot: {self.plot}, plot data: {self.file}"


def _added_sentence(line: dict[str, Any]) -> str:
    difference = Interval(line["difference"], line["low"], line["high"], line["tasks"], "")
    return (
        f"Gain from RL at {line['horizon']} turns with user {line['user']}: {with_limits(difference, sign=True)}, "
        f"p {p_value(line['p'])}, paired over {line['tasks']} tasks of one run"
    )


def play(
    grid: Grid,
    *,
    out: str | None = None,
    progress: Callable[[dict[str, Any]], None] = lambda line: None,
    say: Callable[..., None] = lambda *args: None,
) -> GridResult:
    """Evaluate every cell, write one plot and its data, and return both. Invalid cells are refused before the first
    one starts.

    out: file of the plot data. progress: called with every progress line. say: called with log lines as for `logging`.
    """
    if out is not None:
        if Path(out).suffix == ".svg":
            raise ConfigError("argument.malformed", f"'{out}' would be the plot. Name the .csv file of its data.")
        for output in (Path(out), Path(out).with_suffix(".svg")):
            check_output(output)
    # A cell has one user and one horizon. Other gyms of a checkpoint's training belong to a single evaluation.
    planned = [(cell, plan_evaluation(cell.request).alone()) for cell in grid.cells()]
    setting = planned[-1][1].plan.recipe.evaluate
    if setting.attempts > 1 and setting.temperature == 0:
        say("note: greedy attempts differ only if users do; use --temperature to sample them.")
    played: list[PlayedCell] = []
    data: list[dict[str, Any]] = []
    for cell, evaluation in planned:
        report = evaluate_here(evaluation, progress, say)
        gyms = evaluation.plan.recipe.evaluation_gyms
        rows = score_rows(report.run, evaluation.actors, gyms)
        played.append(PlayedCell(cell, report.run, tuple(row for row in rows if row.gym in (*gyms, ALL))))
        lines = _plot_data(cell, report.run, played[-1].scores, {actor.id for actor in evaluation.actors})
        data += [{**line, "temperature": evaluation.plan.recipe.evaluate.temperature} for line in lines]
    path = Path(out) if out else home() / "grids" / f"{played[-1].run}.csv"
    plot = path.with_suffix(".svg")
    for file, text in ((path, _csv(data)), (plot, panels(list(_panels(played, data))))):
        with writing(file):
            write_text(file, text)
    return GridResult(grid.axes, tuple(played), tuple(data), path, plot)


def _table(axes: Axes, played: Sequence[PlayedCell]) -> TableBlock:
    """Return a table with one row per policy and horizon, one column per user, and scores over all gyms with intervals."""
    users = list(dict.fromkeys(played_cell.cell.user for played_cell in played))
    by_cell: dict[tuple[str, str, int | None], dict[str, ScoreRow]] = {}
    for played_cell in played:
        cell = played_cell.cell
        by_cell.setdefault((cell.who, cell.trained_with, cell.request.horizon), {})[cell.user] = _whole(
            played_cell.scores
        )
    rows = []
    for (policy, trained_with, _), by_user in by_cell.items():
        turns = next(iter(by_user.values())).horizon
        intervals = [by_user[user].interval() if user in by_user else NULL for user in users]
        rows.append((policy, trained_with, str(turns), *intervals))
    first_row = _whole(played[0].scores)
    return TableBlock(
        ("policy", "trained with user", "horizon", *(f"user {user}" for user in users)),
        tuple(rows),
        f"Score over all gyms, 95 % over tasks: {first_row.tasks} tasks x {first_row.attempts}, version {first_row.version}.",
    )


def _whole(rows: Sequence[ScoreRow]) -> ScoreRow:
    """Return the row over all gyms, or the only gym's."""
    return next((row for row in rows if row.gym == ALL), rows[-1])


def _plot_data(
    cell: Cell, run: str, rows: Sequence[ScoreRow], checkpoints: Set[str | None]
) -> Iterator[dict[str, Any]]:
    """Yield one line per gym and number of attempts. checkpoints: this cell's, because the run may hold others."""
    with open_warehouse(warehouse_dir(), run=run) as warehouse:
        at_k_rows = [
            row for row in warehouse.query("at_k", run=run).pl().to_dicts() if row["checkpoint"] in checkpoints
        ]
    at_k = {(row["gym"] or ALL, row["k"]): row for row in at_k_rows}
    for row in rows:
        for (gym, k), tried in sorted(at_k.items(), key=lambda item: item[0]):
            if gym != row.gym:
                continue
            yield {
                "who": cell.who,
                "start": cell.start,
                "trained_with": cell.trained_with,
                "user": row.user,
                "suite": cell.request.suite or "",
                "gym": gym,
                "horizon": row.horizon,
                "k": k,
                "attempts": row.attempts,
                "tasks": tried["tasks"],
                **{name: tried[name] for name in ("mean_score", "best_at_k", "pass_at_k", "pass_hat_k")},
                "score": row.score,
                "low": row.low,
                "high": row.high,
                "data": row.data,
                "version": row.version,
                "run": run,
            }


def _panels(played: Sequence[PlayedCell], data: Sequence[dict[str, Any]]) -> Iterator[Panel]:
    """Yield panels of scores over all gyms by horizon, and of the best of k attempts, with limits over tasks if known."""
    wholes = [(played_cell.cell, _whole(played_cell.scores)) for played_cell in played]
    several = len({cell.user for cell, _ in wholes}) > 1
    lines: dict[str, list[ScoreRow]] = {}
    for cell, row in wholes:
        lines.setdefault(f"{cell.who}, user {cell.user}" if several else cell.who, []).append(row)
    yield Panel("score by horizon", [_line(name, rows) for name, rows in lines.items()], x="horizon (turns)")
    longest = max(row.horizon for _, row in wholes)
    gym = _whole(played[0].scores).gym
    best: dict[str, list[tuple[float, float]]] = {}
    for line in data:
        if line["horizon"] == longest and line["gym"] == gym:
            name = f"{line['who']}, user {line['user']}" if several else line["who"]
            best.setdefault(name, []).append((line["k"], line["best_at_k"]))
    if any(len(points) > 1 for points in best.values()):
        drawn = [Line(name, points, markers=True) for name, points in best.items()]
        yield Panel(f"best of k attempts, {longest} turns", drawn, x="attempts")


def _line(name: str, rows: Sequence[ScoreRow]) -> Line:
    scored = [row for row in rows if row.score is not None]
    band = [(row.horizon, row.low, row.high) for row in scored if row.low is not None and row.high is not None]
    return Line(name, [(row.horizon, row.score or 0.0) for row in scored], band=band, markers=True)


def _added(played: Sequence[PlayedCell]) -> list[dict[str, Any]]:
    """Return the gain from RL over its start at each horizon, paired over tasks."""
    added = []
    for before, after in pairwise(played):
        if before.cell.start and not after.cell.start:
            gain = paired(before.run, after.run, [row.gym for row in after.scores])
            interval = gain.interval
            added.append(
                {
                    "who": after.cell.who,
                    "user": after.cell.user,
                    "horizon": _whole(after.scores).horizon,
                    "difference": interval.estimate,
                    "low": interval.low,
                    "high": interval.high,
                    "p": gain.p,
                    "tasks": interval.units,
                }
            )
    return added


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _trained(name: str) -> Run | None:
    """Return the run with this name, or None for a folder or the demonstrator."""
    if name == "demonstrator" or Path(name).exists() or "/" in name:
        return None
    return find(name)


def _trained_with(run: Run) -> str:
    try:
        recipe = from_resolved(run.info.resolved)
    except UserRLError:
        return "–"
    users = users_of(recipe, recipe.training_gyms, role="train").values()
    return ", ".join(sorted({user if isinstance(user, str) else _spelt(user[1], user[0]) for user in users}))


def _spelt(options: dict[str, Any], kind: str = "") -> str:
    inner = options.get("options", options)
    if inner.get("model"):
        return str(inner["model"])
    option_texts = [
        " or ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value) for value in inner.values()
    ]
    return " ".join([kind or str(options.get("kind", "")), *option_texts]).strip()
