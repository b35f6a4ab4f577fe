"""Compose a run's report from its stages and the warehouse, and write it into the run's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from analysis.measure.forgetting import MeanScore, forgotten, pooled
from analysis.measure.outcome import COLLAPSED
from curricula.recipe import PlannedStage
from curricula.shown import replacement
from userrl.machine.home import warehouse_dir
from userrl.reports.card import branches_of_alarms, make_card
from userrl.reports.curves import CurvePoint, along, curve_points
from userrl.reports.judge_reliability import judge_reliability
from userrl.reports.run_report import (
    REPORT_FILE,
    CardAlarm,
    Evaluated,
    Reached,
    RunReport,
)
from userrl.reports.run_summary import run_summary
from userrl.run.alarms import alarm_rules, fell, remedy, sounded, validations
from userrl.run.ending import endings, last_step
from userrl.run.plan import RunPlan
from userrl.run.results import (
    DistillResult,
    EvaluateResult,
    GymScore,
    KeptDemonstrations,
    ScoresByActor,
    TrainResult,
    stage_results,
)
from userrl.run.run import Run
from userrl.run.tasks import data_used
from userrl_core.json_files import write_json
from userrl_core.number_format import with_error
from userrl_core.replaced_file import write_text
from warehouse import Warehouse, open_warehouse

CURVE_FILE = "curve.svg"


def write_report(
    plan: RunPlan,
    run: Run,
    *,
    demonstrations: DistillResult | None = None,
    newest: TrainResult | None = None,
    ends: Mapping[str, TrainResult] | None = None,
    scores: EvaluateResult | None = None,
    evaluated: Evaluated | None = None,
) -> RunReport:
    """Write report.json, report.md and curve.svg into the run's folder.

    newest: the result of the last trained stage. ends: the last result of each branch, or of each iteration. evaluated: the
    evaluated policy, if the run only evaluates.
    """
    chosen = max(reversed([*ends.values()]), key=lambda end: end.best.score if end.best else 0.0) if ends else newest
    with open_warehouse(warehouse_dir(), run=run.id) as warehouse:
        curve = curve_points(warehouse, run.id)
        collapsed, uncollapsed = _endings(run, warehouse)
        alarms = _alarms(plan, run, warehouse)
    trained = {"RL": newest} if newest is not None and not ends else dict(ends or {})
    reached = {
        label: both for label, end in trained.items() if (both := _reached(curve, label, end, scores)) is not None
    }
    best, last = reached.pop("RL", (None, None))
    stages = stage_results(run.folder)
    report = RunReport(
        run=run.id,
        recipe=plan.recipe.name,
        profile=plan.recipe.profile,
        seed=plan.request.seed,
        backend=plan.backend,
        demonstrations=demonstrations and KeptDemonstrations.model_validate(demonstrations, from_attributes=True),
        cold_start=newest is None or plan.recipe.cold_start.enabled,
        from_scratch=plan.from_scratch and evaluated is None,
        table=scores.table if scores else {},
        tiers=scores.tiers if scores else {},
        # An agent that sees its turns left plays other horizons otherwise.
        solved=scores.solved if scores and not plan.recipe.model.turns_left else {},
        forgotten=forgotten_sentences(scores.table) if scores else (),
        told_horizon=plan.recipe.model.prompt_style != "brief",
        horizon=scores.horizon if scores else None,
        test_tasks=scores.tasks if scores else None,
        checkpoint=str(chosen.chosen) if chosen else None,
        seconds={stage: result.seconds for stage, result in stages.items()},
        # Those of verl's own processes are not known.
        cpu_seconds={stage: result.cpu_seconds for stage, result in stages.items() if plan.backend == "local"},
        best=best,
        last=last,
        branches=reached,
        fork=_fork(plan),
        collapsed=collapsed,
        held=uncollapsed,
        alarms=tuple(alarm.sentence for alarm in alarms),
        replaced=tuple(replacement(row) for row in plan.recipe.replaced),
        data=data_used(plan.recipe),
        evaluated=evaluated,
        control=plan.recipe.control,
        judge=judge_reliability(plan.recipe.judge.model_dump(), run.id) if trained and plan.recipe.judge else "",
        warnings=plan.recipe.warnings,
        warehouse=str(warehouse_dir()),
        folder=str(run.folder),
    )
    with open_warehouse(warehouse_dir(), run=run.id) as warehouse:
        report = report.model_copy(update={"card": make_card(report, warehouse, alarms)})
    summary = run_summary(report, curve)
    for figure in summary.figures:
        write_text(run.folder / CURVE_FILE, figure.svg)
    write_text(run.folder / "report.md", summary.markdown([CURVE_FILE]))
    write_json(run.folder / REPORT_FILE, report.model_dump(mode="json"))
    return report


def _reached(
    curve: Sequence[CurvePoint], label: str, end: TrainResult, scores: EvaluateResult | None
) -> tuple[Reached, Reached] | None:
    """Return the best checkpoint and the last step, on validation and on held-out tasks. None if there was no RL.

    label: the evaluation's name for the best checkpoint: a branch's name, or RL.
    """
    if end.best is None:
        return None
    table = scores.table if scores else {}
    validated = {point.step: point.score for point in along(curve, label) if point.phase == "validate"}
    best = Reached(step=end.best.step, validation=end.best.score, **_overall(table.get(label, {})))
    rows = table.get(last_step(label)) or (table.get(label, {}) if end.best.path == end.checkpoint else {})
    return best, Reached(step=end.step, validation=validated.get(end.step), **_overall(rows))


def _overall(rows: Mapping[str, GymScore]) -> dict[str, float | None]:
    overall = pooled([*_means(rows).values()])
    return {} if overall is None else {"score": overall.score, "stderr": overall.stderr}


def _mean(row: GymScore) -> MeanScore | None:
    """Return a gym's mean, or None if nothing was scored."""
    return None if row.score is None else MeanScore(row.score, row.stderr or 0.0, row.attempts)


def _fork(plan: RunPlan) -> str:
    recipe = plan.recipe
    if len(recipe.branches) < 2:
        return ""
    stages = {name: [stage for stage in recipe.planned_stages if stage.branch == name] for name in recipe.branches}
    schedules = [
        f"{name}: {', '.join(f'{stage.horizon} turns for {_length(stage)}' for stage in branch_stages)}"
        for name, branch_stages in stages.items()
    ]
    return (
        f"After the common stages: {'; '.join(schedules)}. One seed shows how these runs differ, not the schedules. To compare the "
        "schedules, run the same fork over many seeds."
    )


def _length(stage: PlannedStage) -> str:
    seconds = stage.stage.cpu_seconds or stage.stage.gpu_seconds
    kind = "CPU" if stage.stage.cpu_seconds else "GPU"
    return f"{stage.steps} steps" if seconds is None else f"{seconds:g} {kind}-seconds"


def forgotten_sentences(table: ScoresByActor) -> tuple[str, ...]:
    """Name the gyms where a trained checkpoint is worse than an earlier one.

    The start and the cold start are the earliest. The last step is also compared with its own best checkpoint. A gym with one task
    has no standard error, and is left out.
    """
    table = {actor: {gym: row for gym, row in rows.items() if row.stderr is not None} for actor, rows in table.items()}
    first = [actor for actor in ("start", "SFT") if actor in table]
    sentences: list[str] = []
    for actor in (actor for actor in table if actor not in ("demonstrator", "start")):
        best_actor = actor.removesuffix(last_step(""))
        earlier = (
            first[: first.index(actor)] if actor in first else [*first, *([best_actor] if best_actor in table else [])]
        )
        before = {name: _means(table[name]) for name in earlier if name != actor}
        for lost in forgotten(actor, _means(table[actor]), before):
            sentences.append(
                f"Forgetting at {lost.gym}: {actor} scores {with_error(lost.now.score, lost.now.stderr)}, {lost.earlier} "
                f"scored {with_error(lost.before.score, lost.before.stderr)}."
            )
    return tuple(sentences)


def _means(rows: Mapping[str, GymScore]) -> dict[str, MeanScore]:
    return {gym: score for gym, row in rows.items() if (score := _mean(row)) is not None}


def _alarms(plan: RunPlan, run: Run, warehouse: Warehouse) -> tuple[CardAlarm, ...]:
    """Return the alarms during training, and a fall of validation even if nobody watched."""
    rules, logged = alarm_rules(plan.recipe.alarms), branches_of_alarms(warehouse, run.id)
    histories = {branch: validations(warehouse, run.id, branch) for branch in plan.recipe.branches or ("",)}
    alarms: dict[str, tuple[str, str]] = {}
    for line in sounded(run.folder):
        branch = line.get("branch")  # the first versions did not write it
        alarms[line["sentence"]] = (
            line["alarm"],
            logged.get((line["alarm"], line["step"]), "") if branch is None else branch,
        )
    for branch, history in histories.items():
        for alarm in fell(history, rules):
            alarms.setdefault(replace(alarm, branch=branch).sentence(), (alarm.name, branch))
    return tuple(
        CardAlarm(sentence=sentence, branch=branch, remedy=remedy(name)) for sentence, (name, branch) in alarms.items()
    )


def _endings(run: Run, warehouse: Warehouse) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return sentences on the branches that collapsed, and on the others."""
    run_endings = endings(warehouse, run.id).get(run.id, [])
    lost = [ending for ending in run_endings if ending.word == COLLAPSED]
    return tuple(ending.sentence() for ending in lost), tuple(
        ending.sentence() for ending in run_endings if ending not in lost
    )
