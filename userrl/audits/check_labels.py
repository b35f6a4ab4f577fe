"""Comparison of a label set with the labels that persons gave on the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from analysis.measure.labels import LabelAgreement, LabelPair, label_agreement
from userrl.audits.labels import YES
from userrl.machine.foreign_text import plain
from userrl.machine.home import warehouse_dir
from userrl.machine.notebook import Printed
from userrl_core.errors import ConfigError
from userrl_core.number_format import with_limits
from userrl_core.suggest import nearest
from warehouse import open_warehouse
from warehouse.files.runs import find_run


@dataclass(frozen=True, slots=True)
class CheckedLabels(Printed):
    """The agreement of each labeller of a label set with the labels of persons."""

    run: str
    name: str
    by_labeller: Mapping[str, LabelAgreement]

    def as_json(self) -> dict[str, Any]:
        """Return the agreement as JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{plain(self.name)}: labels compared with a person's, 95 % limits over tasks"]
        for labeller, result in self.by_labeller.items():
            lines += [
                f"{plain(labeller)}: {result.pairs} labels of {result.tasks} tasks",
                f"  agreement    {with_limits(result.agreement)}",
                f"  sensitivity  {with_limits(result.sensitivity)}  (for {plain(result.positive)})",
                f"  specificity  {with_limits(result.specificity)}",
                f"  kappa        {with_limits(result.kappa)}",
            ]
        return "\n".join(lines)


def check_labels(run: str, name: str) -> CheckedLabels:
    """Compare a label set with the labels that persons gave on the page. Raises ConfigError if there is nothing to compare."""
    root = warehouse_dir()
    run_id = find_run(root, run)["run_id"]
    text = """SELECT l.source || ' ' || l.labeller, t.gym || '/' || t.task_id, l.value, p.value
              FROM labels l JOIN labels p USING (traj_id, turn, name) JOIN trajectories t ON t.traj_id = l.traj_id
              WHERE l.run_id = $run AND name = $name AND l.source <> 'person' AND p.source = 'person'
                AND l.value IS NOT NULL AND p.value IS NOT NULL ORDER BY ALL"""
    with open_warehouse(root) as warehouse:
        pairs: dict[str, list[LabelPair]] = {}
        for labeller, *values in warehouse.sql(text, run=run_id, name=name).fetchall():
            pairs.setdefault(labeller, []).append(LabelPair(*values))
        label_names = [
            row["name"] for row in warehouse.rows("SELECT DISTINCT name FROM labels WHERE run_id = $run", run=run_id)
        ]
    if not pairs:
        hint = (
            ""
            if name in label_names
            else f"{nearest(name, label_names)}; its label sets: {', '.join(sorted(label_names)) or 'none'}"
        )
        raise ConfigError(
            "labels.nothing_to_compare",
            f"Run {run_id} has no turn or conversation that both a scanner and a person labelled '{name}'{hint}. "
            "Label some on the page (userrl view).",
        )
    return CheckedLabels(run_id, name, {who: label_agreement(label_pairs, YES) for who, label_pairs in pairs.items()})
