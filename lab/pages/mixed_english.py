"""Tables in data/language-model/README.md: a language model on errand, wish and travel under a growing horizon.

    python -m lab.pages.mixed_english [HOME ...]     # adds the finished runs of homes, and their conversations, first

Plan: lab/studies/mixed_english.yaml. It has the command of the runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from analysis.measure.interval import t_interval
from lab.pages.data_tables import with_lines
from lab.rows import DATA, add_rows, read_rows
from lab.studies.all_recipes import origin
from lab.studies.registered import plan_hash, plans, read_plan
from userrl_core.number_format import with_error, with_limits
from warehouse import open_warehouse

PLAN = Path(__file__).parents[1] / "studies" / "mixed_english.yaml"
SCORES = DATA / "language-model" / "mixed.csv"
CONVERSATIONS = DATA / "language-model" / "mixed-conversations.md"
PAGE = DATA / "language-model" / "README.md"
BEFORE, BEST, LAST = "SFT", "RL", "RL last step"
HEAD = """# Conversations before and after RL

SmolLM2-135M after its cold start and after the last step of RL, in [the
study of three gyms](README.md#three-gyms-under-a-growing-horizon). Each gym and seed has two test tasks. They are the first by task
id in which the agent made other choices. lab/pages/mixed_english.py writes this page.

The lines of `user` are the gym's reply: an answer to `action`, what a `search` found, or the verdict on an `answer`. A
conversation has at most 10 turns. In errand and wish only the right answer scores. In travel an elicited wish earns .1 and the
right hotel the rest, so two questions without an answer score .20.
"""

PLAYED = """
SELECT r.seed, t.gym, t.policy, r.run_id AS run, count(*) AS tasks, avg(t.score) AS score,
       stddev_samp(t.score) / sqrt(count(*)) AS error, avg(t.turns) AS turns
FROM trajectories t JOIN runs r USING (run_id)
WHERE r.recipe = $recipe AND r.profile = $profile AND t.phase = 'evaluate' AND t.admitted AND t.score IS NOT NULL
GROUP BY ALL ORDER BY ALL
"""
TALKS = """
SELECT t.gym, t.task_id AS task, t.policy, t.score, json_extract_string(t.messages, '$[0].content') AS opening,
       list({agent: coalesce(u.choice || ': ' || u.content, u.message), user: u.observation} ORDER BY u.turn) AS turns
FROM trajectories t JOIN turns u USING (traj_id)
WHERE t.run_id = $run AND t.phase = 'evaluate' AND t.admitted GROUP BY ALL ORDER BY t.gym, t.task_id
"""


def main() -> None:
    """Add the runs of the homes that are named, and write the tables."""
    parser = argparse.ArgumentParser(description="A language model on three gyms under a growing horizon.")
    parser.add_argument("homes", nargs="*", type=Path, metavar="HOME")
    homes = parser.parse_args().homes
    for home in homes:
        print(f"{home}: {append(home)} rows")
    text = CONVERSATIONS.read_text() if CONVERSATIONS.is_file() else HEAD
    CONVERSATIONS.write_text(
        "\n".join([text, *(line for home in homes for line in conversations(home, page_text=text))])
    )
    PAGE.write_text(page(PAGE.read_text()))


def append(home: Path) -> int:
    """Add a row for each run of the plan in a home, gym and policy. Return their number."""
    rows = evaluated(home)
    for row in rows:
        rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}
        report = json.loads((home / "runs" / row["run"] / "report.json").read_text())
        seconds = round(sum(report["cpu_seconds"].values()))
        about = {"cpu_seconds": seconds, "plan": plan_hash(PLAN), **origin(row["run"], home / "warehouse")}
        add_rows(SCORES, ("seed", "gym", "policy", "plan"), {**rounded, **about})
    return len(rows)


def evaluated(home: Path) -> list[dict[str, Any]]:
    """Return a row for each finished run of the plan's seeds in a home, gym and policy."""
    plan = read_plan(PLAN)
    with open_warehouse(home / "warehouse") as warehouse:
        rows = warehouse.rows(PLAYED, recipe=plan["recipe"], profile=plan["profile"])
    seeds = frozenset(seed for of_seeds, _ in looks(plan) for seed in of_seeds)
    return [row for row in rows if row["seed"] in seeds and (home / "runs" / row["run"] / "report.json").is_file()]


def looks(plan: Mapping[str, Any]) -> list[tuple[range, float]]:
    """Return the seeds of each look, which are decided together, with the level of their limits."""
    spans = [{"level": 0.95, **plan["seeds"]}, *([plan["second_look"]] if "second_look" in plan else [])]
    return [(range(span["first"], span["last"] + 1), span["level"]) for span in spans]


def page(text: str) -> str:
    """Return the page with its tables rewritten."""
    lines = tables(read_plan(PLAN), [row for row in read_rows(SCORES) if row["plan"] in plans(PLAN)])
    return with_lines(text, "mixed_english", lines)


def tables(plan: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a table of scores by seed and gym, and one of each look's gains over the cold start with Student's limits."""
    played = {(row["seed"], row["gym"], row["policy"]): row for row in rows}
    seeds, gyms = sorted({row["seed"] for row in rows}), plan["gyms"]
    yield "| seed | gym | cold start | RL, best on validation | RL, last step | turns |"
    yield "| ---: | --- | ---: | ---: | ---: | ---: |"
    ended: dict[tuple[int, str, str], Mapping[str, Any]] = {}
    for seed in seeds:
        for gym in gyms:
            before, best = played[seed, gym, BEFORE], played[seed, gym, BEST]
            last = played.get((seed, gym, LAST), best)  # the last step is not played twice if it is the best one
            ended[seed, gym, BEST], ended[seed, gym, LAST] = best, last
            cells = " | ".join(with_error(row["score"], row["error"]) for row in (before, best, last))
            yield f"| {seed} | {gym} | {cells} | {before['turns']:.1f} to {last['turns']:.1f} |"
    yield ""
    yield f"| gain over the cold start | {' | '.join(gyms)} | mean of the gyms |"
    yield "| --- |" + " ---: |" * (len(gyms) + 1)
    for of_seeds, level in looks(plan):
        if not (ended_seeds := [seed for seed in seeds if seed in of_seeds]):
            continue
        for policy, title in ((LAST, "last step"), (BEST, "best on validation")):
            gains = [
                [ended[seed, gym, policy]["score"] - played[seed, gym, BEFORE]["score"] for seed in ended_seeds]
                for gym in gyms
            ]
            columns = (*gains, [fmean(of_seed) for of_seed in zip(*gains, strict=True)])
            limits = (with_limits(t_interval(np.array(column), level), sign=True) for column in columns)
            yield f"| {title}, seeds {ended_seeds[0]} to {ended_seeds[-1]}, {100 * level:g} % | {' | '.join(limits)} |"


def conversations(home: Path, page_text: str = "") -> Iterator[str]:
    """Yield two test tasks of each gym of a home's runs, before RL and after the last step: the first that differ, by task id.

    Seeds that the page has already are left out.
    """
    for run, seed in sorted({(row["run"], row["seed"]) for row in evaluated(home)}):
        if f"## Seed {seed}, " in page_text:
            continue
        with open_warehouse(home / "warehouse", run=frozenset([run])) as warehouse:
            rows = warehouse.rows(TALKS, run=run)
        by_task: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}
        for row in rows:
            by_task.setdefault(row["gym"], {}).setdefault(row["task"], {})[row["policy"]] = row
        for gym, tasks in by_task.items():
            pairs = ((task, played[BEFORE], played.get(LAST, played[BEST])) for task, played in tasks.items())
            changed = [pair for pair in pairs if choices(pair[1]) != choices(pair[2])]
            for task, before, after in changed[:2]:
                yield f"## Seed {seed}, {gym}, {task}"
                for title, row in (("Cold start", before), ("After RL", after)):
                    yield f"\n{title}, score {row['score']:.2f}:\n\n    user   {row['opening']}"
                    for turn in row["turns"]:
                        yield f"    agent  {turn['agent']}\n    user   {turn['user']}"
                yield ""


def choices(row: Mapping[str, Any]) -> list[str]:
    """Return the choices of a conversation's calls."""
    return [turn["agent"].partition(":")[0] for turn in row["turns"]]


if __name__ == "__main__":
    main()
