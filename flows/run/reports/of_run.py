"""A run, or an evaluation by itself, as a page: what it reached, how sure that is, how it got there, what it cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from flows.machine.page_address import run_address
from flows.run.ending import COLLAPSED, Ending, endings
from flows.run.plan import last_step
from flows.run.report import Report, best_and_last, facts, number
from flows.run.reports.compared import line, marks
from flows.run.reports.comparison import ALL, Curve, curves
from flows.run.reports.document import Block, Document, Figure, Heading, Items, Table, Text
from flows.run.reports.figures import Line, Panel, intervals, panels
from flows.run.reports.of_people import TITLE, beside_simulated
from flows.run.reports.sides import TRAINED, Member, Side
from flows.run.spark import spark
from userrl_core.measure.checkpoints import consistency, mean_score
from userrl_core.measure.interval import Interval
from userrl_core.records import branch_of
from warehouse import Warehouse

Scores = dict[tuple[str, str], Interval]
"""By policy and row: all tasks, a gym, a tier of it."""


def page(report: Report, warehouse: Warehouse) -> Document:
    """The page of a run that has a report."""
    scores = warehouse.sql("FROM task_scores(run := $run)", run=report.run).pl()
    found = _scores_of(scores)
    blocks: list[Block] = [Text(sentence, strong=strong) for sentence, strong in facts(report)]
    blocks += [
        *_reached(report, endings(warehouse, report.run).get(report.run, ()), found),
        *_curves(report, warehouse),
        *_scores(report, scores, found),
    ]
    blocks += [
        *_published(report, warehouse, found),
        *_people(report, warehouse),
        *_dynamics(report, warehouse),
        *_ends(report, warehouse),
    ]
    blocks += [*_cost(report, warehouse, found), *_where(report)]
    return Document(report.run, tuple(blocks))


def _scores_of(scores: pl.DataFrame) -> Scores:
    found: Scores = {}
    for (policy,), own in scores.group_by("policy", maintain_order=True):
        found[str(policy), ALL] = mean_score(own["scores"].to_list())
        for (gym,), of_gym in own.group_by("gym", maintain_order=True):
            found[str(policy), str(gym)] = mean_score(of_gym["scores"].to_list())
            if of_gym["tier"].n_unique() > 1:
                for (tier,), of_tier in of_gym.sort("tier").group_by("tier", maintain_order=True):
                    found[str(policy), f"{gym} {tier}"] = mean_score(of_tier["scores"].to_list())
    return found


def _order(report: Report, found: Scores) -> list[str]:
    """Policies in the report's order; it calls a scripted demonstrator by that name alone."""
    of_report = list(report.table)
    policies = list(dict.fromkeys(policy for policy, _ in found))

    def place(policy: str) -> tuple[int, str]:
        label = "demonstrator" if policy.startswith("scripted") else policy
        return (of_report.index(label) if label in of_report else len(of_report), policy)

    return sorted(policies, key=place)


def _reached(report: Report, own: Sequence[Ending], found: Scores) -> Iterator[Block]:
    for ending in own:
        if ending.word == COLLAPSED:
            yield Text(ending.sentence(), strong=True)
    held = [ending.sentence() for ending in own if ending.word != COLLAPSED]
    if sentences := [*best_and_last(report), *held]:
        yield Items(tuple(sentence.replace("`", "") for sentence in sentences))
    rows = [
        (policy, interval.estimate, interval.low, interval.high)
        for policy in _order(report, found)
        if (interval := found[policy, ALL]).units > 1
    ]
    if rows:
        yield Figure(
            intervals(rows, x="mean held-out score, 95 % over tasks"),
            "All held-out tasks; one run: the limits say nothing about another seed.",
            tuple(f"{policy:24} {value:.3f} [{low:.3f}, {high:.3f}]" for policy, value, low, high in rows),
        )


def _curves(report: Report, warehouse: Warehouse) -> Iterator[Block]:
    ways = list(report.branches) or [""]
    lines: dict[str, list[Curve]] = {}
    for way in ways:
        side = Side(way or TRAINED, (Member(report.run, report.recipe, report.seed, TRAINED, TRAINED, way),))
        for curve in curves(warehouse, side):
            lines.setdefault(curve.phase, []).append(curve)
    if not lines:
        return
    yield Heading("Learning curves")
    every = [curve for phase in lines.values() for curve in phase]
    levels = _levels(report)
    drawn = [
        Panel(
            title,
            [line(curve.side, [curve]) for curve in lines.get(phase, [])],
            marks=marks(every),
            level=levels if phase == "train" else {},
        )
        for phase, title in (("train", "training, mean score of a step"), ("validate", "validation, mean score"))
    ]
    yield Figure(
        panels(drawn),
        "Training: raw values behind a Gaussian of sigma 2 steps. Each stage is marked where it begins, with its horizon; "
        "branches of a fork share what comes before it.",
        tuple(
            f"{panel.title.partition(',')[0]:10} {spark(values)} {values[0]:.3f} → {values[-1]:.3f}  {each.label}"
            for panel in drawn
            for each in panel.lines
            if (values := [value for _, value in each.points])
        ),
    )


def _levels(report: Report) -> dict[str, float]:
    """The demonstrator's mean, beside which a curve has to be read."""
    shown = report.demonstrations
    return {} if shown is None or shown.mean is None else {"demonstrator": shown.mean}


def _scores(report: Report, scores: pl.DataFrame, found: Scores) -> Iterator[Block]:
    if not found:
        return
    yield Heading("Held-out scores")
    policies, rows = _order(report, found), list(dict.fromkeys(row for _, row in found))
    rows.sort(key=lambda row: " " in row and row != ALL)
    yield Table(
        ("on", *policies),
        tuple((row, *(str(found.get((policy, row), "–")) for policy in policies)) for row in rows),
        f"Mean of the gyms' metrics, 95 % over tasks (Wilson for few verdicts, else Student's t); {report.test_tasks} tasks, "
        f"horizon {report.horizon}. {_played_by(scores)}",
    )
    tried = scores.filter(pl.col("attempts") > 1)
    if not tried.is_empty():
        yield from _agreement(tried)


def _played_by(scores: pl.DataFrame) -> str:
    users = scores["user_model"].unique().sort().to_list()
    sources = scores["source"].unique().sort().to_list()
    return f"Tasks: {', '.join(sources)}; user: {', '.join(user or 'unknown' for user in users)}."


def _agreement(tried: pl.DataFrame) -> Iterator[Block]:
    rows = []
    for (policy,), own in tried.group_by("policy", maintain_order=True):
        attempts = int(own["attempts"].min() or 0)  # type: ignore[arg-type]
        if len(own) > 1:
            alike = consistency([row[:attempts] for row in own["scores"].to_list()])
            rows.append((str(policy), str(attempts), f"{alike.flips:.3f}", f"{alike.icc:.3f}"))
    yield Table(
        ("policy", "attempts", "flip rate", "ICC(1)"),
        tuple(rows),
        "Flip rate: the chance that two attempts at a task disagree. ICC(1): the share of the variance between tasks.",
    )


def _published(report: Report, warehouse: Warehouse, found: Scores) -> Iterator[Block]:
    """What training, or the evaluation, ended with, gym by gym, beside the paper's own and GPT-4o."""
    text = """FROM beside_published(run := $run) WHERE published IS NOT NULL AND gym <> 'micro_average'
              AND (section = 'trained' OR published_model = 'GPT-4o')"""
    rows = warehouse.sql(text, run=report.run).pl()
    trained = [policy for policy in (*report.branches, TRAINED) if (policy, ALL) in found]
    rows = rows.filter(pl.col("policy").is_in(trained or _order(report, found)))
    if rows.is_empty():
        return
    yield Heading("Beside the published figures")
    of = pl.concat_str("published_model", "turn_shaping", "trajectory_score", separator=" ", ignore_nulls=True)
    wide = rows.with_columns(of=of, why_not=pl.col("why_not").fill_null("")).pivot(
        "of", index=["policy", "gym", "score", "why_not"], values="published"
    )
    models = wide.columns[4:]
    yield Table(
        ("policy", "gym", "here", *models, "what differs here"),
        tuple(
            (policy, gym, number(score), *(number(value, 4) for value in published), why_not or "nothing")
            for policy, gym, score, why_not, *published in wide.rows()
        ),
        "UserRL table 3. Figures can be held against each other only where nothing differs; the others stand here for "
        "orientation and are another benchmark. Nothing is subtracted.",
    )


def _people(report: Report, warehouse: Warehouse) -> Iterator[Block]:
    """People who met this run's checkpoint, beside the simulated users that it met on the same tasks."""
    if found := [*beside_simulated(warehouse, report.run)]:
        yield Heading(TITLE)
        yield from found


def _dynamics(report: Report, warehouse: Warehouse) -> Iterator[Block]:
    """Reply length, format rate, entropy, and how often it says wait, step by step; where turns were judged, the judges too."""
    replies = warehouse.sql(
        """SELECT stage, step, sum(n * tokens_per_turn) / sum(n), 1 - sum(n * format_errors) / sum(n)
           FROM replies(run := $run, in_phase := 'train') GROUP BY ALL ORDER BY step, stage""",
        run=report.run,
    )
    numbers = warehouse.sql(
        """SELECT stage, step, value, name FROM metrics WHERE run_id = $run AND stage LIKE 'rl-%'
           AND name IN ('policy/entropy/mean', 'rollout/waits/mean', 'rollout/interventions/mean', 'judge/agreement/share')
           ORDER BY step""",
        run=report.run,
    )
    told, measured = replies.fetchall(), numbers.fetchall()
    if not told:
        return
    yield Heading("How it trained")
    ways = list(report.branches) or [""]
    of = {
        "reply length, tokens": [(stage, step, tokens) for stage, step, tokens, _ in told],
        "share of replies with a readable call": [(stage, step, rate) for stage, step, _, rate in told],
        "entropy, nats": [row[:3] for row in measured if row[3] == "policy/entropy/mean"],
        "wait, times a reply": [row[:3] for row in measured if row[3] == "rollout/waits/mean"],
        "interrupted attempts, per turn": [row[:3] for row in measured if row[3] == "rollout/interventions/mean"],
        "share of turns that judge and rule judge mark alike": [
            row[:3] for row in measured if row[3] == "judge/agreement/share"
        ],
    }
    drawn = [
        Panel(title, [Line(way or TRAINED, _along(rows, way), smooth=True) for way in ways])
        for title, rows in of.items()
        if rows
    ]
    yield Figure(
        panels(drawn, columns=3, height=2.3),
        "Of training conversations; raw values behind a Gaussian of sigma 2 steps.",
        tuple(
            f"{panel.title}: {spark(values)} {values[0]:.3f} → {values[-1]:.3f}  {each.label}"
            for panel in drawn
            for each in panel.lines
            if (values := [value for _, value in each.points])
        ),
    )


def _along(rows: Sequence[tuple[str, int, float | None]], way: str) -> list[tuple[float, float]]:
    return [(step, value) for stage, step, value in rows if value is not None and branch_of(stage) in ("", way)]


def _ends(report: Report, warehouse: Warehouse) -> Iterator[Block]:
    rows = warehouse.sql("FROM stop_reasons(run := $run, in_phase := NULL)", run=report.run).pl()
    if rows.is_empty():
        return
    yield Heading("How conversations ended")
    wide = (
        rows.with_columns(pl.col("stop_reason").fill_null("unknown"))
        .pivot("stop_reason", index=["phase", "policy"], values="share", aggregate_function="sum")
        .sort("phase", "policy")
    )
    reasons = wide.columns[2:]
    yield Table(
        ("phase", "policy", *(reason.replace("_", " ") for reason in reasons)),
        tuple(
            (str(phase), str(policy), *("–" if share is None else f"{share:.1%}" for share in shares))
            for phase, policy, *shares in wide.rows()
        ),
    )
    rejected = warehouse.sql("FROM reject_reasons(run := $run)", run=report.run).fetchall()
    if not rejected:
        yield Text("No conversation was rejected: each could be scored.")
        return
    yield Table(
        ("phase", "gym", "why it could not be scored", "conversations"),
        tuple((str(phase), str(gym), str(reason)[:300], str(count)) for _, phase, gym, reason, count in rejected[:20]),
        "Such conversations enter no mean and are never trained on.",
    )


def _cost(report: Report, warehouse: Warehouse, found: Scores) -> Iterator[Block]:
    yield Heading("What it cost")
    if report.seconds:
        yield Table(
            ("stage", "seconds", "CPU seconds"),
            tuple(
                (stage, f"{seconds:,.0f}", f"{report.cpu_seconds.get(stage, 0.0):,.0f}")
                for stage, seconds in report.seconds.items()
            ),
        )
    calls = warehouse.sql("FROM cost(run := $run)", run=report.run).pl().to_dicts()
    if calls:
        names = {"policy": "agent"}
        yield Table(
            ("role", "model", "calls", "failed", "tokens read", "tokens written", "dollars", "without a price"),
            tuple(
                (
                    names.get(call["role"], call["role"]),
                    call["model"],
                    f"{call['calls']:,}",
                    f"{call['failed']:,}",
                    f"{call['prompt_tokens'] or 0:,}",
                    f"{call['completion_tokens'] or 0:,}",
                    "–" if call["dollars"] is None else f"${call['dollars']:.2f}",
                    f"{call['unpriced_calls']:,}",
                )
                for call in calls
            ),
            "Calls of served models, superseded ones included.",
        )
    else:
        yield Text("No served model was called: agent, users and judges ran here.")
    yield from _per_point(report, found, calls)


def _per_point(report: Report, found: Scores, calls: Sequence[dict[str, Any]]) -> Iterator[Block]:
    """What RL cost for each point (a hundredth of the score) that its last step gained over what it started from."""
    start = next((policy for policy in ("SFT", "start") if (policy, ALL) in found), None)
    seconds = sum(value for stage, value in report.cpu_seconds.items() if stage.startswith("rl-"))
    dollars = sum(call["dollars"] or 0.0 for call in calls)
    said = []
    for best in [*report.branches] or [TRAINED]:
        policy = last_step(best) if (last_step(best), ALL) in found else best
        if start is None or (policy, ALL) not in found:
            continue
        gained = 100 * (found[policy, ALL].estimate - found[start, ALL].estimate)
        if gained > 0 and not report.branches:
            money = f" and ${dollars / gained:.3f}" if dollars else ""
            said.append(
                f"RL's last step gained {gained:.1f} points over {start}: {seconds / gained:.2g} CPU-seconds{money} a point."
            )
        else:
            said.append(f"{policy} gained {gained:.1f} points over {start}.".replace("-", "−"))
    if said:
        yield Items(tuple(said))


def _where(report: Report) -> Iterator[Block]:
    if report.replaced:
        yield Heading("Replaced values")
        yield Items(report.replaced)
    yield Heading("Where it is")
    yield Items(
        (
            *([f"Checkpoint: {report.checkpoint}"] if report.checkpoint else []),
            f"Run folder: {report.folder}",
            f"To look at it: userrl view, then {run_address(report.run)}",
            f"Every turn: userrl sql \"from turns where run_id = '{report.run}'\"",
        )
    )
