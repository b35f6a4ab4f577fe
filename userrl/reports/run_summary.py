"""The summary of a run's report: result card, held-out scores, curve and paths. It is written to ``report.md``.

`run_document` is the full page, with intervals, dynamics and costs from the warehouse. Both share these parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from analysis.measure.outcome import COLLAPSED, TRAINED
from userrl.machine.page_address import run_address
from userrl.reports.curves import SMOOTHED, CurvePoint, curve_panels, curves_figure, horizon_note, run_curves
from userrl.reports.document import Block, Code, Document, Heading, Items, Line, TableBlock, Text, section
from userrl.reports.run_report import CardCost, CardDifference, CardTiers, Evaluated, ResultCard, RunReport
from userrl.run.results import GymScore, KeptDemonstrations
from userrl_core.number_format import NULL, number, with_error, with_limits


def run_summary(report: RunReport, curve: Sequence[CurvePoint] = ()) -> Document:
    """Return the summary of a run. curve: its points, if the warehouse is available."""
    return Document(report.run, (*card(report), *run_details(report, curve)))


def run_details(report: RunReport, curve: Sequence[CurvePoint] = ()) -> Iterator[Block]:
    """Yield everything after the card. curve: its points, if the warehouse is available."""
    yield from facts(report)
    yield from section("Held-out scores", scores(report))
    yield from section("Learning curves", curves(report, curve))
    yield from replaced(report)
    yield from where(report)


def at_a_glance(report: RunReport) -> Document:
    """Return the result card alone, for the end of a command. Its first line is the answer."""
    return Document("", tuple(card(report)))


def card(report: RunReport) -> Iterator[Block]:
    """Yield the result card and the sentences on forgotten abilities.

    A report of an earlier version whose warehouse is gone has no card. Its sentences take its place.
    """
    if report.card is not None:
        yield from card_blocks(report.card)
    for sentence in (*report.collapsed, *report.alarms, *report.held) if report.card is None else ():
        yield Text(sentence, strong=True)
    for sentence in report.forgotten:
        yield Text(sentence, strong=True)
    if report.control:
        yield Text(f"Control: expected to fail, because {report.control}.")


def facts(report: RunReport) -> Iterator[Block]:
    """Yield the facts that a reader must know to interpret the scores."""
    seed = f", seed {report.seed}" + ("" if report.backend == "local" else f", backend {report.backend}")
    yield Text(("Recipe ", Code(report.recipe), ", profile ", Code(str(report.profile)), f"{seed}."))
    if report.evaluated is not None:
        yield Text(_evaluated(report.evaluated))
    if report.judge:
        yield Text(report.judge)
    if report.from_scratch:
        yield Text("The model is trained from scratch; its scores say nothing about pretrained models.")
    if report.demonstrations is not None:
        demonstrations = report.demonstrations
        scripted = (
            " (a script that knows the answers, not a model)" if demonstrations.policy.startswith("scripted") else ""
        )
        counts = (
            f"{scripted}: {demonstrations.played} trajectories, mean {number(demonstrations.mean)}; {demonstrations.kept} kept, "
            f"mean {number(demonstrations.mean_kept)}."
        )
        yield Text(("Demonstrator: ", Code(demonstrations.policy), counts))
        if tiers := _kept_by_tier(demonstrations):
            yield Text(tiers)
        failed = [gym for gym, kept in demonstrations.by_gym.items() if kept.cut is not None and kept.cut <= 0]
        if failed:
            some = ", ".join(f"{gym} (mean {number(demonstrations.by_gym[gym].mean_kept)})" for gym in failed)
            yield Text(
                f"Note: The kept demonstrations include failures with a score of 0: {some}. A lower top_k keeps fewer of them."
            )
        if demonstrations.unread:
            fields = ", ".join(f"{name} ({count:,})" for name, count in demonstrations.unread.items())
            yield Text(f"Note: Training does not read these fields of the given conversations: {fields}.")
    if report.data:
        kinds = dict.fromkeys(report.data.values())
        gyms = {kind: ", ".join(gym for gym, used in report.data.items() if used == kind) for kind in kinds}
        yield Text("Tasks: " + "; ".join(f"{of} {kind}" for kind, of in gyms.items()) + ".")
    for sentence in report.warnings:
        yield Text(f"Note: {sentence}")
    if report.fork and report.best is None:
        yield Text(report.fork.replace("`", ""))  # earlier reports contain names as Markdown


def _kept_by_tier(demonstrations: KeptDemonstrations) -> str:
    """Return what was kept of each tier, for gyms with several; of equal scores the shorter conversations are kept."""
    gyms = (
        f"{gym} {', '.join(f'{tier} {selected} of {played}' for tier, (selected, played) in count.tiers.items())}"
        for gym, count in demonstrations.by_gym.items()
        if len(count.tiers) > 1
    )
    text = "; ".join(gyms)
    return text and f"Kept by tier (of equal scores the shorter conversations): {text}."


def _evaluated(evaluated: Evaluated) -> Line:
    if evaluated.kind == "served":
        return ("Evaluated: the served model ", Code(evaluated.label), f" at {evaluated.where}.")
    if evaluated.kind == "demonstrator":
        return "Evaluated: the recipe's demonstrator."
    return ("Evaluated: the checkpoint ", Code(evaluated.where), ".")


def scores(report: RunReport) -> Iterator[Block]:
    """Yield the scores by gym, by tier and by allowed turns."""
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
        f"Mean score on {report.test_tasks} held-out tasks, horizon {report.horizon} (± standard error over tasks; turns).",
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
                reasons = "; ".join(f"{reason} ({count})" for reason, count in row.reasons.items())
                sentences.append(
                    f"Rejected trajectories of {actor} at {gym}: {row.rejected}{': ' + reasons if reasons else ''}."
                )
    if sentences:
        yield Items(tuple(sentences))


def without_calls(report: RunReport) -> Iterator[Block]:
    """Yield a warning about actors without a single readable call. Their scores say nothing about the tasks."""
    callless = [
        actor for actor, gyms in report.table.items() if gyms and all(row.format_errors == 1.0 for row in gyms.values())
    ]
    if not callless:
        return
    names = " and ".join(callless)
    yield Text(
        f"Every trajectory of {names} is a format error: no call could be read, which alone makes the score 0.",
        strong=True,
    )
    if not report.cold_start:
        cause = (
            "a model from scratch has never seen a tool call"
            if report.from_scratch
            else "this model does not write tool calls by itself"
        )
        yield Text(
            f"The recipe has no cold start: {cause}, so no trajectory earns a reward, and RL has nothing to learn from."
        )


def by_tier(report: RunReport) -> TableBlock:
    """Return a table with one row per tier and one column per actor."""
    tiers = sorted({tier for rows in report.tiers.values() for tier in rows})
    return TableBlock(
        ("tier", *report.tiers),
        tuple((tier, *(_score(rows.get(tier), digits=2) for rows in report.tiers.values())) for tier in tiers),
        "By tier, ± standard error over tasks.",
    )


TURNS_SHOWN = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32)


def by_turns(report: RunReport) -> Iterator[TableBlock]:
    """Yield a table with one row per gym and number of allowed turns, and one column per actor. Redundant rows are left out."""
    if not any(report.solved.values()):
        return
    if report.told_horizon:
        note = f"Share solved within this number of turns, by agents that were told they had {report.horizon}."
    else:
        note = (
            f"Share solved within this number of turns, from one evaluation at {report.horizon}. The agent does "
            "not see how many turns are left, so a task solved in t turns is solved at every horizon of at least t."
        )
    if rows := tuple(_turn_rows(report)):
        yield TableBlock(("task", "turns", *report.solved), rows, note)


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
    """Yield the figure of training and validation side by side. Each branch has a line. The demonstrator's mean is a
    horizontal line.
    """
    branches = list(report.branches) or [""]
    branch_curves = [
        curve for branch in branches for curve in run_curves(points, branch or TRAINED, report.seed, branch)
    ]
    if not branch_curves:
        return
    demonstrations = report.demonstrations
    level = {} if demonstrations is None or demonstrations.mean is None else {"demonstrator": demonstrations.mean}
    yield curves_figure(
        curve_panels(branch_curves, level=level),
        f"{SMOOTHED} Vertical lines mark the start of each stage, with its horizon. Branches share the stages before the fork.",
    )
    if note := horizon_note((point.phase, point.horizon) for point in points):
        yield Text(note)


def replaced(report: RunReport) -> Iterator[Block]:
    """Yield the values that stronger layers of the recipe replaced."""
    if report.replaced:
        yield Heading("Replaced values")
        yield Items(report.replaced)


def where(report: RunReport) -> Iterator[Block]:
    """Yield the total time, and the paths of the run's files and conversations."""
    seconds, cpu = sum(report.seconds.values()), sum(report.cpu_seconds.values())
    paths: Mapping[str, str | None] = {
        "Checkpoint": report.checkpoint,
        "Run folder": report.folder,
        "Warehouse": report.warehouse,
        "All turns": f"userrl sql \"from turns where run_id = '{report.run}'\"",
        "Score by turns and tier": f"userrl sql \"from score_by_turns(run := '{report.run}')\""
        if report.solved
        else None,
    }
    yield Heading("Files and commands")
    yield Items(
        (
            f"Time of all stages: {seconds:.0f} s{f' ({cpu:.0f} CPU seconds)' if cpu else ''}.",
            *((f"{name}: ", Code(path)) for name, path in paths.items() if path),
            ("In the browser: ", Code("userrl view"), f" on that machine, then {run_address(report.run)}"),
        )
    )


def card_blocks(card: ResultCard) -> Iterator[Block]:
    """Yield the blocks of a card. The first one is the answer."""
    answer = _answer(card)
    if answer:
        fallen = len(card.outcomes) == 1 and card.outcomes[0].outcome == COLLAPSED
        yield Text(answer, strong=True, alarm=fallen)
    sentences = [outcome.sentence for outcome in card.outcomes]
    listed_sentences = () if card.between or len(sentences) > 1 else sentences
    for outcome in card.outcomes:
        if outcome.outcome == COLLAPSED and outcome.sentence not in listed_sentences:
            yield Text(outcome.sentence, strong=True, alarm=True)
    for alarm in card.alarms:
        branch = f" Branch {alarm.branch}." if alarm.branch and f" of {alarm.branch}:" not in alarm.sentence else ""
        yield Text(f"{alarm.sentence}{branch}{alarm.remedy and f' {alarm.remedy}'}", strong=True, alarm=True)
    if card.rows:
        yield _table(card)
    items: list[Line] = [
        outcome.sentence
        for outcome in card.outcomes
        if outcome.outcome != COLLAPSED and outcome.sentence not in listed_sentences
    ]
    if len(card.between) > 1:
        items += [_between(difference) for difference in card.between]
    items += [_by_tier(tiers, card.start) for tiers in card.tiers]
    yield Items((*items, _cost_line(card.cost)))


def _answer(card: ResultCard) -> Line:
    """Return the answer to the run's own question: which branch is better, or whether RL improved on the cold start."""
    if card.between:
        return _better_branch(card)
    if len(card.outcomes) == 1:
        return card.outcomes[0].sentence
    if card.outcomes:
        branch_outcomes = [f"{outcome.branch}: {outcome.outcome}" for outcome in card.outcomes if outcome.outcome]
        return f"{'; '.join(branch_outcomes)}." if branch_outcomes else ""
    evaluated = [row for row in card.rows if row.score is not None and row.policy != "demonstrator"]
    if len(evaluated) == 1 and evaluated[0].score is not None:
        return f"{evaluated[0].policy} scores {evaluated[0].score} on {evaluated[0].score.units} held-out tasks."
    return ""


def _better_branch(card: ResultCard) -> Line:
    """Return the answer of a fork: the clearest difference, and a reminder that it is one seed."""

    def clear(between: CardDifference) -> float:
        return abs(between.difference.estimate)

    clearest = max(card.between, key=clear)
    a, b, difference = Code(clearest.a), Code(clearest.b), clearest.difference
    if difference.low > 0:
        sentence: tuple[Line, ...] = ("Branch ", b, " beat branch ", a)
    elif difference.high < 0:
        sentence = ("Branch ", a, " beat branch ", b)
    else:
        sentence = ("Branches ", b, " and ", a, " do not differ clearly")
    return (
        *_flat(sentence),
        ": ",
        *_flat((_between(clearest),)),
        f" It is the largest of {len(card.between)} differences." if len(card.between) > 1 else "",
        " One seed; ",
        Code("userrl reproduce --list"),
        " has the claims that compare recipes over seeds.",
    )


def _flat(lines: Sequence[Line]) -> Iterator[str | Code]:
    for line in lines:
        for part in line if isinstance(line, tuple) else (line,):
            assert isinstance(part, str | Code)
            yield part


def _between(between: CardDifference) -> Line:
    best = "" if between.best is None else f", {with_limits(between.best, sign=True)} at their best steps"
    last = with_limits(between.difference, sign=True)
    tasks = f", same {between.difference.units} held-out tasks: {last} at the last step{best}."
    return (Code(between.b), " − ", Code(between.a), tasks)


def _by_tier(tiers: CardTiers, start: str) -> str:
    gained, lost = (
        f"{name} {with_limits(change, sign=True)}"
        for name, change in ((tiers.best, tiers.gained), (tiers.worst, tiers.lost))
    )
    return f"{tiers.policy}, last step minus {start} by tier: highest {gained}; lowest {lost} (of {tiers.tiers} tiers)."


def _table(card: ResultCard) -> TableBlock:
    gain = any(row.gain for row in card.rows)
    steps = any(row.step is not None for row in card.rows)
    validation = any(row.validation is not None for row in card.rows)
    head = ["policy"]
    head += [name for name, has_column in (("step", steps), ("validation", validation)) if has_column]
    head += ["held-out [95 %]", *([f"minus {card.start} [95 %]"] if gain else [])]
    rows = []
    for row in card.rows:
        cells: list[Line] = [row.policy]
        cells += [NULL if row.step is None else str(row.step)] if steps else []
        cells += [number(row.validation)] if validation else []
        cells += [NULL if row.score is None else str(row.score)]
        cells += [NULL if row.gain is None else with_limits(row.gain, sign=True)] if gain else []
        rows.append(tuple(cells))
    over = (
        "tasks"
        if card.test_tasks is None
        else f"{card.test_tasks} held-out tasks of at most {card.horizon} agent turns"
    )
    notes = [f"Mean scores with 95 % intervals over {over}."]
    notes += ["Validation: mean score on other tasks, which chose the best step."] if validation else []
    notes += ["Differences are paired by task."] if gain else []
    notes += (
        ["The demonstrator played the demonstrations of SFT."]
        if len(card.rows) > 1 and any(r.policy == "demonstrator" for r in card.rows)
        else []
    )
    return TableBlock(tuple(head), tuple(rows), " ".join(notes))


def _cost_line(cost: CardCost) -> str:
    unpriced = f"{cost.unpriced_calls:,} model calls without a known price" if cost.unpriced_calls else ""
    priced = "" if cost.dollars is None else f"${cost.dollars:.2f} of model calls"
    served = " and ".join(filter(None, (priced, unpriced))) or "no served model was called"
    tokens = f"; {cost.tokens:,} tokens sampled in training" if cost.tokens else ""
    processor = f", with {cost.cpu_seconds:,.0f} s of processor time" if cost.cpu_seconds else ""
    return f"Cost: {cost.seconds:,.0f} s, summed over stages{processor}{tokens}; {served}."
