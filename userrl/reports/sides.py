"""The sides of a comparison: a person's texts, resolved to runs of the warehouse and the policies that they evaluated.

latest                              a run: an id, the beginning of one, a name, or latest
latest:SFT                          one policy of its evaluation; by default RL and its last step
recipe=naive-sum,seed=*             a group of runs, one per seed: any column of `runs`, with * or, for seeds, first-last
model=gpt-4o                        a served model, wherever it was evaluated
published:Qwen3-8B                  rows of UserRL table 3, which are shown separately and never subtracted
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import polars as pl

from analysis.measure.comparison import ComparedRun, ComparedSide
from analysis.measure.outcome import TRAINED
from userrl.run.ending import last_step
from userrl.run.results import chosen_so_far
from userrl.run.run import all_runs
from userrl_core.errors import ConfigError
from userrl_core.records import branch_of
from userrl_core.suggest import nearest
from warehouse import Warehouse
from warehouse.files.layout import run_dir
from warehouse.files.runs import RESCORED, RETIRED, find_run

PUBLISHED = "published:"
FILTERS = (
    "recipe",
    "seed",
    "profile",
    "name",
    "backend",
    "shaping",
    "score",
    "form",
    "recipe_hash",
    "run_id",
    "policy",
    "model",
)
_RANGE = re.compile(r"(\d+)-(\d+)")


@dataclass(frozen=True, slots=True)
class PublishedRows:
    """Rows of UserRL table 3 for one model, as polars rows."""

    name: str
    rows: pl.DataFrame


def find_sides(warehouse: Warehouse, texts: Sequence[str]) -> tuple[list[ComparedSide], list[PublishedRows]]:
    """Resolve each text to a side. Raises ConfigError with a sentence that says what to write instead."""
    sides = [find_side(warehouse, text) for text in texts if not text.startswith(PUBLISHED)]
    published = [_published(warehouse, text) for text in texts if text.startswith(PUBLISHED)]
    if not sides or len(sides) + len(published) < 2:
        raise ConfigError(
            "compare.bad_sides",
            "A comparison needs two sides, and at least one must be ours: userrl compare 'recipe=a,seed=*' "
            "'recipe=b,seed=*'.",
        )
    names = [side.name for side in sides]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError("compare.bad_sides", f"'{twice}' is compared with itself. Name two different sides.")
    return sides, published


def find_side(warehouse: Warehouse, text: str) -> ComparedSide:
    """Resolve one text to a side with held-out evaluations. Raises ConfigError."""
    if "=" not in text:
        name, _, policy = text.partition(":")
        row = find_run(warehouse.root, name)
        policies = _policies(warehouse, [row["run_id"]])
        if not policies:
            raise ConfigError(
                "compare.no_evaluation",
                f"Run {row['run_id']} has no held-out evaluation: {_instead(warehouse, row['run_id'])}.",
            )
        member = _member(row, policies, _branches(warehouse, [row["run_id"]]), policy)
        notes = _without_last([member], policies)
        if _unfinished(warehouse, [row["run_id"]]):
            notes.append(
                f"The held-out evaluation of {row['run_id']} has not finished. Its scores are those of a part of its tasks."
            )
        return ComparedSide(f"{row['run_id']}:{policy}" if policy else row["run_id"], (member,), tuple(notes))
    filters = _filters(text)
    rows = _matching(warehouse, text, filters)
    if "run_id" not in filters:  # the checkpoints of a deleted run are gone, and a newer run may have its seed
        rows = [row for row in rows if not (run_dir(warehouse.root, row["run_id"]) / RETIRED).exists()]
    policies = _policies(warehouse, [row["run_id"] for row in rows])
    started = [row for row in rows if _evaluated(row, policies, filters.get("policy"))]
    unfinished = _unfinished(warehouse, [row["run_id"] for row in started])
    evaluated = [row for row in started if row["run_id"] not in unfinished]
    if not evaluated:
        if not rows:
            raise ConfigError("run.no_such_run", f"No run matches '{text}'{_known_values(warehouse, filters)}.")
        newest_row = max(rows, key=lambda row: row["created"])
        raise ConfigError(
            "compare.no_evaluation",
            f"None of the {len(rows)} runs that match '{text}' has a finished held-out evaluation. The newest is "
            f"{newest_row['run_id']}: {_instead(warehouse, newest_row['run_id'])}.",
        )
    chosen = evaluated if "policy" in filters else _trained(warehouse, evaluated, policies)
    _check_one_recipe(text, chosen)
    newest = {row["seed"]: row for row in sorted(chosen, key=lambda row: (row["created"], row["run_id"]))}
    branches = _branches(warehouse, [row["run_id"] for row in newest.values()])
    members = [_member(newest[seed], policies, branches, filters.get("policy", "")) for seed in sorted(newest)]
    left_out = _without_last(members, policies)
    if waiting := [row["run_id"] for row in rows if row not in started and "policy" not in filters]:
        left_out.append(f"{text}: left out, because they have no held-out evaluation: {', '.join(waiting)}.")
    if unfinished:
        left_out.append(
            f"{text}: left out, because their held-out evaluation has not finished: {', '.join(sorted(unfinished))}."
        )
    if others := [row["run_id"] for row in evaluated if row not in chosen]:
        left_out.append(
            f"{text}: left out, because they are evaluations of one checkpoint or arms of claims: {', '.join(others)}."
        )
    if older := [row["run_id"] for row in chosen if newest[row["seed"]] is not row]:
        left_out.append(f"{text}: left out, because newer runs have the same seeds: {', '.join(older)}.")
    return ComparedSide(text, tuple(members), tuple(left_out))


def split_by_branch(warehouse: Warehouse, text: str) -> list[str]:
    """Return the texts of a group's branches, or the text itself: a run, one policy, or runs without evaluated branches."""
    if "=" not in text or "policy" in (filters := _filters(text)):
        return [text]
    run_ids = [row["run_id"] for row in _matching(warehouse, text, filters)]
    evaluated = {policy for policies in _policies(warehouse, run_ids).values() for policy in policies}
    branches = {branch for of_run in _branches(warehouse, run_ids).values() for branch in of_run} & evaluated
    return [f"{text},policy={branch}" for branch in sorted(branches)] or [text]


def _matching(warehouse: Warehouse, text: str, filters: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the runs that fit the filters of a text.

    Imported runs belong to no recipe, and are found by their id. A run that scored another run's conversations again has that
    run's recipe and seed, so it is found only by a text that names it.
    """
    return [
        row
        for row in warehouse.rows("FROM runs")
        if (row["kind"] is None or "run_id" in filters)
        and (RESCORED in text or not row["run_id"].startswith(f"{row['parent']}{RESCORED}"))
        and _fits(row, filters)
    ]


def _trained(
    warehouse: Warehouse, rows: list[dict[str, Any]], policies: Mapping[str, Mapping[str, int]]
) -> list[dict[str, Any]]:
    """Return the runs that trained the recipe itself, or all runs if there are none.

    An evaluation of one checkpoint has the name of that checkpoint's recipe. So has an arm of a claim, which changes the
    recipe.
    """
    text = "SELECT DISTINCT run_id FROM trajectories WHERE phase IN ('distill', 'train', 'validate')"
    at_work = {run_id for (run_id,) in warehouse.sql(text).fetchall()}
    trained = [row for row in rows if row["run_id"] in at_work or TRAINED in policies[row["run_id"]]]
    text = "SELECT DISTINCT fields->>'run' FROM events WHERE kind = 'claim_arm'"
    arms = {run_id for (run_id,) in warehouse.sql(text).fetchall()}
    hashes = {row["recipe_hash"] for row in trained if row["run_id"] not in arms}
    return [row for row in trained if row["recipe_hash"] in hashes] or trained or rows


def _check_one_recipe(text: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise ConfigError if a group holds several recipes."""
    run_ids: dict[str, list[str]] = {}
    for row in rows:
        run_ids.setdefault(f"profile={row['profile']},recipe_hash={row['recipe_hash']}", []).append(row["run_id"])
    if len(run_ids) > 1:
        filters_text = "; ".join(f"{filters} ({', '.join(sorted(run_ids[filters]))})" for filters in sorted(run_ids))
        raise ConfigError(
            "compare.bad_sides",
            f"'{text}' matches runs of {len(run_ids)} different recipes. Add one of: {filters_text}.",
        )


def _instead(warehouse: Warehouse, run_id: str) -> str:
    branches = sorted({branch for branch in _branches(warehouse, [run_id]).get(run_id, ()) if branch})
    if branches and not _unfinished(warehouse, [run_id]):
        evaluated = _policies(warehouse, [run_id]).get(run_id, {})
        if choices := [branch for branch in branches if branch in evaluated]:
            return f"it has branches, each evaluated by its name; add {' or '.join(f'policy={branch}' for branch in choices)}"
    text = """SELECT max(run_id) AS found FROM trajectories
              WHERE phase = 'evaluate' AND run_id <> $run AND starts_with(checkpoint, $run || '@')"""
    if evaluation := warehouse.rows(text, run=run_id)[0]["found"]:
        return f"its checkpoint was evaluated in a separate run, so compare {evaluation} instead"
    run = next((candidate for candidate in all_runs() if candidate.id == run_id), None)
    if run is None:
        return "its folder no longer exists, so it cannot be evaluated; compare another run"
    state = run.status.state
    if state == "running":
        return "it is running, and evaluates at its end; wait for it"
    checkpoint = run.checkpoint or chosen_so_far(run.folder)
    go_on = "" if state == "completed" else f"it is {state}; {run.restart}, and it continues to its evaluation"
    if checkpoint is None:
        return go_on or "it has no checkpoint to evaluate; compare another run"
    actor = run_id if run.checkpoint else shlex.quote(str(checkpoint))
    now = f"`userrl evaluate {actor}` plays one now, in a run whose id it prints: compare that"
    return f"{go_on}. Or: {now}" if go_on else now


def _known_values(warehouse: Warehouse, filters: Mapping[str, str]) -> str:
    """Say which values a filter could have named."""
    runs = warehouse.rows("FROM runs WHERE kind IS NULL ORDER BY created DESC")
    for key, pattern in filters.items():
        values = list(dict.fromkeys(str(row[key]) for row in runs)) if key != "policy" else []
        if values and not any(fnmatchcase(value, pattern) for value in values) and not _RANGE.fullmatch(pattern):
            return f": there is {key} {', '.join(values[:8])}{', ...' if len(values) > 8 else ''}"
    return "; `userrl runs list` shows what there is"


def _filters(text: str) -> dict[str, str]:
    filters = {}
    for part in re.split(r"[,\s]+", text.strip()):
        key, equals, value = part.partition("=")
        if not equals or key not in FILTERS:
            raise ConfigError(
                "compare.bad_sides",
                f"'{part}' does not select runs{nearest(key, FILTERS)}. Write one of {', '.join(FILTERS)} with =.",
            )
        filters["policy" if key == "model" else key] = value
    return filters


def _fits(row: Mapping[str, Any], filters: Mapping[str, str]) -> bool:
    for key, pattern in filters.items():
        if key == "policy":
            continue
        if key == "seed" and (span := _RANGE.fullmatch(pattern)):
            if not int(span[1]) <= row["seed"] <= int(span[2]):
                return False
        elif not fnmatchcase(str(row[key]), pattern):
            return False
    return True


def _policies(warehouse: Warehouse, run_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return each run's evaluated policies, with the training step of each."""
    text = """SELECT run_id, policy, coalesce(max(step), 0) FROM trajectories
              WHERE phase = 'evaluate' AND run_id IN (SELECT unnest($runs)) GROUP BY run_id, policy ORDER BY run_id, policy"""
    by_run: dict[str, dict[str, int]] = {}
    for run_id, policy, step in warehouse.sql(text, runs=list(run_ids)).fetchall():
        by_run.setdefault(run_id, {})[policy] = step
    return by_run


def _branches(warehouse: Warehouse, run_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return each run's branches, with the step of the last validation, which is the branch's last step; 0 without one."""
    text = """SELECT run_id, stage, coalesce(max(step) FILTER (phase = 'validate'), 0) FROM trajectories
              WHERE phase IN ('train', 'validate') AND run_id IN (SELECT unnest($runs)) GROUP BY run_id, stage"""
    by_run: dict[str, dict[str, int]] = {}
    for run_id, stage, step in warehouse.sql(text, runs=list(run_ids)).fetchall():
        branches = by_run.setdefault(run_id, {})
        branches[branch_of(stage)] = max(branches.get(branch_of(stage), 0), step)
    return by_run


def _unfinished(warehouse: Warehouse, run_ids: Sequence[str]) -> set[str]:
    """Return the runs whose evaluation began and has not finished since its last rewind.

    A run without events of its evaluation, such as an import, counts as finished.
    """
    text = """WITH last_rewind AS (SELECT run_id, max(incarnation) AS incarnation FROM events
                                  WHERE kind = 'rewind' AND stage = 'evaluate' GROUP BY run_id)
              SELECT s.run_id FROM stages s LEFT JOIN last_rewind r USING (run_id)
              WHERE s.stage = 'evaluate' AND s.run_id IN (SELECT unnest($runs)) GROUP BY s.run_id
              HAVING NOT bool_or(s.status NOT IN ('started', 'failed') AND s.incarnation >= coalesce(r.incarnation, 0))"""
    return {run_id for (run_id,) in warehouse.sql(text, runs=list(run_ids)).fetchall()}


def _without_last(members: Sequence[ComparedRun], policies: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a sentence about the runs whose last step was not evaluated, if there are any."""
    run_ids = [run.run_id for run in members if run.last not in policies[run.run_id]]
    text = f"The last step was not evaluated, so it counts in no mean and no share of collapses: {', '.join(run_ids)}."
    return [text] if run_ids else []


def _evaluated(row: Mapping[str, Any], policies: Mapping[str, Mapping[str, int]], policy: str | None) -> bool:
    run_policies = policies.get(row["run_id"], ())
    return policy in run_policies if policy else TRAINED in run_policies or len(run_policies) == 1


def _member(
    row: Mapping[str, Any],
    policies: Mapping[str, Mapping[str, int]],
    branches: Mapping[str, Mapping[str, int]],
    policy: str,
) -> ComparedRun:
    run_id = row["run_id"]
    run_policies, run_branches = policies.get(run_id, {}), branches.get(run_id, {})
    # A training run calls its own policy RL. A separate evaluation has one policy with any name.
    best = policy or (
        TRAINED if TRAINED in run_policies else next(iter(run_policies)) if len(run_policies) == 1 else ""
    )
    if best not in run_policies:
        raise ConfigError(
            "compare.bad_sides",
            f"Run {run_id} evaluated {', '.join(run_policies)}. Name one of them, as in "
            f"{run_id}:{next(iter(run_policies))}{nearest(best, run_policies) if best else ''}.",
        )
    branch = "" if best == TRAINED else best if best in run_branches else None
    went_on = branch is not None and run_branches.get(branch, 0) > run_policies[best]
    last = last_step(best) if went_on or last_step(best) in run_policies else best
    return ComparedRun(run_id, row["recipe"], row["seed"] or 0, best, last, branch)


def _published(warehouse: Warehouse, text: str) -> PublishedRows:
    name = text.removeprefix(PUBLISHED)
    rows = warehouse.sql("SELECT * FROM reference.userrl_table3 WHERE lower(model) = lower($model)", model=name).pl()
    if rows.is_empty():
        model_names = [
            model for (model,) in warehouse.sql("SELECT DISTINCT model FROM reference.userrl_table3").fetchall()
        ]
        raise ConfigError(
            "compare.bad_sides",
            f"Table 3 of UserRL has no model '{name}'{nearest(name, model_names)}. It has {', '.join(sorted(model_names))}.",
        )
    return PublishedRows(text, rows)
