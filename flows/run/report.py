"""What a run achieved, in one page: demonstrator, SFT and RL side by side on held-out tasks, the curve, where things are."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import get_run_logger
from prefect.artifacts import create_image_artifact, create_markdown_artifact, create_table_artifact

from flows.machine.home import warehouse_dir
from flows.run.run import Run, write_json
from warehouse import open_warehouse

if TYPE_CHECKING:
    from flows.run.plan import Plan

Result = Mapping[str, Any] | None


def report(
    plan: Plan, run: Run, demonstrations: Result, cold: Result, newest: Result, scores: Result
) -> dict[str, Any]:
    """Write report.md, report.json and curve.png into the run's folder, and show them as artifacts of this flow run."""
    summary = write_report(plan, run, demonstrations, cold, newest, scores)
    _show(run, (run.folder / "report.md").read_text(), summary)
    return summary


def write_report(
    plan: Plan, run: Run, demonstrations: Result, cold: Result, newest: Result, scores: Result
) -> dict[str, Any]:
    """The report's files alone."""
    curve = learning_curve(run.id)
    draw(curve, run.folder / "curve.png", f"{plan.recipe.name}, seed {plan.seed}")
    summary = {
        "run": run.id,
        "recipe": plan.recipe.name,
        "profile": plan.recipe.profile,
        "seed": plan.seed,
        "backend": plan.backend,
        "demonstrations": _demonstrations(demonstrations),
        "cold_start": newest is None or plan.recipe.cold_start.enabled,
        "table": dict(scores["table"]) if scores else {},
        "horizon": scores["horizon"] if scores else None,
        "test_tasks": scores["tasks"] if scores else None,
        "checkpoint": _checkpoint(newest),
        "seconds": {name: found["seconds"] for name, found in stage_results(run).items()},
        "cpu_seconds": {name: found["cpu_seconds"] for name, found in stage_results(run).items()},
        "warnings": list(plan.recipe.warnings),
        "warehouse": str(warehouse_dir()),
        "folder": str(run.folder),
    }
    text = markdown(summary, from_scratch=plan.recipe.model.path is None and plan.init_from is None)
    (run.folder / "report.md").write_text(text)
    write_json(run.folder / "report.json", summary)
    return summary


def stage_results(run: Run) -> dict[str, dict[str, Any]]:
    """What each finished stage left, in the order of finishing."""
    from flows.run.run import read_json

    found = [(path, read_json(path)) for path in run.folder.glob("stages/*/result.json")]
    known = [(path.parent.name, value) for path, value in found if value is not None]
    return {name: value["value"] for name, value in sorted(known, key=lambda item: item[1]["at"])}


def learning_curve(run_id: str) -> list[dict[str, Any]]:
    """Mean score per step in training and in validation, from the warehouse."""
    text = """select phase, stage, step, avg(score) as score, any_value(horizon) as horizon from trajectories
              where run_id = $run and phase in ('train', 'validate') and admitted group by phase, stage, step order by step"""
    with open_warehouse(warehouse_dir()) as warehouse:
        found = warehouse.sql(text, run=run_id)
        return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def draw(curve: Sequence[Mapping[str, Any]], path: Path, title: str) -> None:
    """The learning curve as a picture; none when nothing was trained."""
    if not curve:
        return
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.2), dpi=80, layout="constrained")
    axes = figure.add_subplot()
    for phase, style in (("train", {"lw": 1, "alpha": 0.6}), ("validate", {"lw": 2, "marker": "o", "ms": 4})):
        points = [(row["step"], row["score"]) for row in curve if row["phase"] == phase]
        if points:
            axes.plot(*zip(*points, strict=True), label=phase, **style)
    starts: dict[str, int] = {}
    for row in curve:
        if row["phase"] == "train":
            starts.setdefault(f"{row['stage']} (horizon {row['horizon']})", row["step"])
    for name, step in starts.items():
        axes.axvline(step, color="0.8", lw=1, zorder=0)
        axes.annotate(name, (step, 0.02), xycoords=("data", "axes fraction"), fontsize=7, color="0.4")
    axes.set(xlabel="step", ylabel="mean score", title=title)
    axes.legend(fontsize=8, frameon=False)
    figure.savefig(path)


def markdown(summary: Mapping[str, Any], *, from_scratch: bool) -> str:
    """The page."""
    demonstrated = summary["demonstrations"]
    lines = [f"# {summary['run']}", ""]
    lines.append(f"Recipe `{summary['recipe']}`, profile `{summary['profile']}`, seed {summary['seed']}.")
    if from_scratch:
        lines.append("The model is trained from scratch; its figures say nothing about pretrained models.")
    if demonstrated:
        who = demonstrated["policy"]
        scripted = " (a script that knows the answers, not a model)" if who.startswith("scripted") else ""
        lines.append(
            f"Demonstrator: `{who}`{scripted}: {demonstrated['played']} attempts, mean {number(demonstrated['mean'])}; "
            f"{demonstrated['kept']} kept, mean {number(demonstrated['mean_kept'])}."
        )
    lines += [f"Note: {sentence}" for sentence in summary["warnings"]]
    lines.append("")
    if summary["table"]:
        lines += _table(summary) + _without_calls(summary, from_scratch)
    lines += ["![learning curve](curve.png)", ""] if (Path(summary["folder"]) / "curve.png").is_file() else []
    seconds = sum(summary["seconds"].values())
    cpu = sum(summary["cpu_seconds"].values())
    lines.append(f"Stages took {seconds:.0f} s ({cpu:.0f} CPU-seconds). Checkpoint: `{summary['checkpoint']}`.")
    lines.append(f"Every turn is in the warehouse `{summary['warehouse']}`, run `{summary['run']}`.")
    return "\n".join(lines) + "\n"


def _table(summary: Mapping[str, Any]) -> list[str]:
    table = summary["table"]
    gyms = list(dict.fromkeys(gym for rows in table.values() for gym in rows))
    lines = [
        f"Mean score on {summary['test_tasks']} held-out tasks, horizon {summary['horizon']} (± standard error; turns):",
        "",
        "| gym | " + " | ".join(table) + " |",
        "| --- |" + " ---: |" * len(table),
    ]
    for gym in gyms:
        cells = []
        for rows in table.values():
            row = rows.get(gym, {})
            cells.append(f"{number(row.get('score'))} ± {number(row.get('stderr'))} ({number(row.get('turns'), 1)})")
        lines.append(f"| {gym} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def _without_calls(summary: Mapping[str, Any], from_scratch: bool) -> list[str]:
    """A sentence about actors whose scores say nothing about the tasks, since none of their attempts held a call."""
    silent = [
        actor
        for actor, gyms in summary["table"].items()
        if gyms and all(row.get("format_errors") == 1.0 for row in gyms.values())
    ]
    if not silent:
        return []
    whose = " and of ".join(silent)
    said = f"**Every attempt of {whose} is a format error: no call could be read, and the score is 0 for that alone.**"
    if not summary.get("cold_start", True):
        who = "a model from scratch has never seen a call" if from_scratch else "this model writes no call by itself"
        said += f" The recipe has no cold start: {who}, no attempt earns a reward, and RL has nothing to learn from."
    return [said, ""]


def number(value: float | None, digits: int = 3) -> str:
    """A number or a dash."""
    return "–" if value is None else f"{value:.{digits}f}"


def _demonstrations(found: Result) -> dict[str, Any] | None:
    keys = ("policy", "played", "kept", "dropped", "mean", "mean_kept", "by_gym")
    return None if found is None or "policy" not in found else {key: found[key] for key in keys}


def _checkpoint(found: Result) -> str | None:
    if found is None:
        return None
    best = found.get("best")
    return str(best["path"] if best else found["checkpoint"])


def _show(run: Run, text: str, summary: Mapping[str, Any]) -> None:
    picture = run.folder / "curve.png"
    key = run.id.lower().replace("_", "-").replace(".", "-")
    rows = [
        {"actor": actor, "gym": gym, **{name: row.get(name) for name in ("score", "stderr", "turns", "attempts")}}
        for actor, gyms in summary["table"].items()
        for gym, row in gyms.items()
    ]
    try:
        if picture.is_file():
            image = "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode()
            text = text.replace("(curve.png)", f"({image})")
            create_image_artifact(image_url=image, key=f"{key}-curve", description="mean score per step")
        create_markdown_artifact(text, key=f"{key}-report", description=f"report of {run.id}")
        if rows:
            create_table_artifact(rows, key=f"{key}-scores")
    except Exception as error:  # noqa: BLE001  the report is in the run's folder; the server only shows it
        get_run_logger().warning("the report is not shown by the server (%s)", type(error).__name__)
