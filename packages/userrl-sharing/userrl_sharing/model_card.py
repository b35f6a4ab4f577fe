"""A model card in Markdown, made from a run's report. It has numbers and names, and quotes no conversation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from curricula.load import from_resolved
from userrl.reports.checkpoints import ListedCheckpoint
from userrl.reports.document import Block, Code, Document, Heading, Items, Line, TableBlock, Text
from userrl.reports.run_report import RunReport
from userrl_core.errors import ConfigError
from userrl_core.number_format import NULL, number, with_error

LOADING = """## Use

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("{repo}")
tokenizer = AutoTokenizer.from_pretrained("{repo}")
```
"""


def model_card(
    report: RunReport, checkpoint: ListedCheckpoint, recipe: dict[str, Any], *, repo: str, origins: tuple[str, ...]
) -> str:
    """Return the card of a checkpoint.

    recipe: the resolved recipe of its run. origins: the origins of conversations that the run did not play by itself.
    """
    base = recipe.get("model", {}).get("path")
    tags = ["userrl", "reinforcement-learning", "multi-turn", f"recipe:{report.recipe}"]
    front = {"library_name": "transformers", "pipeline_tag": "text-generation", "tags": tags}
    if isinstance(base, str) and base.count("/") == 1 and not base.startswith((".", "/", "~")):
        front["base_model"] = base
    blocks = [*_training(report, checkpoint, recipe, origins), *_scores(report, checkpoint), *_limits(report)]
    page = Document(repo.rpartition("/")[2], tuple(blocks)).markdown()
    return f"---\n{yaml.safe_dump(front, sort_keys=False)}---\n\n{page}\n{LOADING.format(repo=repo)}"


def _training(
    report: RunReport, checkpoint: ListedCheckpoint, recipe: dict[str, Any], origins: tuple[str, ...]
) -> Iterator[Block]:
    yield Text(
        (
            "A language model that was trained with userrl to act in conversations with users: recipe ",
            Code(report.recipe),
            f", profile {report.profile}, seed {report.seed}.",
        )
    )
    yield Heading("Training")
    credit, horizons = recipe.get("credit", {}), _horizons(checkpoint.stage, recipe)
    items: list[Line] = []
    if report.demonstrations is not None:
        items.append(f"Cold start: {report.demonstrations.kept} demonstrations of {report.demonstrations.policy}.")
    items += [f"The run used {origin}. This card quotes none of them." for origin in origins]
    credit_names = (("shaping", "turn rewards"), ("score", "score of a trajectory"), ("gamma", "discount per turn"))
    if horizons:
        items.append(f"RL with at most this number of agent turns, by stage: {', '.join(horizons)}.")
        items.append(
            "Credit: " + ", ".join(f"{name} {credit[key]}" for key, name in credit_names if key in credit) + "."
        )
    elif horizons is not None:
        items.append("This checkpoint is from before RL.")
    if report.data:
        items.append("Tasks: " + "; ".join(f"{gym} {kind}" for gym, kind in report.data.items()) + ".")
    yield Items(tuple(items))


def _horizons(stage: str, recipe: dict[str, Any]) -> list[str] | None:
    """Return the horizons of the RL stages up to this one, those of other branches left out.

    None for a recipe of an earlier version that cannot be read.
    """
    try:
        planned = from_resolved(recipe)
    except ConfigError:
        return None
    own_stage = next((planned_stage for planned_stage in planned.planned_stages if planned_stage.name == stage), None)
    if own_stage is None:
        return []
    return [
        str(planned_stage.horizon or "adaptive")
        for planned_stage in planned.along(own_stage.branch)
        if planned_stage.number <= own_stage.number
    ]


def _scores(report: RunReport, checkpoint: ListedCheckpoint) -> Iterator[Block]:
    yield Heading("Scores")
    yield Text(
        f"This checkpoint: step {checkpoint.step} of {checkpoint.stage}, mean validation score {number(checkpoint.score)}."
    )
    if not report.table:
        return
    gyms = dict.fromkeys(gym for rows in report.table.values() for gym in rows)
    rows = []
    for gym in gyms:
        gym_scores = [scores.get(gym) for scores in report.table.values()]
        cells = [NULL if row is None or row.score is None else with_error(row.score, row.stderr) for row in gym_scores]
        rows.append((gym, *cells))
    other = "" if checkpoint.chosen else " They are not the scores of this checkpoint, but of others of the same run."
    yield TableBlock(
        ("gym", *report.table),
        tuple(rows),
        f"Mean score on {report.test_tasks} held-out tasks with at most {report.horizon} turns, ± standard error over tasks. "
        f"RL, or the name of a branch: the best checkpoint on validation.{other}",
    )
    for sentence in (*report.collapsed, *report.held, *report.forgotten):
        yield Text(sentence)


def _limits(report: RunReport) -> Iterator[Block]:
    yield Heading("Limits")
    items = [
        "One run with one seed. It compares no two recipes.",
        "The users were simulated, if nothing else is said above.",
    ]
    if report.from_scratch:
        items.append("The model was trained from scratch. It understands nothing outside its training tasks.")
    yield Items(tuple(items))
