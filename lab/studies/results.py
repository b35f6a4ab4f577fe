"""The tables of data/results/README.md that come from runs, made again from the homes that hold the runs.

    python -m lab.studies.results HOME [HOME ...] [--only NAME ...]      # which are as the runs say; 1 where one is not
    python -m lab.studies.results HOME [HOME ...] --write                # puts them into the page

Nothing is run. If a run is missing, its table stays unchanged and the run is named. A run in several homes is taken from
the first. Commits are those in the warehouse of each run (`+`: with uncommitted changes).
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import curricula
from analysis.measure.interval import t_interval
from lab.studies import all_recipes, fork_seeds, textcraft_study
from userrl.reports.document import table_lines
from userrl.reports.run_report import RunReport
from userrl.reports.run_summary import by_tier, by_turns
from userrl.run.ending import last_step
from userrl.run.plan import plan_run
from userrl.run.readiness import here, resolve, verdict
from userrl.run.request import TrainRequest
from userrl_core.number_format import number, with_error, with_limits
from warehouse import open_warehouse

PAGE = Path(__file__).parents[2] / "data" / "results" / "README.md"
MACHINE = "2 shared cores of an AMD EPYC"
Reports = Mapping[str, RunReport]
"""Reports by a study's label of the run."""


@dataclass(frozen=True, slots=True)
class Study:
    """A table: its runs by label, and a function that makes it from their reports."""

    command: str
    seeds: str
    runs: Mapping[str, TrainRequest]
    lines: Callable[[Reports], str]
    earlier: bool = False
    """Whether a run with the recipe of an earlier commit may replace one of today's."""


def ask(recipe: str, seed: int = 0, **overrides: Any) -> TrainRequest:
    """Return the study's train request."""
    return TrainRequest(recipe=recipe, profile="laptop", seed=seed, overrides=overrides, wandb="off")


def train(recipe: str, seed: str = "") -> str:
    """Return the command of one run without a server."""
    return f'python -m flows.train \'{{"recipe": "{recipe}", "profile": "laptop", {seed}"wandb": "off"}}\''


def tiers(reports: Reports) -> str:
    """Return the scores of one run by gym and tier, with one column per actor."""
    (report,) = reports.values()
    head, rule, *rows = table_lines(by_tier(report))
    for gym in reversed(report.table["SFT"]):
        whole = [actor[gym] for actor in report.table.values()]
        rows.insert(0, f"| {gym} | {' | '.join(with_error(row.score, row.stderr, 2) for row in whole)} |")
    return "\n".join([head, rule, *rows])


def turns(reports: Reports) -> str:
    """Return the scores of one run by allowed turns, with one column per actor."""
    (report,) = reports.values()
    return "\n".join(line for table in by_turns(report) for line in table_lines(table))


def seeds_of_the_fork(reports: Reports) -> str:
    """Return every seed, and the differences."""
    seeds = {int(seed): fork_seeds.Seed(report, fork_seeds.validations(report)) for seed, report in reports.items()}
    return fork_seeds.table(seeds, "errand depth-3")


def recipes(reports: Reports) -> str:
    """Return one row per recipe that runs here."""
    return "\n".join([all_recipes.HEAD, *map(all_recipes.row, reports.values())])


def schedules(reports: Reports) -> str:
    """Return one row per run, then each schedule's mean."""
    arms: dict[str, dict[int, RunReport]] = {}
    for label, report in reports.items():
        arm, seed = label.split()
        arms.setdefault(arm, {})[int(seed)] = report
    return textcraft_study.table(arms, "textcraft depth-3")


def arms_over_seeds(gym: str) -> Callable[[Reports], str]:
    """Return one row per recipe: the mean over its seeds, and the seeds."""

    def lines(reports: Reports) -> str:
        shown = ["| recipe | SFT | RL, best | RL, last step | CPU-s a run |", "| --- | ---: | ---: | ---: | ---: |"]
        for recipe in dict.fromkeys(label.split()[0] for label in reports):
            own = [report for label, report in reports.items() if label.split()[0] == recipe]
            cells = [_mean([report.table[actor(report)][gym].score or 0.0 for report in own]) for actor in ACTORS]
            spent = sum(sum(report.cpu_seconds.values()) for report in own) / len(own)
            shown.append(f"| `{recipe}` | {' | '.join(cells)} | {spent:.0f} |")
        return "\n".join(shown)

    return lines


def seeds_of(gym: str, tier: str) -> Callable[[Reports], str]:
    """Return one row per seed: every actor at a gym, and SFT and the last step at one of its tiers."""

    def lines(reports: Reports) -> str:
        shown = [f"| seed | demonstrator | SFT | RL, best (step) | RL, last step | {tier}: SFT, last |"]
        shown.append("| ---: | ---: | ---: | ---: | ---: | ---: |")
        for seed, report in reports.items():
            rows = [report.table[name][gym] for name in ("demonstrator", *(actor(report) for actor in ACTORS))]
            cells = [with_error(row.score, row.stderr) for row in rows]
            cells[2] += f" ({report.best.step})" if report.best else ""
            parts = [number(report.tiers[name][tier].score, 2) for name in ("SFT", _last(report))]
            shown.append(f"| {seed} | {' | '.join(cells)} | {', '.join(parts)} |")
        return "\n".join(shown)

    return lines


def _last(report: RunReport) -> str:
    return last_step("RL") if last_step("RL") in report.table else "RL"


ACTORS: tuple[Callable[[RunReport], str], ...] = (lambda _: "SFT", lambda _: "RL", _last)


def _mean(scores: Sequence[float]) -> str:
    mean = t_interval(np.array(scores))
    each = ", ".join(number(score, 2) for score in scores)
    return f"{with_limits(mean)} ({each})"


def studies() -> dict[str, Study]:
    """Return the studies, by the name before their table on the page."""
    runnable = [
        name for name in curricula.recipe_names() if verdict(resolve(name, check=False), here()).kind != "refused"
    ]
    tarl = ("tarl-neither", "tarl-no-math", "tarl", "tarl-ppo")
    arms = textcraft_study.ARMS
    fork, babyai = {"0": ask("horizon-fork")}, {str(seed): ask("fixed-babyai", seed) for seed in (1, 2, 3)}
    threads = "USERRL_THREADS=1 "
    return {
        "fork": Study("make run", "0", fork, tiers),
        "fork by turns": Study("make run", "0", fork, turns),
        "fork by seeds": Study(
            "python -m lab.studies.fork_seeds --seeds 1-10",
            "1 to 10",
            {str(seed): ask("horizon-fork", seed) for seed in range(1, 11)},
            seeds_of_the_fork,
        ),
        "outfitter": Study(train("grpo"), "0", {"0": ask("grpo")}, tiers),
        "judge and math": Study(
            f"{threads}python -m lab.studies.recipe_seeds {' '.join(tarl)} --profile laptop --seeds 1-3",
            "1 to 3",
            {f"{recipe} {seed}": ask(recipe, seed) for recipe in tarl for seed in (1, 2, 3)},
            arms_over_seeds("tau"),
        ),
        "recipes": Study(
            threads + "python -m lab.studies.all_recipes",
            "0",
            {name: ask(name) for name in runnable},
            recipes,
            earlier=True,
        ),
        "textcraft": Study(train("scaling-inter-textcraft"), "0", {"0": ask("scaling-inter-textcraft")}, tiers),
        "textcraft by schedule": Study(
            threads + "python -m lab.studies.textcraft_study",
            "1 to 5",
            {
                f"{arm} {seed}": ask(recipe, seed, **changed)
                for arm, (recipe, changed) in arms.items()
                for seed in range(1, 6)
            },
            schedules,
        ),
        "agentevol": Study(train("agentevol"), "0", {"0": ask("agentevol")}, tiers),
        "searchqa": Study(train("scaling-inter-searchqa"), "0", {"0": ask("scaling-inter-searchqa")}, tiers),
        "babyai": Study(
            threads + train("fixed-babyai", '"seed": 1, '), "1 to 3", babyai, seeds_of("babyai", "babyai pickup")
        ),
        "babyai by turns": Study(threads + train("fixed-babyai", '"seed": 1, '), "1", {"1": babyai["1"]}, turns),
    }


class Homes:
    """The runs of several homes: reports by id, first home first."""

    def __init__(self, homes: Sequence[Path]) -> None:
        self.reports: dict[str, RunReport] = {}
        self.commits: dict[str, str] = {}
        for home in homes:
            for path in sorted(home.glob("runs/*/report.json")):
                report = RunReport.model_validate_json(path.read_text(encoding="utf-8"))
                here = {"warehouse": str(home / "warehouse"), "folder": str(path.parent)}
                self.reports.setdefault(report.run, report.model_copy(update=here))
            with open_warehouse(home / "warehouse") as warehouse:
                self.commits = dict(warehouse.sql("select run_id, code_version from runs").fetchall()) | self.commits

    def find(self, study: Study) -> tuple[dict[str, RunReport], list[str]]:
        """Return the reports of a study, and the ids of the runs that no home has."""
        found, missing = {}, []
        for label, request in study.runs.items():
            run_id = plan_run(request).run_id
            alike = [i for i in self.reports if study.earlier and i.rpartition("-")[0] == run_id.rpartition("-")[0]]
            if run_id in self.reports or alike:
                found[label] = self.reports[run_id if run_id in self.reports else alike[-1]]
            else:
                missing.append(run_id)
        return found, missing

    def source(self, study: Study, reports: Reports) -> str:
        """Return the line before a table."""
        commits = ", ".join(f"`{commit}`" for commit in sorted({self.commits[r.run] for r in reports.values()}))
        return f"Command: `{study.command}`. Seeds: {study.seeds}. Commit: {commits}. Machine: {MACHINE}."


def main() -> int:
    """Make each table, then print or write the result."""
    parser = argparse.ArgumentParser(
        description="The tables of data/results/README.md from the homes that hold the runs."
    )
    parser.add_argument("homes", nargs="+", type=Path, metavar="HOME")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--write", action="store_true", help="put them into the page")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    homes, page, other = Homes(arguments.homes), PAGE.read_text(encoding="utf-8"), 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["USERRL_HOME"] = folder  # runs are planned, and nothing is written
        for name, study in studies().items():
            if arguments.only and name not in arguments.only:
                continue
            reports, missing = homes.find(study)
            if missing:
                print(
                    f"{name}: as it is; {len(missing)} of {len(study.runs)} runs are in no home: {', '.join(missing[:4])}"
                )
                continue
            part = re.compile(rf"(?<=<!-- {name}: begin -->\n).*?(?=\n<!-- end -->)", re.DOTALL)
            made = f"\n{homes.source(study, reports)}\n\n{study.lines(reports)}\n"
            there = part.search(page)
            if there is None:
                print(f"{name}: the page has no place for it:\n\n{made}\n")
                other = 1
            elif there.group() == made:
                print(f"{name}: as the runs say")
            else:
                page = page[: there.start()] + made + page[there.end() :]
                print(f"{name}: {'written' if arguments.write else 'other than the runs say'}")
                other = 1
    if arguments.write:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    return other


if __name__ == "__main__":
    sys.exit(main())
