"""The full page of a run or an evaluation: its report, with intervals, dynamics, endings and costs from the warehouse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import polars as pl

from analysis.measure.checkpoints import consistency, mean_score
from analysis.measure.comparison import ALL
from analysis.measure.interval import Interval
from analysis.measure.outcome import TRAINED
from userrl.reports import run_summary
from userrl.reports.card import with_card
from userrl.reports.curves import curve_points, panel_lines
from userrl.reports.document import Block, Document, Figure, Heading, Items, TableBlock, Text, section
from userrl.reports.figures import Line, Panel, intervals, panels
from userrl.reports.judge_reliability import judge_of, judge_reliability
from userrl.reports.people_report import TITLE, beside_simulated
from userrl.reports.run_report import RunReport
from userrl.reports.users.users_section import users_of
from userrl.run.ending import last_step
from userrl_core.number_format import NULL, number, with_limits
from userrl_core.records import leads_to
from warehouse import Warehouse

Intervals = dict[tuple[str, str], Interval]
"""Intervals by policy and row: all tasks, a gym, a tier of a gym."""


def run_document(report: RunReport, warehouse: Warehouse) -> Document:
    """Return the full page of a run that has a report."""
    scores = warehouse.sql("FROM task_scores(run := $run)", run=report.run).pl()
    measured = _intervals(scores)
    report = with_card(report, warehouse)
    blocks: list[Block] = [
        *run_summary.card(report),
        *run_summary.facts(report),
        *_overall(report, measured),
        *section("Learning curves", run_summary.curves(report, curve_points(warehouse, report.run))),
        *section("Held-out scores", _scores(report, scores, measured)),
        *_published(report, warehouse, measured),
        *section(TITLE, beside_simulated(warehouse, report.run)),
        *section("Users", users_of(warehouse, report.run)),
        *_dynamics(report, warehouse),
        *section("Task curriculum", _curriculum(report, warehouse)),
        *_ends(report, warehouse),
        *_cost(report, warehouse, measured),
        *run_summary.replaced(report),
        *run_summary.where(report),
    ]
    return Document(report.run, tuple(blocks))


def _intervals(scores: pl.DataFrame) -> Intervals:
    measured: Intervals = {}
    for (policy,), policy_scores in scores.group_by("policy", maintain_order=True):
        measured[str(policy), ALL] = mean_score(policy_scores["scores"].to_list())
        for (gym,), of_gym in policy_scores.group_by("gym", maintain_order=True):
            measured[str(policy), str(gym)] = mean_score(of_gym["scores"].to_list())
            if of_gym["tier"].n_unique() > 1:
                for (tier,), of_tier in of_gym.sort("tier").group_by("tier", maintain_order=True):
                    measured[str(policy), f"{gym} {tier}"] = mean_score(of_tier["scores"].to_list())
    return measured


def _order(report: RunReport, measured: Intervals) -> list[str]:
    """Return policies in the report's order. The report calls a scripted policy "demonstrator"."""
    of_report = list(report.table)
    policies = list(dict.fromkeys(policy for policy, _ in measured))

    def place(policy: str) -> tuple[int, str]:
        label = "demonstrator" if policy.startswith("scripted") else policy
        return (of_report.index(label) if label in of_report else len(of_report), policy)

    return sorted(policies, key=place)


def _overall(report: RunReport, measured: Intervals) -> Iterator[Block]:
    measured_policies = {
        policy: interval for policy in _order(report, measured) if (interval := measured[policy, ALL]).units > 1
    }
    if measured_policies:
        rows = [(policy, limits.estimate, limits.low, limits.high) for policy, limits in measured_policies.items()]
        yield Figure(
            partial(intervals, rows, x="mean held-out score, 95 % over tasks"),
            "All held-out tasks of one run. The limits say nothing about other seeds.",
            tuple(f"{policy:24} {with_limits(interval)}" for policy, interval in measured_policies.items()),
        )


def _scores(report: RunReport, scores: pl.DataFrame, measured: Intervals) -> Iterator[Block]:
    if not measured:
        return
    policies, rows = _order(report, measured), list(dict.fromkeys(row for _, row in measured))
    rows.sort(key=lambda row: " " in row and row != ALL)
    yield TableBlock(
        ("gym", *policies),
        tuple((row, *(_cell(measured.get((policy, row))) for policy in policies)) for row in rows),
        f"Mean of the gyms' metrics, 95 % over tasks (Wilson for few 0/1 scores, else Student's t); {report.test_tasks} tasks, "
        f"horizon {report.horizon}. {_played_by(scores)}",
    )
    yield from run_summary.without_calls(report)
    tried = scores.filter(pl.col("attempts") > 1)
    if not tried.is_empty():
        yield from _agreement(tried)
    yield from run_summary.by_turns(report)


def _cell(interval: Interval | None) -> str:
    return NULL if interval is None else with_limits(interval)


def _played_by(scores: pl.DataFrame) -> str:
    users = scores["user_model"].unique().sort().to_list()
    sources = scores["source"].unique().sort().to_list()
    return f"Tasks: {', '.join(sources)}; user: {', '.join(user or 'unknown' for user in users)}."


def _agreement(tried: pl.DataFrame) -> Iterator[Block]:
    rows = []
    for (policy,), policy_scores in tried.group_by("policy", maintain_order=True):
        attempts = int(policy_scores["attempts"].min() or 0)  # type: ignore[arg-type]
        if len(policy_scores) > 1:
            alike = consistency([row[:attempts] for row in policy_scores["scores"].to_list()])
            rows.append((str(policy), str(attempts), number(alike.flips), number(alike.icc)))
    yield TableBlock(
        ("policy", "attempts", "flip rate", "ICC(1)"),
        tuple(rows),
        "Flip rate: the probability that two attempts at a task disagree. ICC(1): the share of the variance between tasks.",
    )


def _published(report: RunReport, warehouse: Warehouse, measured: Intervals) -> Iterator[Block]:
    """Yield the scores by gym after training (or of the evaluation), next to the papers' trained rows and GPT-4o."""
    text = """FROM beside_published(run := $run) WHERE published IS NOT NULL AND gym <> 'micro_average'
              AND (section = 'trained' OR published_model IN ('GPT-4o', 'GPT-4.1'))"""
    rows = warehouse.sql(text, run=report.run).pl()
    trained = [policy for policy in (*report.branches, TRAINED) if (policy, ALL) in measured]
    rows = rows.filter(pl.col("policy").is_in(trained or _order(report, measured)))
    if rows.is_empty():
        return
    yield Heading("Comparison with published results")
    of = pl.concat_str("published_model", "turn_shaping", "trajectory_score", separator=" ", ignore_nulls=True)
    names = pl.concat_str("gym", "subset", "metric", separator=" ")
    what = names.str.replace("  ", " ", literal=True).str.replace(" score$", "")
    index = ["policy", "what", "score", "why_not"]
    for (table,), of_table in rows.with_columns(of=of, what=what).group_by("published_in", maintain_order=True):
        wide = of_table.pivot("of", index=index, values="published", aggregate_function="first")
        models = wide.columns[len(index) :]
        yield TableBlock(
            ("policy", "gym", "here", *models, "what differs"),
            tuple(
                (policy, gym, number(score), *(number(value, 4) for value in published), why_not or "nothing")
                for policy, gym, score, why_not, *published in wide.rows()
            ),
            f"{table}. Scores may be subtracted only where nothing differs (userrl protocol RUN --against '{table}').",
        )


def _dynamics(report: RunReport, warehouse: Warehouse) -> Iterator[Block]:
    """Yield curves of reply length, format rate, entropy and waits by step, and of the judges' agreement if turns
    were judged.
    """
    replies = warehouse.sql(
        """SELECT stage, step, sum(n * tokens_per_turn) / sum(n), 1 - sum(n * format_errors) / sum(n)
           FROM replies(run := $run, in_phase := 'train') GROUP BY ALL ORDER BY step, stage""",
        run=report.run,
    )
    numbers = warehouse.sql(
        """SELECT stage, step, value, name FROM metrics WHERE run_id = $run AND stage LIKE 'rl-%'
           AND name IN ('policy/entropy/mean', 'rollout/entropy/mean', 'rollout/waits/mean', 'rollout/interventions/mean',
                        'judge/agreement/share')
           ORDER BY step""",
        run=report.run,
    )
    reply_rows, measured = replies.fetchall(), numbers.fetchall()
    if not reply_rows:
        return
    yield Heading("Training dynamics")
    # Of all that was sampled, where that is known. What was trained on is nothing in a step in which no group differs.
    entropies = {
        row[:2]: row[:3]
        for name in ("policy/entropy/mean", "rollout/entropy/mean")
        for row in measured
        if row[3] == name
    }
    branches = list(report.branches) or [""]
    of = {
        "reply length, tokens": [(stage, step, tokens) for stage, step, tokens, _ in reply_rows],
        "share of replies with a readable call": [(stage, step, rate) for stage, step, _, rate in reply_rows],
        "entropy, nats": sorted(entropies.values(), key=lambda row: row[1]),
        "'wait' per reply": [row[:3] for row in measured if row[3] == "rollout/waits/mean"],
        "interrupted attempts per turn": [row[:3] for row in measured if row[3] == "rollout/interventions/mean"],
        "agreement of judge and rule judge, share of turns": [
            row[:3] for row in measured if row[3] == "judge/agreement/share"
        ],
    }
    drawn = [
        Panel(title, [Line(branch or TRAINED, _along(rows, branch), smooth=True) for branch in branches])
        for title, rows in of.items()
        if rows
    ]
    yield Figure(
        partial(panels, drawn, columns=3, height=2.3),
        "Training conversations; raw values, and a Gaussian average with a sigma of 2 steps.",
        panel_lines(drawn),
    )
    if not report.judge and (judge := judge_of(warehouse, report.run)):
        yield Text(judge_reliability(judge, report.run))


def _curriculum(report: RunReport, warehouse: Warehouse) -> Iterator[Block]:
    """Yield which tasks a task curriculum drew when, beside their pass rates. A run without estimates yields nothing."""
    rows = warehouse.rows("FROM curriculum(run := $run)", run=report.run)
    if all(row["estimate"] is None for row in rows):
        return
    by_tier: dict[str, dict[tuple[str, int], dict[str, Any]]] = {}
    for row in rows:
        by_tier.setdefault(f"{row['gym']} {row['tier']}".strip(), {})[row["stage"], row["step"]] = row
    steps = list(dict.fromkeys((row["stage"], row["step"]) for row in rows))
    titles = {
        "draw_share": "share of the step's tasks",
        "success": "pass rate of what was drawn",
        "estimate": "estimated pass rate",
    }
    drawn = []
    for column, title in titles.items():
        nothing = {column: 0.0 if column == "draw_share" else None}
        lines = [
            Line(
                f"{branch} {tier}".strip(),
                _along([(*step, of_tier.get(step, nothing)[column]) for step in steps], branch),
                smooth=column != "estimate",
            )
            for branch in list(report.branches) or [""]
            for tier, of_tier in by_tier.items()
        ]
        drawn.append(Panel(title, [line for line in lines if line.points]))
    yield Figure(
        partial(panels, drawn, columns=3, height=2.6),
        "Tasks by gym and tier. Raw values, and for the first two a Gaussian average with a sigma of 2 steps.",
        panel_lines(drawn),
    )


def _along(rows: Sequence[tuple[str, int, float | None]], branch: str) -> list[tuple[float, float]]:
    return [(step, value) for stage, step, value in rows if value is not None and leads_to(stage, branch)]


def _ends(report: RunReport, warehouse: Warehouse) -> Iterator[Block]:
    rows = warehouse.sql("FROM stop_reasons(run := $run, in_phase := NULL)", run=report.run).pl()
    if rows.is_empty():
        return
    yield Heading("Outcomes of conversations")
    wide = (
        rows.with_columns(pl.col("stop_reason").fill_null("unknown"))
        .pivot("stop_reason", index=["phase", "policy"], values="share", aggregate_function="sum")
        .sort("phase", "policy")
    )
    reasons = wide.columns[2:]
    yield TableBlock(
        ("phase", "policy", *(reason.replace("_", " ") for reason in reasons)),
        tuple(
            (str(phase), str(policy), *(NULL if share is None else f"{share:.1%}" for share in shares))
            for phase, policy, *shares in wide.rows()
        ),
    )
    rejected = warehouse.sql("FROM reject_reasons(run := $run)", run=report.run).fetchall()
    if not rejected:
        yield Text("No conversation was rejected: all were scored.")
        return
    yield TableBlock(
        ("phase", "gym", "reason for rejection", "conversations"),
        tuple((str(phase), str(gym), str(reason)[:300], str(count)) for _, phase, gym, reason, count in rejected[:20]),
        "Rejected conversations are left out of all means and never trained on.",
    )


def _cost(report: RunReport, warehouse: Warehouse, measured: Intervals) -> Iterator[Block]:
    yield Heading("Cost")
    if report.seconds:
        yield TableBlock(
            ("stage", "seconds", "CPU seconds"),
            tuple(
                (stage, f"{seconds:,.0f}", NULL if (cpu := report.cpu_seconds.get(stage)) is None else f"{cpu:,.0f}")
                for stage, seconds in report.seconds.items()
            ),
        )
    calls = warehouse.sql("FROM cost(run := $run)", run=report.run).pl().to_dicts()
    if calls:
        names = {"policy": "agent"}
        yield TableBlock(
            ("role", "model", "calls", "failed", "prompt tokens", "completion tokens", "dollars", "without a price"),
            tuple(
                (
                    names.get(call["role"], call["role"]),
                    call["model"],
                    f"{call['calls']:,}",
                    f"{call['failed']:,}",
                    f"{call['prompt_tokens'] or 0:,}",
                    f"{call['completion_tokens'] or 0:,}",
                    NULL if call["dollars"] is None else f"${call['dollars']:.2f}",
                    f"{call['unpriced_calls']:,}",
                )
                for call in calls
            ),
            "Calls of served models, including superseded ones.",
        )
    else:
        yield Text("No served model was called: agent, users and judges ran on this machine.")
    text = """SELECT coalesce(sum(price), 0) FROM model_calls_all WHERE run_id = $run AND starts_with(stage, 'rl-')"""
    yield from _per_point(report, measured, float(warehouse.sql(text, run=report.run).fetchall()[0][0]))


def _per_point(report: RunReport, measured: Intervals, dollars: float) -> Iterator[Block]:
    """Yield the cost of RL per point (.01 of the score) that its last step gained over its start. dollars: of RL's stages."""
    start = next((policy for policy in ("SFT", "start") if (policy, ALL) in measured), None)
    seconds = sum(value for stage, value in report.cpu_seconds.items() if stage.startswith("rl-"))
    sentences = []
    for best in [*report.branches] or [TRAINED]:
        policy = last_step(best) if (last_step(best), ALL) in measured else best
        if start is None or (policy, ALL) not in measured:
            continue
        gained = 100 * (measured[policy, ALL].estimate - measured[start, ALL].estimate)
        if gained > 0 and not report.branches:
            processor = f"{seconds / gained:.2g} CPU seconds" if seconds else ""
            spent = " and ".join(filter(None, (processor, f"${number(dollars / gained)}" if dollars else "")))
            per_point = f": {spent} per point" if spent else ""
            sentences.append(f"RL's last step gained {number(gained, 1)} points over {start}{per_point}.")
        else:
            sentences.append(f"{policy} gained {number(gained, 1)} points over {start}.")
    if sentences:
        yield Items(tuple(sentences))
