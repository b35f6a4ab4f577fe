"""``userrl.evaluate``: evaluation on held-out tasks or a suite. Several policies, users or horizons make a grid."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from userrl.evaluation.grid import GridResult
    from userrl.evaluation.scored import ScoredEvaluation


def evaluate(
    who: str | Sequence[str] = (),
    *,
    suite: str | None = None,
    model: str | None = None,
    base_url: str | None = None,
    user: str | dict[str, Any] | Sequence[str | dict[str, Any]] | None = None,
    recipe: str = "auto",
    profile: str = "auto",
    gyms: Sequence[str] | None = None,
    turns: int | str | Sequence[int] | None = None,
    tasks: int | None = None,
    attempts: int | None = None,
    temperature: float | None = None,
    seed: int = 0,
    concurrency: int | None = None,
    dollars: float | None = None,
    hours: float | None = None,
    fresh: bool = False,
    out: str | None = None,
    progress: bool = True,
) -> ScoredEvaluation | GridResult:
    """Evaluate on held-out tasks or a suite, and return the scores. Called again, it continues a stopped evaluation.

    who: a run (its best checkpoint), a checkpoint's folder or ``demonstrator``; by default the latest run. model: a served
    model instead. turns: maximum number of agent turns, or several: ``"4,8,16"``, ``"4..32"`` (doubling). out: a .csv file
    for the plot data; the plot is an .svg file next to it. Several policies, users or turns give a grid, and so does out.
    dollars, hours: limits of the evaluation. Raises ConfigError, CheckpointError or TrainingError with one
    sentence.
    """
    from curricula.validation import validated
    from userrl.evaluation.grid import Axes, Grid, horizons, play
    from userrl.evaluation.scored import score
    from userrl.machine.home import quiet_process
    from userrl.run.progress import ProgressLine
    from userrl.run.request import EvaluateRequest
    from userrl_core.errors import ConfigError

    quiet_process()
    players = (who,) if isinstance(who, str) else tuple(who)
    if model is not None and players:
        raise ConfigError(
            "argument.conflict",
            f"Both the served model {model} and {players[0]} were named as the agent. Name one of them.",
        )
    request = {
        "suite": suite,
        "recipe": recipe,
        "profile": profile,
        "gyms": list(gyms) if gyms else None,
        "tasks": tasks,
        "attempts": attempts,
        "temperature": temperature,
        "model": model,
        "base_url": base_url,
        "seed": seed,
        "concurrency": concurrency,
        "budget": {"money": dollars, "hours": hours} if dollars or hours else None,
        "fresh": fresh,
    }
    users = (user,) if user is None or isinstance(user, (str, dict)) else tuple(user)
    axes = Axes(players or ("latest",), users or (None,), horizons(turns, suite) or (None,))
    grid = Grid(validated(EvaluateRequest, request, "evaluate"), axes)
    line = ProgressLine() if progress else None

    def show(values: dict[str, Any]) -> None:
        if line is not None:
            line("evaluate", values)

    def say(text: str) -> None:
        if line is not None:
            line.say("%s", text)

    with contextlib.nullcontext() if line is None else line.alive("loading, or writing the report"):
        if grid.single is not None and out is None:
            return score(grid.single, show)
        return play(grid, out=out, progress=show, say=say)
