"""The table of data/costs.md: runs, RL tokens and processor time of each study, and the same tokens on GPUs by arithmetic.

python -m lab.pages.costs
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import polars as pl

from curricula import load
from lab.pages.data_tables import with_lines
from lab.rows import DATA
from userrl.run.estimate import run_cost
from userrl_core.number_format import NULL

PAGE = DATA / "costs.md"
GPU_RECIPE, GPU_PROFILE = "equalized-r2g", "qwen3-8b"


class Study(NamedTuple):
    """A study with a row a run. tokens: of RL in a run, or the column that has them; None where they were not stored."""

    name: str
    file: str
    page: str
    tokens: int | str | None = None


STUDIES = (
    Study("claims", "claims/runs.csv", "claims/README.md", "tokens"),
    Study("dose-response", "what-collapses/dose/runs.csv", "what-collapses/README.md#how-much-pay-is-enough", "tokens"),
    Study("what collapses", "what-collapses/runs.csv", "what-collapses/README.md", 160_000),
    Study("horizon rules", "horizon-rules/runs.csv", "horizon-rules/README.md", 400_000),
    Study("turn budgets", "turn-budgets/runs.csv", "turn-budgets/README.md", "tokens"),
    Study("task curricula", "task-curricula/runs.csv", "task-curricula/README.md", "tokens"),
    Study("recipes", "recipes/runs.csv", "recipes/README.md"),
    Study("environments", "environments/runs.csv", "environments/README.md#training"),
    Study("the fork of `make run`", "readme/runs.csv", "readme/README.md"),
    Study("language model, with its evaluations", "language-model/scores.csv", "language-model/README.md"),
)


def main() -> None:
    """Write the table into the page."""
    PAGE.write_text(page(PAGE.read_text()))


def page(text: str) -> str:
    """Return the page with its table rewritten."""
    return with_lines(text, "costs", table(STUDIES))


def table(studies: Sequence[Study]) -> Iterator[str]:
    """Yield the lines of the table: a row a study. A run of several claims counts once."""
    yield "| study | runs | RL tokens | CPU-hours | GPU-hours for as many tokens |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for study in studies:
        if not (DATA / study.file).is_file():
            continue
        runs = pl.read_csv(DATA / study.file, infer_schema_length=None).unique("run")
        hours = f"{float(runs['cpu_seconds'].sum()) / 3600:.1f}"
        tokens, gpu = NULL, NULL
        if study.tokens is not None:
            total = len(runs) * study.tokens if isinstance(study.tokens, int) else float(runs[study.tokens].sum())
            tokens, gpu = f"{total / 1e6:.1f} million", f"{total * gpu_seconds_of_token() / 3600:.1f}"
        yield f"| [{study.name}]({study.page}) | {len(runs)} | {tokens} | {hours} | {gpu} |"


@cache
def gpu_seconds_of_token() -> float:
    """Return the GPU-seconds of a token of RL, by the estimate of `userrl plan-study`."""
    cost = run_cost(load(GPU_RECIPE, profile=GPU_PROFILE))
    assert cost is not None  # the profile's model and GPU are known
    return cost.gpu_seconds / cost.tokens


if __name__ == "__main__":
    main()
