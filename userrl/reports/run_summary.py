"""Show a run's report by itself: what it reached, its held-out scores, its curve, where it is. ``report.md`` is this page.

`run_document` is the whole page, with intervals, dynamics and cost from the warehouse. Both are made of these parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from userrl.machine.page_address import run_address
from userrl.reports.curves import SMOOTHED, CurvePoint, RunCurve, curves_figure, mean_line, run_curves
from userrl.reports.document import Block, Code, Document, Heading, Items, Line, TableBlock, Text, section
from userrl.reports.run_report import Evaluated, Reached, RunReport
from userrl.reports.sides import TRAINED
from userrl.run.results import GymScore
from userrl_core.number_format import NULL, number, with_error


def run_summary(report: RunReport, curve: Sequence[CurvePoint] = ()) -> Document:
    """Return the page of a run. curve: its points, where the warehouse is there."""
    blocks: list[Block] = [
        *facts(report),
        *reached(report, report.collapsed, report.held),
        *section("Held-out scores", scores(report)),
        *section("Learning curves", curves(report, curve)),
        *replaced(report),
        *where(report),
    ]
    return Document(report.run, tuple(blocks))


def facts(report: RunReport) -> Iterator[Block]:
    """Yield what a reader has to know before any figure."""
    yield Text(("Recipe ", Code(report.recipe), ", profile ", Code(str(report.profile)), f", seed {report.seed}."))
    if report.evaluated is not None:
        yield Text(_evaluated(report.evaluated))
    if report.from_scratch:
        yield Text("The model is trained from scratch; its figures say nothing about pretrained models.")
    if report.demonstrations is not None:
        shown = report.demonstrations
        scripted = " (a script that knows the answers, not a model)" if shown.policy.startswith("scripted") else ""
        counts = (
            f"{scripted}: {shown.played} trajectories, mean {number(shown.mean)}; {shown.kept} kept, "
            f"mean {number(shown.mean_kept)}."
        )
        yield Text(("Demonstrator: ", Code(shown.policy), counts))
    if report.data:
        kinds = dict.fromkeys(report.data.values())
        gyms = {kind: ", ".join(gym for gym, used in report.data.items() if used == kind) for kind in kinds}
        yield Text("Tasks: " + "; ".join(f"{of} {kind}" for kind, of in gyms.items()) + ".")
    for sentence in report.warnings:
        yield Text(f"Note: {sentence}")
    for sentence in report.alarms:
        yield Text(sentence, strong=True)


def _evaluated(evaluated: Evaluated) -> Line:
    if evaluated.kind == "served":
        return ("Evaluated: the served model ", Code(evaluated.label), f" at {evaluated.where}.")
    if evaluated.kind == "demonstrator":
        return "Evaluated: the recipe's demonstrator."
    return ("Evaluated: the checkpoint ", Code(evaluated.where), ".")


def reached(report: RunReport, collapsed: Sequence[str], held: Sequence[str]) -> Iterator[Block]:
    """Yield the best checkpoint beside the last step, what was lost first. collapsed, held: sentences on how it ended."""
    for sentence in (*collapsed, *report.forgotten):
        yield Text(sentence, strong=True)
    if report.fork and report.best is None:
        yield Text(report.fork.replace("`", ""))  # earlier reports hold names as Markdown
    if items := [*_best_and_last(report), *held]:
        yield Items(tuple(items))


def _best_and_last(report: RunReport) -> Iterator[Line]:
    if report.best is not None and report.last is not None:
        yield from _both(report.best, report.last)
        return
    for branch, (best, last) in report.branches.items():
        for sentence in _both(best, last):
            yield (Code(branch), f": {sentence[0].lower()}{sentence[1:]}")


def _both(best: Reached, last: Reached) -> Iterator[str]:
    if best.step == last.step:
        yield f"Best checkpoint: step {best.step}, which is the last ({_at(best)})."
        return
    yield f"Best checkpoint on validation: step {best.step} ({_at(best)})."
    yield f"Last step: {last.step} ({_at(last)})."


def _at(at: Reached) -> str:
    held_out = "" if at.score is None else f", held-out {with_error(at.score, at.stderr)}"
    return f"validation {number(at.validation)}{held_out}"


def scores(report: RunReport) -> Iterator[Block]:
    """Yield the scores by gym, by tier and by turns allowed."""
    if report.table:
        yield _by_gym(report)
        yield from rejected(report)
        yield from without_calls(report)
    if any(report.tiers.values()):
        yield by_tier(report)
    yield from by_turns(report)


def _by_gym(report: RunReport) -> TableBlock:
    gyms = dict.fromkeys(gym for rows in report.table.values() for gym in rows)
    return TableBlock(
        ("gym", *report.table),
        tuple((gym, *(_score(rows.get(gym), turns=True) for rows in report.table.values())) for gym in gyms),
        f"Mean score on {report.test_tasks} held-out tasks, horizon {report.horizon} (± standard error; turns).",
    )


def _score(row: GymScore | None, *, digits: int = 3, turns: bool = False) -> str:
    if row is None or row.score is None:
        return NULL
    return with_error(row.score, row.stderr, digits) + (f" ({number(row.turns, 1)})" if turns else "")


def rejected(report: RunReport) -> Iterator[Block]:
    """Yield why trajectories could not be scored."""
    sentences = []
    for actor, rows in report.table.items():
        for gym, row in rows.items():
            if row.rejected:
                why = "; ".join(f"{reason} ({count})" for reason, count in row.reasons.items())
                sentences.append(f"Rejected of {actor} at {gym}: {row.rejected}{': ' + why if why else ''}.")
    if sentences:
        yield Items(tuple(sentences))


def without_calls(report: RunReport) -> Iterator[Block]:
    """Yield a sentence about actors whose scores say nothing about the tasks, since none of their trajectories held a call."""
    silent = [
        actor for actor, gyms in report.table.items() if gyms and all(row.format_errors == 1.0 for row in gyms.values())
    ]
    if not silent:
        return
    whose = " and of ".join(silent)
    yield Text(
        f"Every trajectory of {whose} is a format error: no call could be read, and the score is 0 for that alone.",
        strong=True,
    )
    if not report.cold_start:
        who = (
            "a model from scratch has never seen a call"
            if report.from_scratch
            else "this model writes no call by itself"
        )
        yield Text(
            f"The recipe has no cold start: {who}, no trajectory earns a reward, and RL has nothing to learn from."
        )


def by_tier(report: RunReport) -> TableBlock:
    """Return a row for each tier, a column an actor."""
    tiers = sorted({tier for rows in report.tiers.values() for tier in rows})
    return TableBlock(
        ("tier", *report.tiers),
        tuple((tier, *(_score(rows.get(tier), digits=2) for rows in report.tiers.values())) for tier in tiers),
        "By tier, ± standard error.",
    )


TURNS_SHOWN = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32)


def by_turns(report: RunReport) -> Iterator[TableBlock]:
    """Yield a table with a row per gym and number of turns allowed, a column an actor; rows that add nothing are left out."""
    if not any(report.solved.values()):
        return
    if report.told_horizon:
        note = f"Share solved within so many turns, by agents that were told they had {report.horizon}."
    else:
        note = (
            f"Score by turns allowed: the share solved within so many, of one evaluation at {report.horizon}. The agent does "
            "not see how many are left, so what it solves in t turns it solves at every horizon from t on."
        )
    yield TableBlock(("task", "turns", *report.solved), tuple(_turn_rows(report)), note)


def _turn_rows(report: RunReport) -> Iterator[tuple[str, ...]]:
    gyms = dict.fromkeys(gym for rows in report.table.values() for gym in rows)
    for gym in gyms:
        solved: list[Sequence[float]] = [rows.get(gym, ()) for rows in report.solved.values()]
        before: list[str] = []
        for turns in TURNS_SHOWN if any(solved) else ():
            cells = [number(shares[turns - 1], 2) if turns <= len(shares) else NULL for shares in solved]
            if turns <= (report.horizon or 0) and cells != before and any(cell != "0.00" for cell in cells):
                yield (gym, str(turns), *cells)
                before = cells


def curves(report: RunReport, points: Sequence[CurvePoint]) -> Iterator[Block]:
    """Yield training beside validation, a line for each branch, with the demonstrator's mean as a level."""
    ways = list(report.branches) or [""]
    own = [curve for way in ways for curve in run_curves(points, way or TRAINED, report.seed, way)]
    if not own:
        return

    def lines(phase: str) -> list[RunCurve]:
        return [curve for curve in own if curve.phase == phase]

    shown = report.demonstrations
    yield curves_figure(
        own,
        lambda phase: [mean_line(curve.side, [curve]) for curve in lines(phase)],
        f"{SMOOTHED} Each stage is marked where it begins, with its horizon; branches of a fork share what comes before it.",
        {} if shown is None or shown.mean is None else {"demonstrator": shown.mean},
    )


def replaced(report: RunReport) -> Iterator[Block]:
    """Yield the values that stronger layers of the recipe replaced."""
    if report.replaced:
        yield Heading("Replaced values")
        yield Items(report.replaced)


def where(report: RunReport) -> Iterator[Block]:
    """Yield what the run took in all, and where its files and conversations are."""
    seconds, cpu = sum(report.seconds.values()), sum(report.cpu_seconds.values())
    places: Mapping[str, str | None] = {
        "Checkpoint": report.checkpoint,
        "Run folder": report.folder,
        "Warehouse": report.warehouse,
        "Every turn": f"userrl sql \"from turns where run_id = '{report.run}'\"",
        "Score by turns and tier": f"userrl sql \"from score_by_turns(run := '{report.run}')\""
        if report.solved
        else None,
    }
    yield Heading("Where it is")
    yield Items(
        (
            f"Stages took {seconds:.0f} s ({cpu:.0f} CPU-seconds).",
            *((f"{name}: ", Code(place)) for name, place in places.items() if place),
            ("To look at it: ", Code("userrl view"), f" on that machine, then {run_address(report.run)}"),
        )
    )
