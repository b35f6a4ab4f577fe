"""What a run achieved, in one page: demonstrator, SFT and RL side by side on held-out tasks, the curve, where things are."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from curricula.recipe import PlannedStage
from curricula.shown import replacement
from flows.machine.home import warehouse_dir
from flows.machine.page_address import run_address
from flows.run.alarms import alarm_rules, fell, sounded, validations
from flows.run.ending import COLLAPSED, endings
from flows.run.plan import RunPlan, last_step
from flows.run.results import (
    Demonstrations,
    DistillResult,
    EvaluateResult,
    GymScore,
    Solved,
    Table,
    TrainResult,
    stage_results,
)
from flows.run.run import Run
from flows.run.tasks import data_used
from userrl_core.json_files import write_json
from userrl_core.records import branch_of
from warehouse import open_warehouse


class Report(BaseModel):
    """What ``report.json`` says, and what a flow returns."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    run: str
    recipe: str
    profile: str | None
    seed: int
    backend: str = "local"
    demonstrations: Demonstrations | None = None
    cold_start: bool = True
    """Whether there was one before RL; reports of old do not say, and had one."""
    from_scratch: bool = False
    table: Table = Field(default_factory=dict)
    horizon: int | None = None
    test_tasks: int | None = None
    checkpoint: str | None = None
    """The best of training on validation, of all branches, else the last."""
    tiers: Table = Field(default_factory=dict)
    """Scores by actor and tier, of gyms with more than one."""
    solved: Solved = Field(default_factory=dict)
    """Share solved within 1, 2 ... turns, by actor and by gym or tier."""
    told_horizon: bool = True
    """Whether the agent was told how many turns it had: then it might have acted otherwise with fewer."""
    forgotten: tuple[str, ...] = ()
    """What a checkpoint solves less often than an earlier one did, a sentence each."""
    best: Reached | None = None
    """The checkpoint that validation chose; none where nothing was trained."""
    last: Reached | None = None
    """The last step of training."""
    branches: dict[str, tuple[Reached, Reached]] = Field(default_factory=dict)
    """Best and last of each branch, in place of those of the whole."""
    fork: str = ""
    """What the branches are compared by, and what one run of each cannot say."""
    collapsed: tuple[str, ...] = ()
    """A sentence for RL, or for each branch, that lost what it had reached; reports of old do not say."""
    held: tuple[str, ...] = ()
    """And for the others."""
    alarms: tuple[str, ...] = ()
    """What the alarms said while it trained."""
    replaced: tuple[str, ...] = ()
    """Values that stronger layers of the recipe replaced."""
    data: dict[str, str] = Field(default_factory=dict)
    """Which tasks each gym was played on; reports of old do not say."""
    evaluated: Evaluated | None = None
    """What was evaluated, where it is no run's own training."""
    seconds: dict[str, float] = Field(default_factory=dict)
    cpu_seconds: dict[str, float] = Field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    warehouse: str
    folder: str


class Reached(BaseModel):
    """Where training was at a step."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    step: int
    validation: float | None = None
    """Mean score on validation tasks, at the run's final horizon."""
    score: float | None = None
    """Mean score on held-out tasks."""
    stderr: float | None = None


class Evaluated(BaseModel):
    """Who was evaluated by itself. kind: demonstrator, checkpoint or served; where: its folder, or its server."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    label: str
    kind: str
    where: str = ""


Report.model_rebuild()


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Mean score of one step in training or in validation, at the horizon of the step."""

    phase: str
    stage: str
    step: int
    score: float
    horizon: int


def write_report(
    plan: RunPlan,
    run: Run,
    *,
    demonstrations: DistillResult | None = None,
    newest: TrainResult | None = None,
    ends: Mapping[str, TrainResult] | None = None,
    scores: EvaluateResult | None = None,
    evaluated: Evaluated | None = None,
) -> Report:
    """Write report.md, report.json and curve.png into the run's folder.

    newest: of the trained stages' results. ends: the last of each branch, or of each iteration. evaluated: who was, where
    the run is an evaluation alone.
    """
    chosen = max(reversed([*ends.values()]), key=lambda end: end.best.score if end.best else 0.0) if ends else newest
    reached = {"RL": newest} if newest is not None and not ends else dict(ends or {})
    found = {label: both for label, end in reached.items() if (both := _reached(run, label, end, scores)) is not None}
    best, last = found.pop("RL", (None, None))
    collapsed, held = _endings(run)
    draw(learning_curve(run.id), run.folder / "curve.png", f"{plan.recipe.name}, seed {plan.request.seed}")
    finished = stage_results(run.folder)
    written = Report(
        run=run.id,
        recipe=plan.recipe.name,
        profile=plan.recipe.profile,
        seed=plan.request.seed,
        backend=plan.backend,
        demonstrations=demonstrations and Demonstrations.model_validate(demonstrations, from_attributes=True),
        cold_start=newest is None or plan.recipe.cold_start.enabled,
        from_scratch=plan.from_scratch and evaluated is None,
        table=scores.table if scores else {},
        tiers=scores.tiers if scores else {},
        solved=scores.solved if scores else {},
        forgotten=_forgotten(scores.table) if scores else (),
        told_horizon=plan.recipe.model.prompt_style != "brief",
        horizon=scores.horizon if scores else None,
        test_tasks=scores.tasks if scores else None,
        checkpoint=str(chosen.chosen) if chosen else None,
        seconds={stage: result.seconds for stage, result in finished.items()},
        cpu_seconds={stage: result.cpu_seconds for stage, result in finished.items()},
        best=best,
        last=last,
        branches=found,
        fork=_fork(plan),
        collapsed=collapsed,
        held=held,
        alarms=_alarms(plan, run),
        replaced=tuple(replacement(row) for row in plan.recipe.replaced),
        data=data_used(plan.recipe),
        evaluated=evaluated,
        warnings=plan.recipe.warnings,
        warehouse=str(warehouse_dir()),
        folder=str(run.folder),
    )
    (run.folder / "report.md").write_text(markdown(written))
    write_json(run.folder / "report.json", written.model_dump(mode="json"))
    return written


def _reached(run: Run, label: str, end: TrainResult, scores: EvaluateResult | None) -> tuple[Reached, Reached] | None:
    """The best checkpoint and the last step, on validation and on held-out tasks; None where there was no RL.

    label: what the evaluation calls the best; a branch's name, or RL.
    """
    if end.best is None:
        return None
    table = scores.table if scores else {}
    curve = [point for point in learning_curve(run.id) if branch_of(point.stage) in ("", label)]
    validated = {point.step: point.score for point in curve if point.phase == "validate"}
    best = Reached(step=end.best.step, validation=end.best.score, **_overall(table.get(label, {})))
    rows = table.get(last_step(label)) or (table.get(label, {}) if end.best.path == end.checkpoint else {})
    return best, Reached(step=end.step, validation=validated.get(end.step), **_overall(rows))


def _data(report: Report) -> list[str]:
    """A sentence for every kind of tasks, with its gyms."""
    kinds = dict.fromkeys(report.data.values())
    gyms = {kind: ", ".join(gym for gym, used in report.data.items() if used == kind) for kind in kinds}
    return ["Tasks: " + "; ".join(f"{of} {kind}" for kind, of in gyms.items()) + "."] if gyms else []


def _fork(plan: RunPlan) -> str:
    """What the reader of a comparison has to know first."""
    recipe = plan.recipe
    if len(recipe.branches) < 2:
        return ""
    stages = {name: [stage for stage in recipe.planned_stages if stage.branch == name] for name in recipe.branches}
    ways = [
        f"`{name}`: {', '.join(f'{stage.horizon} turns for {_length(stage)}' for stage in own)}"
        for name, own in stages.items()
    ]
    return (
        f"After the common beginning: {'; '.join(ways)}. One seed: how these runs differ, not the schedules. For the "
        "schedules, compare the same fork over many seeds."
    )


def _length(stage: PlannedStage) -> str:
    """How long a stage lasts."""
    seconds = stage.stage.cpu_seconds or stage.stage.gpu_seconds
    kind = "CPU" if stage.stage.cpu_seconds else "GPU"
    return f"{stage.steps} steps" if seconds is None else f"{seconds:g} {kind}-seconds"


LEAST_FALL = 0.05


def _forgotten(table: Table) -> tuple[str, ...]:
    """Gyms at which a trained checkpoint is worse than an earlier one, by more than two standard errors of the difference.

    Earlier than all are the start and the cold start; the last step also has its own best checkpoint before it.
    """
    said: list[str] = []
    first = [actor for actor in ("start", "SFT") if actor in table]
    for actor in (actor for actor in table if actor not in ("demonstrator", "start")):
        whole = actor.removesuffix(last_step(""))
        earlier = first[: first.index(actor)] if actor in first else [*first, *([whole] if whole in table else [])]
        for gym, row in table[actor].items():
            before = {name: table[name].get(gym, GymScore()) for name in earlier if name != actor}
            scored = {name: score.score for name, score in before.items() if score.score is not None}
            if row.score is None or not scored:
                continue
            best = max(scored, key=lambda name: scored[name])
            fall, error = scored[best] - row.score, math.hypot(row.stderr or 0.0, before[best].stderr or 0.0)
            if fall > max(LEAST_FALL, 2 * error):
                said.append(
                    f"Forgotten at {gym}: {actor} scores {number(row.score)} ± {number(row.stderr)}, {best} scored "
                    f"{number(scored[best])} ± {number(before[best].stderr)}."
                )
    return tuple(said)


def _overall(rows: Mapping[str, GymScore]) -> dict[str, float | None]:
    """Mean over all trajectories of all gyms, and its standard error."""
    scored = [row for row in rows.values() if row.score is not None and row.attempts]
    n = sum(row.attempts for row in scored)
    if not n:
        return {}
    mean = sum((row.score or 0.0) * row.attempts for row in scored) / n
    return {"score": mean, "stderr": sum(((row.stderr or 0.0) * row.attempts / n) ** 2 for row in scored) ** 0.5}


def _alarms(plan: RunPlan, run: Run) -> tuple[str, ...]:
    """Those that sounded, and a fall of validation also where nobody was watching."""
    rules = alarm_rules(plan.recipe.alarms)
    with open_warehouse(warehouse_dir(), run=run.id) as warehouse:
        histories = [validations(warehouse, run.id, branch) for branch in plan.recipe.branches or ("",)]
    fall = [alarm.sentence() for history in histories for alarm in fell(history, rules)]
    return tuple(dict.fromkeys((*sounded(run.folder), *fall)))


def _endings(run: Run) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Sentences on the branches that collapsed, and on the others."""
    with open_warehouse(warehouse_dir(), run=run.id) as warehouse:
        own = endings(warehouse, run.id).get(run.id, [])
    lost = [each for each in own if each.word == COLLAPSED]
    return tuple(each.sentence() for each in lost), tuple(each.sentence() for each in own if each not in lost)


def learning_curve(run_id: str) -> list[CurvePoint]:
    """Mean score per step in training and in validation, from the warehouse."""
    text = """select phase, stage, step, avg(score), any_value(horizon) from trajectories
              where run_id = $run and phase in ('train', 'validate') and admitted
              group by phase, stage, step order by step, stage"""
    with open_warehouse(warehouse_dir(), run=run_id) as warehouse:
        return [CurvePoint(*row) for row in warehouse.sql(text, run=run_id).fetchall()]


def draw(curve: Sequence[CurvePoint], path: Path, title: str) -> None:
    """The learning curve as a picture; none when nothing was trained."""
    if not curve:
        return
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.2), dpi=80, layout="constrained")
    axes = figure.add_subplot()
    ways = list(dict.fromkeys(branch_of(point.stage) for point in curve))
    for phase, style in (("train", {"lw": 1, "alpha": 0.6}), ("validate", {"lw": 2, "marker": "o", "ms": 4})):
        for number, way in enumerate(ways):
            points = [(p.step, p.score) for p in curve if p.phase == phase and branch_of(p.stage) == way]
            if points:
                color = f"C{number}" if len(ways) > 1 else None
                axes.plot(*zip(*points, strict=True), label=f"{phase} {way}".strip(), color=color, **style)
    starts: dict[str, int] = {}
    for point in curve:
        if point.phase == "train":
            starts.setdefault(f"{point.stage} (horizon {point.horizon})", point.step)
    stacked: Counter[int] = Counter()  # branches begin at the same step: their names stand one above the other
    for name, step in starts.items():
        axes.axvline(step, color="0.8", lw=1, zorder=0)
        at = (step, 0.02 + 0.05 * stacked[step])
        axes.annotate(name, at, xycoords=("data", "axes fraction"), fontsize=7, color="0.4")
        stacked[step] += 1
    axes.set(xlabel="step", ylabel="mean score", title=title)
    figure.legend(fontsize=8, frameon=False, loc="outside right upper")
    figure.savefig(path)


def markdown(report: Report) -> str:
    """The page."""
    lines = [f"# {report.run}", ""]
    lines += [f"**{sentence}**" if strong else sentence for sentence, strong in facts(report, code="`")]
    lines += best_and_last(report)
    lines += [f"**{sentence}**" for sentence in (*report.collapsed, *report.forgotten)]
    lines += report.held
    lines.append("")
    if report.table:
        lines += _table(report) + _without_calls(report)
    if report.tiers and any(report.tiers.values()):
        lines += by_tier(report)
    if any(report.solved.values()):
        lines += by_turns(report)
    lines += ["![learning curve](curve.png)", ""] if (Path(report.folder) / "curve.png").is_file() else []
    seconds, cpu = sum(report.seconds.values()), sum(report.cpu_seconds.values())
    checkpoint = f" Checkpoint: `{report.checkpoint}`." if report.checkpoint else ""
    lines.append(f"Stages took {seconds:.0f} s ({cpu:.0f} CPU-seconds).{checkpoint}")
    lines.append(f"Every turn is in the warehouse `{report.warehouse}`, run `{report.run}`.")
    lines.append(f"To look at it, `userrl view` on that machine, then {run_address(report.run)}")
    if report.replaced:
        lines += ["", REPLACED, "", *(f"- {line}" for line in report.replaced)]
    return "\n".join(lines) + "\n"


def facts(report: Report, code: str = "") -> list[tuple[str, bool]]:
    """What a reader has to know before any figure, and whether it must not be overlooked. code: put around names."""

    def named(name: object) -> str:
        return f"{code}{name}{code}"

    said = [f"Recipe {named(report.recipe)}, profile {named(report.profile)}, seed {report.seed}."]
    if report.evaluated is not None:
        said.append(_evaluated(report.evaluated, named))
    if report.from_scratch:
        said.append("The model is trained from scratch; its figures say nothing about pretrained models.")
    if report.demonstrations is not None:
        shown = report.demonstrations
        scripted = " (a script that knows the answers, not a model)" if shown.policy.startswith("scripted") else ""
        said.append(
            f"Demonstrator: {named(shown.policy)}{scripted}: {shown.played} trajectories, mean {number(shown.mean)}; "
            f"{shown.kept} kept, mean {number(shown.mean_kept)}."
        )
    said += _data(report)
    said += [f"Note: {sentence}" for sentence in report.warnings]
    return [*((sentence, False) for sentence in said), *((sentence, True) for sentence in report.alarms)]


def _table(report: Report) -> list[str]:
    gyms = list(dict.fromkeys(gym for rows in report.table.values() for gym in rows))
    lines = [
        f"Mean score on {report.test_tasks} held-out tasks, horizon {report.horizon} (± standard error; turns):",
        "",
        "| gym | " + " | ".join(report.table) + " |",
        "| --- |" + " ---: |" * len(report.table),
    ]
    for gym in gyms:
        cells = []
        for rows in report.table.values():
            row = rows.get(gym, GymScore())
            cells.append(f"{number(row.score)} ± {number(row.stderr)} ({number(row.turns, 1)})")
        lines.append(f"| {gym} | " + " | ".join(cells) + " |")
    for actor, rows in report.table.items():
        for gym, row in rows.items():
            if row.rejected:
                why = "; ".join(f"{reason} ({count})" for reason, count in row.reasons.items())
                lines.append(f"\nRejected of {actor} at {gym}: {row.rejected}{': ' + why if why else ''}.")
    return [*lines, ""]


def by_tier(report: Report) -> list[str]:
    """Rows of tiers, a column an actor."""
    tiers = sorted({tier for rows in report.tiers.values() for tier in rows})
    lines = ["By tier:", "", "| tier | " + " | ".join(report.tiers) + " |", "| --- |" + " ---: |" * len(report.tiers)]
    for tier in tiers:
        found = [rows.get(tier, GymScore()) for rows in report.tiers.values()]
        lines.append(
            f"| {tier} | " + " | ".join(f"{number(row.score, 2)} ± {number(row.stderr, 2)}" for row in found) + " |"
        )
    return [*lines, ""]


TURNS_SHOWN = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32)


def by_turns(report: Report) -> list[str]:
    """A row per gym and number of turns allowed, a column an actor; rows that add nothing are left out."""
    if report.told_horizon:
        title = f"Share solved within so many turns, by agents that were told they had {report.horizon}:"
    else:
        title = (
            f"Score by turns allowed: the share solved within so many, of one evaluation at {report.horizon}. The agent does "
            "not see how many are left, so what it solves in t turns it solves at every horizon from t on:"
        )
    lines = [title, "", "| task | turns | " + " | ".join(report.solved) + " |"]
    lines.append("| --- | ---: |" + " ---: |" * len(report.solved))
    gyms = dict.fromkeys(gym for rows in report.table.values() for gym in rows)
    for label in (gym for gym in gyms if any(gym in rows for rows in report.solved.values())):
        before: list[str] = []
        for turns in TURNS_SHOWN:
            found = [rows.get(label, ()) for rows in report.solved.values()]
            cells = [number(shares[turns - 1], 2) if turns <= len(shares) else "–" for shares in found]
            if turns <= (report.horizon or 0) and cells != before and any(cell != "0.00" for cell in cells):
                lines.append(f"| {label} | {turns} | " + " | ".join(cells) + " |")
                before = cells
    return [*lines, "", f"By tier: userrl sql \"from score_by_turns(run := '{report.run}')\"", ""]


REPLACED = "## Replaced values"


def best_and_last(report: Report) -> list[str]:
    """A sentence on each; what validation chose stands beside where training ended."""
    if report.best is not None and report.last is not None:
        return _both(report.best, report.last)
    lines = [report.fork] if report.fork else []
    for branch, (best, last) in report.branches.items():
        lines += [f"`{branch}`: {sentence[0].lower()}{sentence[1:]}" for sentence in _both(best, last)]
    return lines


def _both(best: Reached, last: Reached) -> list[str]:
    if best.step == last.step:
        return [f"Best checkpoint: step {best.step}, which is the last ({_scores(best)})."]
    return [
        f"Best checkpoint on validation: step {best.step} ({_scores(best)}).",
        f"Last step: {last.step} ({_scores(last)}).",
    ]


def _scores(reached: Reached) -> str:
    held_out = f", held-out {number(reached.score)} ± {number(reached.stderr)}" if reached.score is not None else ""
    return f"validation {number(reached.validation)}{held_out}"


def _evaluated(evaluated: Evaluated, named: Callable[[object], str]) -> str:
    if evaluated.kind == "served":
        return f"Evaluated: the served model {named(evaluated.label)} at {evaluated.where}."
    if evaluated.kind == "demonstrator":
        return "Evaluated: the recipe's demonstrator."
    return f"Evaluated: the checkpoint {named(evaluated.where)}."


def _without_calls(report: Report) -> list[str]:
    """A sentence about actors whose scores say nothing about the tasks, since none of their trajectories held a call."""
    silent = [
        actor for actor, gyms in report.table.items() if gyms and all(row.format_errors == 1.0 for row in gyms.values())
    ]
    if not silent:
        return []
    whose = " and of ".join(silent)
    sentence = (
        f"**Every trajectory of {whose} is a format error: no call could be read, and the score is 0 for that alone.**"
    )
    if not report.cold_start:
        who = (
            "a model from scratch has never seen a call"
            if report.from_scratch
            else "this model writes no call by itself"
        )
        sentence += (
            f" The recipe has no cold start: {who}, no trajectory earns a reward, and RL has nothing to learn from."
        )
    return [sentence, ""]


def number(value: float | None, digits: int = 3) -> str:
    """A number or a dash."""
    return "–" if value is None else f"{value:.{digits}f}"
