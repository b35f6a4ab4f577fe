"""Learning curves as a picture file: of one run with its branches, or of several runs and recipes together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from analysis.measure.outcome import TRAINED
from userrl.machine.home import warehouse_dir
from userrl.machine.output_files import writing
from userrl.reports.curves import RunCurve, curve_panels, curve_points, run_curves, side_curves
from userrl.reports.figures import FORMATS, panels
from userrl.reports.sides import PUBLISHED, find_side, split_by_branch
from userrl.run.run import Run, find
from userrl_core.errors import ConfigError
from warehouse import Warehouse, open_warehouse


def plot_curves(sides: Sequence[str], path: Path) -> Path:
    """Draw the training and validation scores of the sides by step into a file, and return its path.

    A side is a run, finished or not, or a group of runs as `userrl.compare` takes it. A group is drawn as its mean over
    seeds. The suffix of the path chooses the format. Raises ConfigError for another suffix, without curves, or where the file
    cannot be written.
    """
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(
            "argument.malformed", f"'{path}' has no suffix of a picture. Use one of: {', '.join(FORMATS)}."
        )
    if not sides:
        raise ConfigError("argument.missing", "Name a run. `userrl runs list` shows all runs.")
    if published := next((side for side in sides if side.startswith(PUBLISHED)), None):
        raise ConfigError("compare.bad_sides", f"'{published}' has no learning curve. Name runs of this home.")
    runs = {side: find(side) for side in sides if "=" not in side}
    with open_warehouse(warehouse_dir()) as warehouse:
        curves = [
            curve for side in sides for curve in _curves(warehouse, side, runs.get(side), is_single=len(sides) == 1)
        ]
    if not curves:
        raise ConfigError(
            "run.no_curve",
            f"No training or validation step is recorded in {', '.join(sides)}. Wait for the first one, or name a run that was "
            "trained by RL.",
        )
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        panels(curve_panels(curves), path=path)
    return path


def _curves(warehouse: Warehouse, side: str, run: Run | None, *, is_single: bool) -> Iterator[RunCurve]:
    """Yield the curves of a side. A run, or a group of runs, has a line for each branch."""
    if run is None:
        for text in split_by_branch(warehouse, side):
            yield from side_curves(warehouse, find_side(warehouse, text))
        return
    points = curve_points(warehouse, run.id)
    branches = sorted({point.branch for point in points if point.branch}) or [""]
    for branch in branches:
        name = (branch or TRAINED) if is_single else f"{run.id} {branch}".strip()
        yield from run_curves(points, name, run.info.seed, branch)
